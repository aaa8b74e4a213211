#include "tools/options/kernel_options.h"

#include <cstring>

#include "fp4lab/base/error.h"

namespace fp4lab::tools {
namespace {

const Dialect& DialectOf(const KernelOptions& options) {
  return RequireDialect(options.dialect.empty() ? "nvfp4.te" : options.dialect);
}

template <class T>
std::vector<T> ReadElements(const std::string& place) {
  const std::vector<std::byte> bytes = ReadBytes(place);
  if (bytes.size() % sizeof(T) != 0) {
    throw Error(
        place, "its " + std::to_string(bytes.size()) + " bytes are not a whole number of elements");
  }
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

// The numbers of --level-two: the text as a number, or a file of numbers, which are float32 if the
// file states no type.
std::vector<float> ReadTensorScale(const std::string& text) {
  char* end = nullptr;
  const float number = std::strtof(text.c_str(), &end);
  if (end != text.c_str() && *end == '\0') return {number};
  return HoldsType(text) ? ReadMatrix(text).values.values : ReadElements<float>(text);
}

StoredMatrix ReadParts(const KernelOptions& o, const Dialect& dialect,
                       MatrixView<const float> input) {
  if (o.codes.empty()) {
    throw Error("--codes", "is missing: a file of the kernel's codes, or --stored and a file");
  }
  StoredMatrix m = ShapeOf(dialect, input.rows, input.cols,
                           Changed({.codes = DefaultCodeOrder(dialect.element)}, o.layout));
  m.codes = ReadElements<std::uint8_t>(o.codes);
  if (!o.scales.empty()) m.scales = ReadElements<std::uint8_t>(o.scales);
  if (!o.tensor_scale.empty()) m.tensor_scale = ReadTensorScale(o.tensor_scale);
  return m;
}

}  // namespace

CLI::Option* AddInputOptions(CLI::App* command, KernelOptions* options) {
  return AddNumberOptions(command, "--input", "The matrix that the kernel quantizes",
                          &options->input);
}

void AddDialectOptions(CLI::App* command, KernelOptions* options) {
  command
      ->add_option("--dialect", options->dialect,
                   "The dialect that the kernel should compute; `fp4lab dialects` lists them "
                   "[nvfp4.te, or that of --stored]")
      ->type_name("NAME");
  AddHadamardOptions(command, &options->hadamard);
}

void AddGivenOptions(CLI::App* command, KernelOptions* options) {
  command->add_option("--amax", options->amax,
                      "The tensor's amax that the kernel was given (one, or one per row)");
  command
      ->add_option("--random", options->random,
                   "The random bits of stochastic rounding: uint16, one per element")
      ->type_name("FILE");
}

void AddBytesOptions(CLI::App* command, KernelOptions* options) {
  CLI::Option* const stored =
      command
          ->add_option("--stored", options->stored,
                       "The kernel's bytes and their layout: .safetensors, .npz or .gguf of fp4lab "
                       "or a vendor; the layout options describe vendors' files; FILE#NAME where "
                       "it holds several")
          ->type_name("FILE");
  const auto add_part = [&](const char* name, std::string* place, const char* what) {
    command->add_option(name, *place, what)->type_name("FILE")->excludes(stored);
  };
  add_part("--codes", &options->codes, "Or its codes: .npy, FILE#NAME or raw bytes");
  add_part("--scales", &options->scales, "Its scale bytes");
  add_part("--level-two", &options->tensor_scale,
           "Its tensor number: float32, or the number itself");
}

void RequireElements(MatrixView<const float> input, const std::string& where) {
  if (input.size() != 0) return;
  throw Error(where, "is " + ShapeText({input.rows, input.cols}) + ": the matrix has no elements");
}

StoredFile ReadAnswer(const KernelOptions& o, MatrixView<const float> input) {
  RequireElements(input, o.input.place.empty() ? "the pack's input" : o.input.place);
  if (o.stored.empty()) {
    const Dialect& dialect = DialectOf(o);
    return {{}, std::string(dialect.name), ReadParts(o, dialect, input)};
  }
  StoredFile file = ReadStored(o.stored, ReadOptionsOf(o.layout, DialectOrNothing(o.dialect)));
  if (file.matrix.rows == input.rows && file.matrix.cols == input.cols) return file;
  throw Error(o.stored, "is " + FormatText(file.matrix) + "; the input is " +
                            ShapeText({input.rows, input.cols}));
}

Kernel KernelOf(const KernelOptions& o) {
  const Dialect& dialect = DialectOf(o);
  return {.dialect = dialect,
          .layout = Changed({.codes = DefaultCodeOrder(dialect.element)}, o.layout),
          .hadamard = o.hadamard.size,
          .sign_mask = SignMask(o.hadamard)};
}

Kernel KernelOf(const KernelOptions& o, const StoredFile& answer) {
  Kernel kernel = KernelOf(o);
  if (const Dialect* own = DialectOf(answer, DialectOrNothing(o.dialect))) kernel.dialect = *own;
  const Dialect& d = kernel.dialect;
  const StoredMatrix& m = answer.matrix;
  if (m.element != d.element || m.scale != d.scale || m.block_rows != d.block_rows ||
      m.block_cols != d.block_cols) {
    throw Error(o.bytes(), "is " + FormatText(m) + ", which " + std::string(d.name) +
                               " does not write: give another --dialect");
  }
  kernel.layout = m.layout;
  return kernel;
}

std::vector<std::uint16_t> ReadRandom(const KernelOptions& options) {
  if (options.random.empty()) return {};
  return ReadElements<std::uint16_t>(options.random);
}

DialectOptions OptionsOf(const KernelOptions& o, const Dialect& d, MatrixView<const float> x,
                         const std::vector<std::uint16_t>& random) {
  const std::size_t amaxes = d.row_scaled ? x.rows : 1;
  if (!o.amax.empty() && HasTensorScale(d) && o.amax.size() != amaxes) {
    throw Error("--amax", std::to_string(o.amax.size()) + " numbers; " + std::string(d.name) +
                              " takes " + std::to_string(amaxes));
  }
  if (IsStochastic(d) && random.size() != x.size()) {
    throw Error("--random", "the dialect " + std::string(d.name) +
                                " rounds stochastically: give the file of its random bits, " +
                                std::to_string(x.size()) +
                                " uint16 (verify --stochastic judges several runs without)");
  }
  return {.amax = o.amax, .random = random};
}

}  // namespace fp4lab::tools
