#include "fp4lab/exchange/matrix_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/memory.h"
#include "fp4lab/io/tensors/gguf.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"

namespace fp4lab {
namespace {

constexpr std::array<std::string_view, 4> kEndings = {".npy", ".npz", ".safetensors", ".gguf"};

// The number of elements; nullopt if the number of bits could overflow.
std::optional<std::size_t> Elements(const std::vector<std::size_t>& shape) {
  std::size_t count = 1;
  for (const std::size_t n : shape) {
    if (n != 0 && count > std::numeric_limits<std::size_t>::max() / 64 / n) return std::nullopt;
    count *= n;
  }
  return count;
}

// Elements that are decoded at a time; the pages of the file that hold them are then released.
constexpr std::size_t kPiece = std::size_t{1} << 22;

// Decodes piece by piece and releases the file's pages of each piece.
void DecodeInPieces(NumberType type, std::span<const std::byte> bytes, const FileContent& content,
                    std::span<float> values) {
  const auto bits = static_cast<std::size_t>(Bits(type));
  // A piece of any type is a whole number of bytes.
  for (std::size_t at = 0; at < values.size(); at += kPiece) {
    const std::size_t n = std::min(kPiece, values.size() - at);
    const auto piece = bytes.subspan(at * bits / 8, DivideUp(n * bits, 8));
    DecodeNumbers(type, piece, values.subspan(at, n));
    content.Forget(piece);
  }
}

// Whether the bytes can be used as floats in place.
bool AreFloats(NumberType type, const ByteArray& bytes) {
  return type.kind == NumberType::Kind::kFloat32 &&
         reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0;
}

// The rows of a matrix whose rows have no elements: the product of the leading dimensions.
std::size_t RowsOfNothing(const std::vector<std::size_t>& shape, const std::string& where) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    if (shape[i] > kMost || rows * shape[i] > kMost) {
      throw Error(where, "states " + ShapeText(shape) + ": too many rows of no elements");
    }
    rows *= shape[i];
  }
  return rows;
}

NumberView Viewed(const std::string& where, NumberType type, std::vector<std::size_t> shape,
                  ByteArray bytes, std::unique_ptr<FileContent> content,
                  const ReadMatrixOptions& options) {
  if (!options.shape.empty() && options.shape != shape) {
    throw Error(where, "has the shape " + ShapeText(shape) + ", not " + ShapeText(options.shape));
  }
  const std::size_t count = *Elements(shape);
  const std::size_t cols = shape.empty() ? 1 : shape.back();
  const std::size_t rows = cols == 0 ? RowsOfNothing(shape, where) : count / cols;
  RequireMemory(std::uintmax_t{count} * sizeof(float), where);
  NumberView view{.values = {},
                  .type = type,
                  .shape = std::move(shape),
                  .content = std::move(content),
                  .bytes = std::move(bytes)};
  if (AreFloats(type, view.bytes)) {
    view.values = {reinterpret_cast<const float*>(view.bytes.data()), rows, cols};
    return view;
  }
  view.decoded.resize(count);
  DecodeInPieces(type, {view.bytes.data(), view.bytes.size()}, *view.content, view.decoded);
  view.bytes = {};
  view.values = {view.decoded.data(), rows, cols};
  return view;
}

// The type of 16-bit elements without a stated type: NumPy files hold BF16 in this way.
constexpr std::string_view k16Bits = "bfloat16";

NumberView FromNpy(NpyArray array, std::unique_ptr<FileContent> content,
                   const ReadMatrixOptions& options) {
  const std::string kind = array.dtype.substr(1);
  const bool coded = kind == "u1" || kind == "u2" || kind == "V1" || kind == "V2";
  NumberType type;
  if (coded) {
    if (options.dtype.empty() && kind[1] == '1') {
      throw Error(
          array.where,
          "holds " + array.dtype +
              ", whose element type is unknown; state the type, as in --dtype float8_e4m3fn");
    }
    type = RequireNumberType(options.dtype.empty() ? k16Bits : options.dtype, array.where);
    if (Bits(type) > (kind[1] == '1' ? 8 : 16) || (kind[1] == '2' && Bits(type) != 16)) {
      throw Error(array.where,
                  "holds " + array.dtype + ", which cannot be codes of " + std::string(Name(type)));
    }
  } else if (kind == "f2") {
    type = {NumberType::Kind::kFormat, FormatId::kFP16};
  } else if (kind != "f4") {
    throw Error(array.where, "holds " + array.dtype +
                                 "; f4, f2, and u1, u2, V1, V2 with a stated " +
                                 "dtype can be read");
  }
  if (!options.dtype.empty() && RequireNumberType(options.dtype, array.where) != type) {
    throw Error(array.where, "holds " + std::string(Name(type)) + ", not " + options.dtype);
  }
  if (Bits(type) >= 8) {
    return Viewed(array.where, type, array.shape, std::move(array.bytes), std::move(content),
                  options);
  }
  // One code a byte: the bytes are read as integers, then decoded by the narrow format.
  NumberView view = Viewed(array.where, {NumberType::Kind::kUint8, FormatId::kBF16}, array.shape,
                           std::move(array.bytes), std::move(content), options);
  for (float& v : view.decoded) {
    const auto code = static_cast<std::uint32_t>(v);
    if (code >> Bits(type) != 0) {
      throw Error(array.where,
                  "byte " + std::to_string(code) + " is not a code of " + std::string(Name(type)));
    }
    v = Decode(type.format, code);
  }
  view.type = type;
  return view;
}

// The requested tensor: by name, or the only one.
template <class Map>
const typename Map::value_type& Pick(const Map& tensors, const std::string& name,
                                     const std::string& where) {
  if (!name.empty()) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) return *found;
  } else if (tensors.size() == 1) {
    return *tensors.begin();
  }
  std::vector<std::string> all;
  for (const auto& [known, tensor] : tensors) all.push_back(known);
  if (!name.empty() && !NearNames(name, all).empty()) {
    throw Error(where, "has no tensor " + name + "; " + DidYouMean(name, all));
  }
  std::string names;
  std::size_t shown = 0;
  for (const auto& [known, tensor] : tensors) {
    if (++shown > 8) break;
    names += (names.empty() ? "" : ", ") + known;
  }
  if (tensors.size() > 8) names += ", ...";
  throw Error(where,
              (name.empty() ? "holds " + std::to_string(tensors.size()) + " tensors; name one"
                            : "has no tensor " + name) +
                  ", as in file#name: " + names);
}

NpyArray ReadNpz(const FilePlace& place, const FileContent& content) {
  const NpzFile file(content.bytes(), place.path.string());
  std::map<std::string, int> names;
  for (const std::string& name : file.Names()) names[name] = 0;
  return file.Read(Pick(names, place.name, place.path.string()).first);
}

NumberView FromSafetensors(const FilePlace& place, std::unique_ptr<FileContent> content,
                           const ReadMatrixOptions& options) {
  const SafetensorsFile file = ViewSafetensors(content->bytes(), place.path.string());
  const auto& [name, tensor] = Pick(file.tensors, place.name, place.path.string());
  const std::string where = place.path.string() + "#" + name;
  ByteArray bytes = ByteArray::ViewOf({tensor.bytes.data(), tensor.bytes.size()});
  if (tensor.dtype == "U8") {
    if (options.dtype.empty()) {
      throw Error(
          where,
          "holds U8, whose element type is unknown; state the type, as in --dtype float8_e4m3fn");
    }
    const NumberType type = RequireNumberType(options.dtype, where);
    std::vector<std::size_t> shape = tensor.shape;
    if (Bits(type) > 8 || shape.empty() || Bits(type) == 6) {
      throw Error(where, "holds U8, which cannot be codes of " + std::string(Name(type)));
    }
    if (Bits(type) == 4) shape.back() *= 2;
    return Viewed(where, type, shape, std::move(bytes), std::move(content), options);
  }
  const bool coded = tensor.dtype == "U16";
  const std::optional<NumberType> type =
      !coded ? FindNumberType(tensor.dtype)
             : RequireNumberType(options.dtype.empty() ? k16Bits : options.dtype, where);
  if (coded && Bits(*type) != 16) {
    throw Error(where, "holds U16, which cannot be codes of " + std::string(Name(*type)));
  }
  if (!type) {
    throw Error(where, "holds " + tensor.dtype + "; F32, F16, BF16, F8_*, F6_* and F4 can be read");
  }
  if (!options.dtype.empty() && RequireNumberType(options.dtype, where) != *type) {
    throw Error(where, "holds " + tensor.dtype + ", not " + options.dtype);
  }
  return Viewed(where, *type, tensor.shape, std::move(bytes), std::move(content), options);
}

NumberView FromGguf(const FilePlace& place, std::unique_ptr<FileContent> content,
                    const ReadMatrixOptions& options) {
  const GgufFile file = ViewGguf(content->bytes(), place.path.string());
  const auto& [name, tensor] = Pick(file.tensors, place.name, place.path.string());
  const std::string where = place.path.string() + "#" + name;
  const char* dtype = tensor.type == kGgmlF32    ? "float32"
                      : tensor.type == kGgmlF16  ? "float16"
                      : tensor.type == kGgmlBf16 ? "bfloat16"
                                                 : nullptr;
  if (dtype == nullptr)
    throw Error(where,
                "its type is not F32, F16 or BF16 (for quantized tensors use fp4lab dequantize)");
  return Viewed(where, *FindNumberType(dtype), tensor.shape,
                ByteArray::ViewOf({tensor.bytes.data(), tensor.bytes.size()}), std::move(content),
                options);
}

NumberView FromRaw(const FilePlace& place, const ReadMatrixOptions& options) {
  const std::string where = place.path.string();
  if (options.shape.empty() || options.dtype.empty()) {
    throw Error(where,
                "is a raw file: state shape and type, as in --shape 128x256 --dtype bfloat16 "
                "(.npy, .npz, .safetensors and .gguf files state their own)");
  }
  const NumberType type = RequireNumberType(options.dtype, where);
  auto content = std::make_unique<FileContent>(place.path);
  const std::size_t size = content->bytes().size();
  const std::optional<std::size_t> count = Elements(options.shape);
  const auto bits = static_cast<std::size_t>(Bits(type));
  if (!count || size != DivideUp(*count * bits, 8)) {
    throw Error(where, "has " + std::to_string(size) + " bytes; " + ShapeText(options.shape) +
                           " of " + std::string(Name(type)) + " take " +
                           (count ? std::to_string(DivideUp(*count * bits, 8)) : "too many"));
  }
  ByteArray bytes = ByteArray::ViewOf(content->bytes());
  return Viewed(where, type, options.shape, std::move(bytes), std::move(content), options);
}

}  // namespace

FilePlace SplitPlace(std::string_view place) {
  for (std::size_t sign = place.find_first_of("#:"); sign != place.npos;
       sign = place.find_first_of("#:", sign + 1)) {
    const std::filesystem::path path(place.substr(0, sign));
    const std::string ending = LowerCase(path.extension().string());
    if (std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end()) {
      return {path, std::string(place.substr(sign + 1)), ending};
    }
  }
  const std::filesystem::path path(place);
  return {path, "", LowerCase(path.extension().string())};
}

bool HoldsType(std::string_view place) {
  const std::string ending = SplitPlace(place).ending;
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

NumberView ViewMatrix(std::string_view text, const ReadMatrixOptions& options) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(text);
  if (!HoldsType(text)) return FromRaw(place, options);
  auto content = std::make_unique<FileContent>(place.path);
  if (place.ending == ".safetensors") return FromSafetensors(place, std::move(content), options);
  if (place.ending == ".gguf") return FromGguf(place, std::move(content), options);
  NpyArray array = place.ending == ".npz" ? ReadNpz(place, *content)
                                          : ViewNpy(content->bytes(), place.path.string());
  return FromNpy(std::move(array), std::move(content), options);
}

NumberFile ReadMatrix(std::string_view text, const ReadMatrixOptions& options) {
  const IeeeArithmetic ieee;
  NumberView view = ViewMatrix(text, options);
  NumberFile file{.values = {}, .type = view.type, .shape = std::move(view.shape)};
  file.values.rows = view.values.rows;
  file.values.cols = view.values.cols;
  if (view.decoded.empty()) {
    file.values.values.resize(view.values.size());
    DecodeInPieces(view.type, {view.bytes.data(), view.bytes.size()}, *view.content,
                   file.values.values);
  } else {
    file.values.values = std::move(view.decoded);
  }
  return file;
}

ByteGrid ReadByteGrid(std::string_view text) {
  const FilePlace place = SplitPlace(text);
  const FileContent content(place.path);
  const std::string where = place.path.string();
  const auto grid = [&where](std::span<const std::byte> bytes, std::vector<std::size_t> shape) {
    RequireMemory(bytes.size(), where);
    return ByteGrid{{bytes.begin(), bytes.end()}, std::move(shape)};
  };
  if (place.ending == ".npy" || place.ending == ".npz") {
    const NpyArray array =
        place.ending == ".npz" ? ReadNpz(place, content) : ViewNpy(content.bytes(), where);
    return grid(array.bytes, array.shape);
  }
  if (place.ending == ".safetensors") {
    const SafetensorsFile file = ViewSafetensors(content.bytes(), where);
    const SafetensorsTensor& tensor = Pick(file.tensors, place.name, where).second;
    return grid(tensor.bytes, tensor.shape);
  }
  if (place.ending == ".gguf") {
    const GgufFile file = ViewGguf(content.bytes(), where);
    return grid(Pick(file.tensors, place.name, where).second.bytes, {});
  }
  return grid(content.bytes(), {});
}

std::vector<std::byte> ReadBytes(std::string_view text) { return ReadByteGrid(text).bytes; }

void WriteMatrix(std::string_view text, MatrixView<const float> values, NumberType type) {
  const IeeeArithmetic ieee;
  Expects(values.IsRowMajor() || values.size() == 0, "a row-major matrix");
  const FilePlace place = SplitPlace(text);
  const std::string name = place.name.empty() ? "x" : place.name;
  std::vector<std::byte> bytes = EncodeNumbers(type, {values.data, values.size()});
  if (place.ending == ".gguf") throw Error(text, "GGUF is not written from plain numbers");
  if (place.ending == ".safetensors") {
    SafetensorsFile file;
    file.tensors[name] = {std::string(SafetensorsName(type)), {values.rows, values.cols}, bytes};
    return WriteSafetensors(place.path, file);
  }
  if (place.ending != ".npy" && place.ending != ".npz") {
    return WriteFileAtomically(place.path, bytes);
  }
  const bool half = type == NumberType{NumberType::Kind::kFormat, FormatId::kFP16};
  const bool single = type.kind == NumberType::Kind::kFloat32;
  if (Bits(type) < 8) throw Error(text, "NumPy has no packed elements; write .safetensors");
  const NpyArray array{single           ? "<f4"
                       : half           ? "<f2"
                       : Bits(type) > 8 ? "<u2"
                                        : "|u1",
                       {values.rows, values.cols},
                       std::move(bytes),
                       ""};
  if (place.ending == ".npy") return WriteNpy(place.path, array);
  WriteNpz(place.path, {{name, array}});
}

}  // namespace fp4lab
