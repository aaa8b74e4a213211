#include "tools/kernel_options.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <span>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/npy.h"
#include "fp4lab/io/safetensors.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::tools {
namespace {

struct Array {
  std::string dtype;  // "f32", "bf16", "f16", "u8", ..., "" for raw bytes
  std::vector<std::size_t> shape = {};
  std::vector<std::byte> bytes = {};
  std::string where = {};
};

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// "<u2" and "|V2" are how NumPy files hold BF16.
std::string DtypeOfNpy(std::string_view dtype) {
  if (dtype == "<f4") return "f32";
  if (dtype == "<f2") return "f16";
  if (dtype == "<u2" || dtype == "|V2") return "bf16";
  if (dtype == "|u1" || dtype == "|i1" || dtype == "|V1") return "u8";
  return std::string(dtype);
}
std::string DtypeOfSafetensors(std::string_view dtype) {
  if (dtype == "F32") return "f32";
  if (dtype == "F16") return "f16";
  if (dtype == "BF16") return "bf16";
  if (dtype == "U16") return "bf16";
  if (dtype == "U8" || dtype == "F4" || dtype.rfind("F8_", 0) == 0) return "u8";
  return std::string(dtype);
}

Array FromNpy(NpyArray array) {
  return {DtypeOfNpy(array.dtype), array.shape, std::move(array.bytes), array.where};
}

Array FromSafetensors(const std::string& path, const std::string& name, std::string_view option) {
  SafetensorsFile file = ReadSafetensors(path);
  std::string known;
  for (const auto& [tensor, content] : file.tensors) known += (known.empty() ? "" : ", ") + tensor;
  if (name.empty()) {
    throw Error(option, path + " holds " + known + "; say which one, as in " + path + "#NAME");
  }
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) throw Error(path + "#" + name, "is not there; it holds " + known);
  return {DtypeOfSafetensors(at->second.dtype), at->second.shape, std::move(at->second.bytes),
          path + "#" + name};
}

Array ReadArray(const std::string& text, std::string_view option) {
  const std::size_t hash = text.rfind('#');
  const std::string path = text.substr(0, hash);
  const std::string name = hash == std::string::npos ? "" : text.substr(hash + 1);
  if (EndsWith(path, ".npy")) return FromNpy(ReadNpy(path));
  if (EndsWith(path, ".safetensors")) return FromSafetensors(path, name, option);
  if (EndsWith(path, ".npz")) {
    if (name.empty()) throw Error(option, "say which array of the file, as in " + path + "#NAME");
    return FromNpy(NpzFile(path).Read(name));
  }
  const std::string content = ReadFile(text);
  Array raw{.dtype = "", .where = text};
  raw.bytes.resize(content.size());
  std::memcpy(raw.bytes.data(), content.data(), content.size());
  return raw;
}

template <class T>
std::vector<T> Elements(const Array& array) {
  if (array.bytes.size() % sizeof(T) != 0) {
    throw Error(array.where, "its " + std::to_string(array.bytes.size()) +
                                 " bytes are no whole number of elements");
  }
  std::vector<T> values(array.bytes.size() / sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

std::vector<float> Floats(const Array& array) {
  if (array.dtype == "f32") return Elements<float>(array);
  if (array.dtype != "bf16" && array.dtype != "f16") {
    throw Error(array.where,
                "holds " + array.dtype + "; f32, bf16 (also as uint16) and f16 are read");
  }
  const FormatId format = array.dtype == "bf16" ? FormatId::kBF16 : FormatId::kFP16;
  std::vector<float> values;
  for (const std::uint16_t code : Elements<std::uint16_t>(array)) {
    values.push_back(Decode(format, code));
  }
  return values;
}

std::size_t Number(std::string_view text, const std::string& shape) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error("--shape " + shape, "is no shape; as in --shape 128x4096");
  }
  return value;
}

std::vector<std::size_t> ParseShape(const std::string& shape) {
  const std::size_t x = shape.find('x');
  if (x == std::string::npos)
    throw Error("--shape " + shape, "is no shape; as in --shape 128x4096");
  return {Number(std::string_view(shape).substr(0, x), shape),
          Number(std::string_view(shape).substr(x + 1), shape)};
}

std::uint32_t SignMask(const KernelOptions& options) {
  const bool long_groups = options.hadamard == 32;
  if (options.signs.empty() || options.signs == "te") {
    return long_groups ? kTeSignMask32 : kTeSignMask16;
  }
  if (options.signs == "none") return 0;
  std::string_view digits = options.signs;
  if (digits.rfind("0x", 0) == 0) digits.remove_prefix(2);
  std::uint32_t mask = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), mask, 16);
  const bool fits = long_groups || mask <= 0xFFFFu;
  if (error != std::errc() || end != digits.data() + digits.size() || !fits) {
    throw Error("--signs " + options.signs, "is no mask; te, none, or bits as in 0xD7E8");
  }
  return mask;
}

template <class Table>
std::string NamesOf(const Table& table) {
  std::string names;
  for (const auto& row : table) names += " " + std::string(row.name);
  return names;
}

}  // namespace

void AddInputOptions(CLI::App* command, KernelOptions* options) {
  command
      ->add_option("--input", options->input,
                   "The matrix that the kernel quantized: .npy, FILE.npz#ARRAY, "
                   "FILE.safetensors#TENSOR, or raw elements with --shape and --dtype")
      ->type_name("FILE")
      ->required();
  command->add_option("--shape", options->shape, "Rows and columns of a raw input")
      ->type_name("ROWSxCOLS");
  command->add_option("--dtype", options->dtype, "Elements of a raw input: f32, bf16, f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_flag("--transpose-input", options->transpose_input,
                    "The kernel quantizes the transposed input (columnwise)");
}

void AddDialectOptions(CLI::App* command, KernelOptions* options) {
  command
      ->add_option("--dialect", options->dialect,
                   "What the kernel should compute; `fp4lab dialects` lists them")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--hadamard", options->hadamard,
                   "The random Hadamard transform before it: 16 or 32 elements, 0: none")
      ->check(CLI::IsMember({0, 16, 32}));
  command->add_option("--signs", options->signs,
                      "Signs of the transform: te (default), none, or a mask as 0xD7E8");
  command->add_option("--amax", options->amax,
                      "The tensor's amax that the kernel was given (one, or one a row)");
  command
      ->add_option("--random", options->random,
                   "The random bits of stochastic rounding: uint16, one an element")
      ->type_name("FILE");
}

void AddBytesOptions(CLI::App* command, KernelOptions* options) {
  command->add_option("--codes", options->codes, "The kernel's codes: a file as for --input")
      ->type_name("FILE")
      ->required();
  command->add_option("--scales", options->scales, "The kernel's scale bytes")->type_name("FILE");
  command
      ->add_option("--level-two", options->level_two,
                   "The kernel's tensor number: a file of float32, or the number itself")
      ->type_name("FILE|NUMBER");
}

void AddLayoutOptions(CLI::App* command, KernelOptions* options) {
  command->add_option("--codes-order", options->codes_order,
                      "How the codes are packed:" + NamesOf(kCodeOrders));
  command
      ->add_option("--scales-order", options->scales_order,
                   "How the scales lie:" + NamesOf(kScaleOrders))
      ->capture_default_str();
  command->add_flag("--transposed", options->transposed,
                    "The bytes are those of the transposed matrix");
  command->add_flag("--expanded-scales", options->expanded_scales,
                    "The scale of a square block is repeated for each of its rows");
  command
      ->add_option("--level-two-is", options->level_two_is,
                   "What the tensor number is:" + NamesOf(kLevelTwoConventions))
      ->capture_default_str();
}

const Dialect& DialectNamed(std::string_view name, std::string_view where) {
  if (const Dialect* d = FindDialect(name)) return *d;
  throw Error(where, "is no dialect; `fp4lab dialects` lists them:" + NamesOf(Dialects()));
}

StorageLayout LayoutOf(const KernelOptions& options, const Dialect& dialect) {
  StorageLayout layout;
  layout.codes = DefaultCodeOrder(dialect.element);
  if (!options.codes_order.empty()) {
    const auto order = FindCodeOrder(options.codes_order);
    if (!order) {
      throw Error("--codes-order " + options.codes_order, "is none of" + NamesOf(kCodeOrders));
    }
    layout.codes = *order;
  }
  const auto order = FindScaleOrder(options.scales_order);
  if (!order) {
    throw Error("--scales-order " + options.scales_order, "is none of" + NamesOf(kScaleOrders));
  }
  layout.scales = *order;
  layout.transposed = options.transposed;
  layout.expanded_scales = options.expanded_scales;
  const auto convention =
      std::find_if(kLevelTwoConventions.begin(), kLevelTwoConventions.end(),
                   [&](const NamedLevelTwo& row) { return row.name == options.level_two_is; });
  if (convention == kLevelTwoConventions.end()) {
    throw Error("--level-two-is " + options.level_two_is,
                "is none of" + NamesOf(kLevelTwoConventions));
  }
  layout.level_two = convention->convention;
  return layout;
}

Kernel KernelOf(const KernelOptions& options) {
  const Dialect& dialect = DialectNamed(options.dialect, "--dialect " + options.dialect);
  return {.dialect = dialect,
          .layout = LayoutOf(options, dialect),
          .hadamard = options.hadamard,
          .sign_mask = options.hadamard == 0 ? 0u : SignMask(options)};
}

Matrix<float> ReadInput(const KernelOptions& options) {
  Array array = ReadArray(options.input, "--input");
  if (array.dtype.empty()) {
    if (options.shape.empty()) {
      throw Error("--input " + options.input, "holds raw elements; say their --shape and --dtype");
    }
    array.dtype = options.dtype.empty() ? "f32" : options.dtype;
    array.shape = ParseShape(options.shape);
  }
  std::vector<float> values = Floats(array);
  std::vector<std::size_t> shape = array.shape;
  while (shape.size() > 2) {  // leading axes are rows
    shape[1] *= shape[0];
    shape.erase(shape.begin());
  }
  while (shape.size() < 2) shape.insert(shape.begin(), 1);
  if (values.size() / std::max<std::size_t>(shape[1], 1) != shape[0] ||
      values.size() != shape[0] * shape[1]) {
    throw Error(array.where, "holds " + std::to_string(values.size()) + " elements, not " +
                                 std::to_string(shape[0]) + "x" + std::to_string(shape[1]));
  }
  Matrix<float> x;
  x.rows = shape[0];
  x.cols = shape[1];
  x.values = std::move(values);
  if (!options.transpose_input) return x;
  Matrix<float> transposed(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) transposed(c, r) = x(r, c);
  }
  return transposed;
}

StoredMatrix ReadBytes(const KernelOptions& options, const Kernel& kernel,
                       MatrixView<const float> x) {
  StoredMatrix stored{.rows = x.rows,
                      .cols = x.cols,
                      .element = kernel.dialect.element,
                      .scale = kernel.dialect.scale,
                      .block_rows = kernel.dialect.block_rows,
                      .block_cols = kernel.dialect.block_cols,
                      .layout = kernel.layout};
  if (!options.codes.empty()) {
    stored.codes = Elements<std::uint8_t>(ReadArray(options.codes, "--codes"));
  }
  if (!options.scales.empty()) {
    stored.scales = Elements<std::uint8_t>(ReadArray(options.scales, "--scales"));
  }
  if (options.level_two.empty()) return stored;
  const char* text = options.level_two.c_str();
  char* end = nullptr;
  const float number = std::strtof(text, &end);
  if (end != text && *end == '\0') {
    stored.level_two = {number};
    return stored;
  }
  Array array = ReadArray(options.level_two, "--level-two");
  if (array.dtype.empty()) array.dtype = "f32";
  stored.level_two = Floats(array);
  return stored;
}

std::vector<std::uint16_t> ReadRandom(const KernelOptions& options) {
  if (options.random.empty()) return {};
  return Elements<std::uint16_t>(ReadArray(options.random, "--random"));
}

DialectOptions OptionsOf(const KernelOptions& options, const Kernel& kernel,
                         MatrixView<const float> x, const std::vector<std::uint16_t>& random) {
  const Dialect& d = kernel.dialect;
  const std::size_t amaxes = d.row_scaled ? x.rows : 1;
  if (!options.amax.empty() && HasLevelTwo(d) && options.amax.size() != amaxes) {
    throw Error("--amax", std::to_string(options.amax.size()) + " numbers; " + std::string(d.name) +
                              " takes " + std::to_string(amaxes));
  }
  if (IsStochastic(d) && random.size() != x.size()) {
    throw Error("--random", std::to_string(random.size()) + " fields of random bits; " +
                                std::string(d.name) +
                                " takes one an element: " + std::to_string(x.size()));
  }
  return {.amax = options.amax, .random = random};
}

}  // namespace fp4lab::tools
