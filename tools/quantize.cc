// fp4lab quantize: quantizes a matrix of numbers in any dialect, layout and naming.
#include <memory>
#include <span>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/random.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/transform/hadamard.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/file_options.h"
#include "tools/options/given_amax.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct QuantizeCommand {
  NumberOptions input;
  LayoutOptions layout;
  std::string out, dialect = "nvfp4.te", convention = "fp4lab";
  HadamardOptions hadamard;
  bool bf16 = false, stochastic = false, gives_seed = false;
  std::uint64_t seed = 0;
  std::vector<float> amax;
};

// Transforms x in place if --hadamard is given. The transform takes only BF16 values, so that its
// roundings are Transformer Engine's; throws Error for other values and for rows that are not whole
// groups.
void Transform(const QuantizeCommand& o, MatrixView<float> x) {
  const int size = o.hadamard.size;
  if (size == 0) return;
  const std::string where = "--hadamard " + std::to_string(size);
  if (x.cols % static_cast<std::size_t>(size) != 0) {
    throw Error(where,
                "needs rows of whole groups; these have " + std::to_string(x.cols) + " elements");
  }
  for (const float v : std::span(x.data, x.size())) {
    if (v == v && RoundToBf16(v) != v) {
      throw Error(where, "takes BF16 values, and the input holds others; --bf16 rounds it first");
    }
  }
  RandomHadamard(x, size, SignMask(o.hadamard), x);
}

// The matrix to quantize: a view of the file's numbers, or a copy changed by --bf16 or --hadamard.
struct Input {
  NumberView file;
  Matrix<float> changed;
  MatrixView<const float> values;
};
Input ReadInput(const QuantizeCommand& o) {
  Input input;
  if (!o.bf16 && o.hadamard.size == 0) {
    input.file = ViewNumbers(o.input);
    input.values = input.file.values;
    return input;
  }
  input.changed = ReadNumbers(o.input).values;
  std::vector<float>& values = input.changed.values;
  if (o.bf16) RoundToBf16(values, values);
  Transform(o, input.changed.View());
  input.values = input.changed.View();
  return input;
}

DialectOptions OptionsOf(const QuantizeCommand& o, const Dialect& dialect,
                         MatrixView<const float> x, std::vector<std::uint16_t>* random) {
  CheckGivenAmax(o.amax, dialect, x);
  if (IsStochastic(dialect)) {
    const RandomStream stream{.seed = o.seed};
    if (dialect.rounding == ElementRounding::kStochastic16) {
      return {.amax = o.amax, .source = RandomSource{stream}};
    }
    random->resize(x.size());
    FillBits16(stream, 0, *random);
    if (dialect.rounding == ElementRounding::kStochastic8) {
      for (std::uint16_t& bits : *random) bits &= 0xFF;
    }
  }
  return {.amax = o.amax, .random = *random};
}

// Refuses options that would have no effect, or that contradict the named convention.
void CheckUsage(const QuantizeCommand& o, const Dialect& dialect) {
  CheckHadamardOptions(o.hadamard);
  CheckConventionLayout(o.layout, o.convention, dialect.element, dialect.block_rows,
                        HasTensorScale(dialect));
  if (!o.gives_seed || IsStochastic(dialect)) return;
  RefuseUsage("--seed", "is that of stochastic rounding, and " + std::string(dialect.name) +
                            " rounds to nearest; add --stochastic, or leave it out");
}

void Run(const QuantizeCommand& o) {
  Dialect dialect = RequireDialect(o.dialect);
  if (o.stochastic) dialect.rounding = ElementRounding::kStochastic16;
  CheckUsage(o, dialect);
  const Input input = ReadInput(o);
  std::vector<std::uint16_t> random;
  const StorageLayout layout = Changed({.codes = DefaultCodeOrder(dialect.element)}, o.layout);
  const StoredMatrix stored =
      QuantizeStored(dialect, input.values, OptionsOf(o, dialect, input.values, &random), layout);
  WriteStored(o.out, stored, dialect.name, o.convention, dialect.scale_max);
  Print("%s: %s, %s\n", Printable(o.out).c_str(), std::string(dialect.name).c_str(),
        FormatText(stored).c_str());
}

}  // namespace

void AddQuantize(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<QuantizeCommand>();
  CLI::App* command =
      app.add_subcommand("quantize", "Quantize a matrix as any dialect, into a file");
  AddNumberOptions(command, "input", "The matrix to quantize", &o->input)->required();
  command
      ->add_option("--out", o->out,
                   "FILE.safetensors or FILE.npz, #NAME for a name; .gguf for gguf")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--dialect", o->dialect,
                   "The formula: a name of `fp4lab dialects`, or FILE.json with your own")
      ->type_name("DIALECT")
      ->capture_default_str();
  std::string conventions;
  for (const std::string_view name : Conventions()) conventions += " " + std::string(name);
  command->add_option("--convention", o->convention, "Whose tensor names and layout:" + conventions)
      ->type_name("WHOSE")
      ->capture_default_str();
  AddLayoutOptions(command, "", &o->layout);
  command->add_flag("--bf16", o->bf16, "Round the input to BF16 first");
  AddHadamardOptions(command, &o->hadamard);
  command->add_flag("--stochastic", o->stochastic,
                    "Stochastic rounding with 16 bits an element, Philox of --seed");
  command->add_option("--seed", o->seed, "Seed of stochastic rounding")
      ->transform(AnySeed())
      ->capture_default_str()
      ->each([o](const std::string&) { o->gives_seed = true; });
  command->add_option("--amax", o->amax,
                      "The tensor scale's amax, where it is not that of the input");
  PutInGroup(command, "The file", {"--out", "--convention"});
  PutInGroup(command, kDialectGroup, {"--dialect", "--bf16", "--stochastic", "--seed", "--amax"});
  command->footer(
      "Example: a raw BF16 matrix for Transformer Engine, with the scales of a GEMM\n"
      "  $ head -c 8192 /dev/zero > x.bf16\n"
      "  $ fp4lab quantize x.bf16 --shape 32x128 --dtype bf16 --scales-order 128x4 --out q.npz#w\n"
      "  q.npz#w: nvfp4.te, 32x128 float4_e2m1fn in 1x16 blocks with float8_e4m3fn scales");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
