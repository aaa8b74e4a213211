// fp4lab dequantize: writes the values of a quantized matrix from any supported file.
#include <memory>

#include "fp4lab/base/error.h"
#include "tools/options/commands.h"
#include "tools/options/file_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct DequantizeCommand {
  std::string input, out, dialect, dtype = "float32";
  LayoutOptions read;
  bool transpose = false;
};

void Run(const DequantizeCommand& o) {
  const NumberType type = RequireNumberType(o.dtype, "--dtype");
  if (type.kind == NumberType::Kind::kUint8) throw Error("--dtype uint8", "cannot hold the values");
  const Dialect* named = DialectOrNothing(o.dialect);
  const StoredFile file = ReadStored(o.input, ReadOptionsOf(o.read, named));
  const Dialect* dialect = DialectOf(file, named);
  Matrix<float> values = ValuesOf(file, dialect, o.input);
  if (o.transpose) values = Transposed(values.View());
  WriteMatrix(o.out, values.View(), type);
  const bool lacks_scale =
      file.matrix.tensor_scale.empty() && NeedsTensorScale(file.matrix, dialect);
  Print("%s: %zux%zu %s%s\n", Printable(o.out).c_str(), values.rows, values.cols,
        std::string(Name(type)).c_str(), lacks_scale ? ", without a tensor scale" : "");
}

}  // namespace

void AddDequantize(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<DequantizeCommand>();
  CLI::App* command = app.add_subcommand(
      "dequantize", "The values of a quantized matrix of ours, of a vendor's or of GGUF");
  AddStoredFile(command, "input", &o->input);
  command
      ->add_option("--out", o->out, "FILE.npy, .npz#ARRAY, .safetensors#TENSOR; else raw numbers")
      ->type_name("FILE")
      ->required();
  AddFileDialect(command, &o->dialect);
  command->add_option("--dtype", o->dtype, "Type of the numbers to write")
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_flag("--transpose", o->transpose, "Write the transposed matrix");
  AddLayoutOptions(command, "read-", &o->read);
  command->footer(
      "Example: there and back\n"
      "  $ head -c 8192 /dev/zero > x.bf16\n"
      "  $ fp4lab quantize x.bf16 --shape 32x128 --dtype bf16 --out q.safetensors > log\n"
      "  $ fp4lab dequantize q.safetensors --out y.npy\n"
      "  y.npy: 32x128 float32");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
