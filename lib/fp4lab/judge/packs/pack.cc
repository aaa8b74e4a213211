#include "fp4lab/judge/packs/pack.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <span>
#include <string>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/version.h"
#include "fp4lab/judge/cases/bf16_bits.h"
#include "fp4lab/spelling/spelled_dialect.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

constexpr std::string_view kFormat = "fp4lab-pack 1";

template <class T>
SafetensorsTensor Tensor(const char* dtype, std::vector<std::size_t> shape,
                         const std::vector<T>& values) {
  return {dtype, std::move(shape), BytesOf(values)};
}

bool IsBf16Value(float x) { return (std::bit_cast<std::uint32_t>(x) & 0xFFFFu) == 0; }

SafetensorsTensor MatrixTensor(const Matrix<float>& x) {
  const std::vector<std::size_t> shape = {x.rows, x.cols};
  if (!std::all_of(x.values.begin(), x.values.end(), IsBf16Value)) {
    return Tensor("F32", shape, x.values);
  }
  return Tensor("BF16", shape, Bf16Bits(x));
}

Matrix<float> Copied(MatrixView<const float> x) {
  Matrix<float> copy(x.rows, x.cols);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) copy(r, c) = x(r, c);
  }
  return copy;
}

// Adds all intermediate numbers, from the traces of all elements.
void AddIntermediates(const Dialect& dialect, const Matrix<float>& x, const Quantized& q,
                      const DialectOptions& options, SafetensorsFile* file) {
  DialectOptions known = options;
  known.amax = q.amax;
  const std::size_t blocks = q.scale_rows * q.scale_cols;
  std::vector<float> encode(q.amax.size()), decode(q.amax.size()), scaled(x.values.size());
  std::vector<float> amax(blocks), before(blocks), value(blocks), factor(blocks);
  const std::size_t block_rows = static_cast<std::size_t>(std::max(dialect.block_rows, 1));
  const std::size_t block_cols = static_cast<std::size_t>(std::max(dialect.block_cols, 1));
  ParallelFor(q.scale_rows == 0 ? x.rows : q.scale_rows, [&](std::size_t strip) {
    const std::size_t top = q.scale_rows == 0 ? strip : strip * block_rows;
    const std::size_t end = q.scale_rows == 0 ? top + 1 : std::min(top + block_rows, x.rows);
    for (std::size_t r = top; r < end; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) {
        const Trace t = TraceAs(dialect, x.View(), r, c, known);
        scaled[r * x.cols + c] = t.scaled;
        if (c == 0 && q.amax.size() > 1) encode[r] = t.encode, decode[r] = t.decode;
        if (r == 0 && c == 0 && q.amax.size() == 1) encode[0] = t.encode, decode[0] = t.decode;
        if (blocks == 0 || r != top || c % block_cols != 0) continue;
        const std::size_t block = strip * q.scale_cols + c / block_cols;
        amax[block] = t.block_amax;
        before[block] = t.scale_before;
        value[block] = t.scale;
        factor[block] = t.factor;
      }
    }
  });
  file->tensors["scaled"] = Tensor("F32", {x.rows, x.cols}, scaled);
  if (!q.amax.empty()) {
    file->tensors["encode"] = Tensor("F32", {encode.size()}, encode);
    file->tensors["decode"] = Tensor("F32", {decode.size()}, decode);
  }
  if (blocks == 0) return;
  const std::vector<std::size_t> grid = {q.scale_rows, q.scale_cols};
  file->tensors["block_amax"] = Tensor("F32", grid, amax);
  file->tensors["scale_before"] = Tensor("F32", grid, before);
  file->tensors["scale_value"] = Tensor("F32", grid, value);
  file->tensors["factor"] = Tensor("F32", grid, factor);
}

std::string Digest(const SafetensorsFile& file) {
  std::string text;
  for (const auto& [key, value] : file.metadata) {
    if (key != "digest") text += key + "=" + value + "\n";
  }
  for (const auto& [name, tensor] : file.tensors) {
    text += name + " " + tensor.dtype;
    for (const std::size_t n : tensor.shape) text += " " + std::to_string(n);
    text += "\n";
  }
  return Sha256(text);
}

// ---- Reading ------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(const SafetensorsFile& file, std::string where) : file_(file), where_(std::move(where)) {}

  const std::string& Metadata(const std::string& key) const {
    const auto at = file_.metadata.find(key);
    if (at == file_.metadata.end()) {
      throw Error(where_, "is not a golden pack: its __metadata__ has no \"" + key + "\"");
    }
    return at->second;
  }
  std::uint32_t Number(const std::string& key) const {
    const std::string& text = Metadata(key);
    std::uint32_t number = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
      throw Error(where_, "\"" + key + "\" is not a number: " + text);
    }
    return number;
  }
  bool Has(const std::string& name) const { return file_.tensors.count(name) != 0; }
  const SafetensorsTensor& Tensor(const std::string& name, const char* dtype,
                                  std::size_t dimensions) const {
    const auto at = file_.tensors.find(name);
    if (at == file_.tensors.end()) throw Error(where_, "has no tensor \"" + name + "\"");
    if (at->second.dtype != dtype || at->second.shape.size() != dimensions) {
      throw Error(where_ + "#" + name, "must be of type " + std::string(dtype) + " and have " +
                                           std::to_string(dimensions) + " dimensions");
    }
    return at->second;
  }
  template <class T>
  std::vector<T> Values(const std::string& name, const char* dtype, std::size_t dimensions) const {
    const SafetensorsTensor& tensor = Tensor(name, dtype, dimensions);
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
    return values;
  }
  Matrix<float> Floats(const std::string& name) const {
    const bool bf16 = Has(name) && file_.tensors.at(name).dtype == "BF16";
    const SafetensorsTensor& tensor = Tensor(name, bf16 ? "BF16" : "F32", 2);
    Matrix<float> x(tensor.shape[0], tensor.shape[1]);
    if (!bf16) {
      x.values = Values<float>(name, "F32", 2);
      return x;
    }
    const std::vector<std::uint16_t> bits = Values<std::uint16_t>(name, "BF16", 2);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      x.values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16);
    }
    return x;
  }
  void CheckHashes() const {
    for (const auto& [name, tensor] : file_.tensors) {
      const std::string hash = Sha256(std::span<const std::byte>(tensor.bytes));
      if (Metadata("sha256." + name) == hash) continue;
      throw Error(where_ + "#" + name, "its SHA-256 is " + hash + "; the pack says " +
                                           Metadata("sha256." + name) +
                                           ": the tensor was changed after the pack was made");
    }
    for (const auto& [key, value] : file_.metadata) {
      if (key.rfind("sha256.", 0) == 0 && !Has(key.substr(7))) {
        throw Error(where_, "lacks the tensor \"" + key.substr(7) + "\" that it has a hash of");
      }
    }
    if (Metadata("digest") != Digest(file_)) {
      throw Error(where_ + "#__metadata__", "was changed after the pack was made");
    }
  }

 private:
  const SafetensorsFile& file_;
  std::string where_;
};

void RequireSize(std::size_t got, std::size_t expected, const std::string& where) {
  if (got == expected) return;
  throw Error(where, "holds " + std::to_string(got) + " values; the shape of the input needs " +
                         std::to_string(expected));
}

// The transform and the random bits must be those that the pack's input and dialect can have.
void CheckInput(const Pack& pack, const std::string& where) {
  const Matrix<float>& x = pack.input;
  if (x.values.empty()) throw Error(where + "#input", "has no elements");
  if (IsStochastic(pack.dialect) && pack.random.empty()) {
    throw Error(where, "has no tensor \"random\", whose bits " + std::string(pack.dialect.name) +
                           " rounds with");
  }
  if (pack.hadamard == 0) return;
  const bool groups = (pack.hadamard == 16 || pack.hadamard == 32) &&
                      x.cols % static_cast<std::size_t>(pack.hadamard) == 0;
  if (!groups || !std::all_of(x.values.begin(), x.values.end(), IsBf16Value)) {
    throw Error(where,
                "\"hadamard\" is " + std::to_string(pack.hadamard) +
                    ": the transform is of 16 or 32 elements, in rows of whole groups of BF16 "
                    "values");
  }
}

// The number of blocks along a side; 0 where the tensor is one block.
std::size_t BlocksAlong(std::size_t side, int block) {
  return block > 0 ? DivideUp(side, static_cast<std::size_t>(block)) : 0;
}

}  // namespace

std::string LayoutName(const StorageLayout& layout) {
  std::string name = std::string(Name(layout.codes)) + "." + std::string(Named(layout.scales).name);
  for (const NamedTensorScale& named : kTensorScaleConventions) {
    if (named.convention == layout.tensor_scale) name += "." + std::string(named.name);
  }
  return name + (layout.transposed ? ".transposed" : "") +
         (layout.expanded_scales ? ".expanded" : "");
}

Matrix<float> QuantizerInput(MatrixView<const float> input, int hadamard, std::uint32_t sign_mask) {
  const IeeeArithmetic ieee;
  Matrix<float> x = Copied(input);
  if (hadamard != 0) RandomHadamard(input, hadamard, sign_mask, x.View());
  return x;
}

SafetensorsFile MakePack(const Dialect& dialect, MatrixView<const float> input,
                         const PackOptions& options) {
  const IeeeArithmetic ieee;
  const Matrix<float> x = QuantizerInput(input, options.hadamard, options.sign_mask);
  const Quantized q = QuantizeAs(dialect, x.View(), options.quantize);
  SafetensorsFile file;
  file.tensors["input"] = MatrixTensor(Copied(input));
  if (options.hadamard != 0) file.tensors["transformed"] = MatrixTensor(x);
  if (IsStochastic(dialect)) {
    const auto& random = options.quantize.random;
    file.tensors["random"] =
        Tensor("U16", {x.rows, x.cols}, std::vector<std::uint16_t>(random.begin(), random.end()));
  }
  if (!q.amax.empty()) file.tensors["amax"] = Tensor("F32", {q.amax.size()}, q.amax);
  if (!q.scales.empty())
    file.tensors["scale"] = Tensor("U8", {q.scale_rows, q.scale_cols}, q.scales);
  if (!q.scale_values.empty())
    file.tensors["scale"] = Tensor("F32", {q.scale_rows, q.scale_cols}, q.scale_values);
  file.tensors["codes"] = Tensor("U8", {x.rows, x.cols}, q.codes);
  if (options.intermediates) AddIntermediates(dialect, x, q, options.quantize, &file);
  std::string layouts;
  for (const StorageLayout& layout : options.layouts) {
    const StoredMatrix stored = Store(dialect, q, layout);
    const std::string name = LayoutName(layout);
    layouts += (layouts.empty() ? "" : " ") + name;
    file.tensors[name + ".codes"] = Tensor("U8", {stored.codes.size()}, stored.codes);
    if (!stored.scales.empty()) {
      file.tensors[name + ".scales"] = Tensor("U8", {stored.scales.size()}, stored.scales);
    }
    if (!stored.tensor_scale.empty()) {
      file.tensors[name + ".tensor_scale"] =
          Tensor("F32", {stored.tensor_scale.size()}, stored.tensor_scale);
    }
  }
  const std::string block =
      std::to_string(dialect.block_rows) + "x" + std::to_string(dialect.block_cols);
  const bool divides =
      !x.values.empty() &&
      TraceAs(dialect, x.View(), 0, 0, {.amax = q.amax, .random = options.quantize.random}).divides;
  file.metadata = {{"format", std::string(kFormat)},
                   {"fp4lab", std::string(kVersion)},
                   {"dialect", std::string(dialect.name)},
                   {"source", std::string(dialect.source)},
                   {"element", std::string(Named(dialect.element).name)},
                   {"scale", std::string(Named(dialect.scale).name)},
                   {"block", block},
                   {"factor_divides", divides ? "1" : "0"},
                   {"hadamard", std::to_string(options.hadamard)},
                   {"sign_mask", std::to_string(options.sign_mask)},
                   {"layouts", layouts}};
  for (const auto& [name, tensor] : file.tensors) {
    file.metadata["sha256." + name] = Sha256(std::span<const std::byte>(tensor.bytes));
  }
  file.metadata["digest"] = Digest(file);
  return file;
}

Pack ReadPack(const SafetensorsFile& file, const std::string& where) {
  const IeeeArithmetic ieee;
  const Reader reader(file, where);
  if (reader.Metadata("format") != kFormat) {
    throw Error(where, "is a pack of the format \"" + reader.Metadata("format") +
                           "\"; this fp4lab reads \"" + std::string(kFormat) + "\"");
  }
  reader.CheckHashes();
  const Dialect* dialect = DialectNamed(reader.Metadata("dialect"), where);
  if (dialect == nullptr) {
    throw Error(where, "is of the dialect " + reader.Metadata("dialect") +
                           ", which this fp4lab does not know");
  }
  Pack pack{
      .dialect = *dialect, .version = reader.Metadata("fp4lab"), .input = reader.Floats("input")};
  pack.hadamard = static_cast<int>(reader.Number("hadamard"));
  pack.sign_mask = reader.Number("sign_mask");
  const std::size_t rows = pack.input.rows, cols = pack.input.cols;
  if (reader.Has("random")) {
    pack.random = reader.Values<std::uint16_t>("random", "U16", 2);
    RequireSize(pack.random.size(), rows * cols, where + "#random");
  }
  CheckInput(pack, where);
  Quantized& q = pack.answer;
  q.rows = rows;
  q.cols = cols;
  q.codes = reader.Values<std::uint8_t>("codes", "U8", 2);
  RequireSize(q.codes.size(), rows * cols, where + "#codes");
  q.scale_rows = BlocksAlong(rows, dialect->block_rows);
  q.scale_cols = BlocksAlong(cols, dialect->block_cols);
  const bool numbers = ScaleTypeOf(*dialect, {}) != ScaleType::kByte;
  if (numbers) {
    q.scale_values = reader.Values<float>("scale", "F32", 2);
  } else if (dialect->block_rows > 0) {
    q.scales = reader.Values<std::uint8_t>("scale", "U8", 2);
  }
  RequireSize(numbers ? q.scale_values.size() : q.scales.size(), q.scale_rows * q.scale_cols,
              where + "#scale");
  if (HasTensorScale(*dialect)) {
    q.amax = reader.Values<float>("amax", "F32", 1);
    RequireSize(q.amax.size(), dialect->row_scaled ? rows : 1, where + "#amax");
  }
  for (const auto& [name, tensor] : file.tensors) pack.tensors.push_back(name);
  return pack;
}

Quantized RecomputedAnswer(const Pack& pack) {
  const IeeeArithmetic ieee;
  const Matrix<float> x = QuantizerInput(pack.input.View(), pack.hadamard, pack.sign_mask);
  return QuantizeAs(pack.dialect, x.View(), {.amax = pack.answer.amax, .random = pack.random});
}

}  // namespace fp4lab
