// fp4lab convert: writes a quantized matrix in another layout, naming or file; no value changes.
#include <memory>

#include "fp4lab/base/error.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/file_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct ConvertCommand {
  std::string input, out, dialect, convention = "fp4lab";
  LayoutOptions read, layout;
};

void Run(const ConvertCommand& o) {
  const Dialect* named = DialectOrNothing(o.dialect);
  const StoredFile file = ReadStored(o.input, ReadOptionsOf(o.read, named));
  CheckNamedDialect(file, named, o.input);
  CheckConventionLayout(o.layout, o.convention, file.matrix.element, file.matrix.block_rows,
                        !file.matrix.tensor_scale.empty());
  const Dialect* dialect = DialectOf(file, named);
  if (file.matrix.tensor_scale.empty() && !o.layout.tensor_scale.empty() &&
      o.layout.tensor_scale != Name(TensorScaleConvention::kNone)) {
    throw Error("--tensor-scale-is " + o.layout.tensor_scale,
                o.input + " stores no tensor scale that could become one");
  }
  const float scale_max = dialect == nullptr ? Dialect{}.scale_max : dialect->scale_max;
  const StorageLayout to = Changed(file.matrix.layout, o.layout);
  const FormatId scale = dialect == nullptr ? FormatId::kE8M0 : dialect->scale;
  const StoredMatrix stored =
      Convert(WithScaleType(file.matrix, to.scale_type, scale, o.input), to, scale_max, o.input);
  WriteStored(o.out, stored, dialect == nullptr ? file.dialect : dialect->name, o.convention,
              scale_max);
  ReadStoredOptions again{.dialect = dialect};
  if (stored.tensor_scale.empty()) again.tensor_scale = TensorScaleConvention::kNone;
  const StoredFile written = ReadStored(o.out, again);
  Print("%s: %s, %s (%s)\n", Printable(o.out).c_str(), FormatText(written.matrix).c_str(),
        LayoutText(written.matrix).c_str(), written.entry.convention.c_str());
}

}  // namespace

void AddConvert(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<ConvertCommand>();
  CLI::App* command = app.add_subcommand(
      "convert",
      "Convert between nibble orders, scale layouts, tensor-scale conventions and vendors");
  AddStoredFile(command, "input", &o->input);
  command
      ->add_option("--out", o->out,
                   "FILE.safetensors or FILE.npz, #NAME for a name; .gguf for gguf")
      ->type_name("FILE")
      ->required();
  std::string conventions;
  for (const std::string_view name : Conventions()) conventions += " " + std::string(name);
  command->add_option("--convention", o->convention, "Whose tensor names and layout:" + conventions)
      ->type_name("WHOSE")
      ->capture_default_str();
  AddFileDialect(command, &o->dialect);
  AddLayoutOptions(command, "", &o->layout);
  AddLayoutOptions(command, "read-", &o->read);
  PutInGroup(command, "The file", {"--out", "--convention"});
  command->footer(
      "Vendors' layouts are fixed: a layout option that contradicts one is refused.\n"
      "Example: a file of ours under the names of compressed-tensors\n"
      "  $ head -c 8192 /dev/zero > x.bf16\n"
      "  $ fp4lab quantize x.bf16 --shape 32x128 --dtype bf16 --out q.npz > log\n"
      "  $ fp4lab convert q.npz --convention compressed-tensors --out ct.safetensors#lin\n"
      "  ct.safetensors#lin: 32x128 float4_e2m1fn in 1x16 blocks with float8_e4m3fn scales, "
      "low-first codes, linear scales, tensor scale as divisor (compressed-tensors)");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
