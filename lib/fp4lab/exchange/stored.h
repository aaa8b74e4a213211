// A quantized matrix as a kernel or a checkpoint stores it: bytes, and the layout to read them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/block/packing.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// The meaning of the stored tensor scale L. C = Dialect::scale_max * largest element: 2688 for
// NVFP4.
enum class TensorScaleConvention : std::uint8_t {
  kNone,        // no number is stored
  kAmax,        // L = amax (Transformer Engine)
  kMultiplier,  // L = fl(amax / C): value = code * scale * L (ModelOpt weight_scale_2, GGUF .scale)
  kDivisor      // L = fl(C / amax): value = code * scale / L (compressed-tensors global scales)
};
struct NamedTensorScale {
  TensorScaleConvention convention;
  std::string_view name;
};
inline constexpr std::array kTensorScaleConventions = {
    NamedTensorScale{TensorScaleConvention::kNone, "none"},
    NamedTensorScale{TensorScaleConvention::kAmax, "amax"},
    NamedTensorScale{TensorScaleConvention::kMultiplier, "multiplier"},
    NamedTensorScale{TensorScaleConvention::kDivisor, "divisor"},
};

constexpr std::string_view Name(TensorScaleConvention convention) {
  return kTensorScaleConventions[static_cast<std::size_t>(convention)].name;
}
constexpr std::optional<TensorScaleConvention> FindTensorScaleConvention(std::string_view name) {
  for (const NamedTensorScale& c : kTensorScaleConventions) {
    if (c.name == name) return c.convention;
  }
  return std::nullopt;
}

// The type in which the scales of blocks are stored: bytes of a scale format, or numbers.
enum class ScaleType : std::uint8_t { kByte, kBF16, kFP32 };
struct NamedScaleType {
  ScaleType type;
  std::string_view name;
  std::size_t bytes;  // of one scale
};
inline constexpr std::array kScaleTypes = {
    NamedScaleType{ScaleType::kByte, "byte", 1},
    NamedScaleType{ScaleType::kBF16, "bf16", 2},
    NamedScaleType{ScaleType::kFP32, "fp32", 4},
};
constexpr const NamedScaleType& Named(ScaleType type) {
  return kScaleTypes[static_cast<std::size_t>(type)];
}
constexpr std::optional<ScaleType> FindScaleType(std::string_view name) {
  for (const NamedScaleType& t : kScaleTypes) {
    if (t.name == name) return t.type;
  }
  return std::nullopt;
}

// A scale as an integer: its byte in `format`, or the bits of its number. All NaNs of a number type
// are one scale, the quiet NaN. A value is rounded to nearest even, of bytes as by Encode.
inline constexpr std::uint32_t kScaleNan = 0x7FC00000u;
constexpr std::uint32_t ScaleCodeOf(ScaleType type, FormatId format, float value) {
  if (type == ScaleType::kByte) return Encode(format, value);
  if (value != value) return type == ScaleType::kFP32 ? kScaleNan : kScaleNan >> 16;
  if (type == ScaleType::kFP32) return std::bit_cast<std::uint32_t>(value);
  return Encode(FormatId::kBF16, value, Rounding::kNearestEven, 0, Overflow::kSpecial);
}
constexpr float ScaleValueOf(ScaleType type, FormatId format, std::uint32_t code) {
  if (type == ScaleType::kByte) return Decode(format, code);
  return std::bit_cast<float>(type == ScaleType::kFP32 ? code : code << 16);
}

// Scale number `place` of an array of stored scales, read and written, little-endian.
constexpr std::uint32_t ScaleCodeAt(std::span<const std::uint8_t> scales, std::size_t place,
                                    ScaleType type) {
  if (type == ScaleType::kByte) return scales[place];
  const std::size_t width = Named(type).bytes;
  std::uint32_t code = 0;
  for (std::size_t i = width; i-- > 0;) code = code << 8 | scales[place * width + i];
  const std::uint32_t magnitude = code << (8 * (4 - width)) & 0x7FFFFFFFu;
  return magnitude > 0x7F800000u ? kScaleNan >> (8 * (4 - width)) : code;
}
constexpr void PutScaleCode(std::uint32_t code, std::size_t place, ScaleType type,
                            std::span<std::uint8_t> scales) {
  const std::size_t width = Named(type).bytes;
  for (std::size_t i = 0; i < width; ++i) {
    scales[place * width + i] = static_cast<std::uint8_t>(code >> 8 * i);
  }
}

struct StorageLayout {
  CodeOrder codes = CodeOrder::kLowFirst;
  ScaleOrder scales = ScaleOrder::kLinear;
  // The bytes are those of the transposed matrix: codes (cols, rows) packed along rows, scales of
  // its blocks transposed as well (Transformer Engine's columnwise data).
  bool transposed = false;
  // The scale of a block of several rows is repeated for each of its rows (Transformer Engine
  // stores 16x16 blocks this way).
  bool expanded_scales = false;
  TensorScaleConvention tensor_scale = TensorScaleConvention::kAmax;
  // kByte under a dialect whose scales are numbers: the dialect's own type (ScaleTypeOf).
  ScaleType scale_type = ScaleType::kByte;
  friend constexpr bool operator==(const StorageLayout&, const StorageLayout&) = default;
};

struct StoredMatrix {
  std::size_t rows = 0, cols = 0;  // of the quantized matrix, in elements, before `transposed`
  // scale: the format of scale bytes; kE4M3 where scales are numbers.
  FormatId element = FormatId::kE2M1, scale = FormatId::kE4M3;
  int block_rows = 1, block_cols = 16;
  StorageLayout layout;
  std::vector<std::uint8_t> codes = {}, scales = {};
  std::vector<float> tensor_scale =
      {};  // in the convention layout.tensor_scale: 1 number, or one a row
  friend bool operator==(const StoredMatrix&, const StoredMatrix&) = default;
};

// The type in which a matrix of `dialect` has its scales in this layout. Of a dialect with scales
// of binary32, kByte stands for binary32, or for BF16 where each scale is a BF16 number.
ScaleType ScaleTypeOf(const Dialect& dialect, const StorageLayout& layout);

// The shape of a matrix of `dialect` in this layout: a StoredMatrix with empty vectors.
StoredMatrix ShapeOf(const Dialect& dialect, std::size_t rows, std::size_t cols,
                     const StorageLayout& layout);

// The sizes that the layout of `shape` needs; the vectors of `shape` are not used. Throws
// Error(where, ...) if the code order cannot hold the elements, or if the matrix is larger than any
// memory.
struct StoredSizes {
  std::size_t code_rows = 0, code_row_bytes = 0;
  std::size_t scale_rows = 0, scale_cols = 0;  // of the stored grid of scales, without padding
  std::size_t codes = 0, scales = 0;           // bytes, padding included
  std::size_t scale_bytes = 1;                 // of one scale
};
StoredSizes SizesOf(const StoredMatrix& shape, std::string_view where);

// "fp32", or the short name of the format of the scale bytes.
std::string_view ScaleText(const StoredMatrix& m);

// Whether the matrix has the elements and blocks of a dialect, and scales that the dialect may
// have: bytes of its format, or numbers.
bool HasFormatsOf(const StoredMatrix& m, const Dialect& dialect);

// The number of codes that CodeOrder::kSplitHalves keeps together: the columns of a block, also in
// a transposed layout; 16 if that number is 0 or odd.
std::size_t SplitGroup(const StoredMatrix& shape);

// The default code order of a format: kLowFirst for 4 bits, else kBytes.
constexpr CodeOrder DefaultCodeOrder(FormatId element) {
  return FormatOf(element).bits == 4 ? CodeOrder::kLowFirst : CodeOrder::kBytes;
}

// C, the constant between amax and the other conventions of the tensor scale: scale_max * largest
// element, or the largest element alone if the tensor is one block.
constexpr float TensorScaleConstant(const StoredMatrix& m, float scale_max) {
  return m.block_rows == 0 ? MaxFinite(m.element) : scale_max * MaxFinite(m.element);
}

// Whether values are wrong without a tensor scale: the dialect has a tensor scale, or, if the
// dialect is unknown (nullptr), the scales are E4M3 or the tensor is one block. A matrix without
// elements needs no such number.
bool NeedsTensorScale(const StoredMatrix& stored, const Dialect* dialect);

// Converts a tensor scale to another convention, with one rounding: amax / C, C / amax or 1 / v.
// To kAmax, the result is the amax nearest to v * C or C / v that converts back to v, if there is
// one within 2 ulp, else the nearest one. Neither convention may be kNone.
float ConvertTensorScale(float value, TensorScaleConvention from, TensorScaleConvention to,
                         float constant);

// The number that a convention has for the amax of a tensor (or row) under a dialect, and the amax
// that has this number, or nearly. They are ConvertTensorScale's, but for a divisor where the
// dialect's S is one that code computes and stores (compressed-tensors', FlashInfer's): it is S,
// which is rounded twice, and 1 for zeros where the dialect says so.
float NumberOfAmax(const Dialect& dialect, float amax, TensorScaleConvention convention);
float AmaxOfNumber(const Dialect& dialect, float number, TensorScaleConvention convention);

// The quantized matrix in a layout. Padding bytes are 0. For a dialect without a tensor scale,
// tensor_scale is empty, whatever the layout's convention. Scales are rounded to the layout's type.
StoredMatrix Store(const Dialect& dialect, const Quantized& quantized, const StorageLayout& layout);

// Store without the codes, which may be missing: scales and the tensor scale only.
StoredMatrix StoreScales(const Dialect& dialect, const Quantized& quantized,
                         const StorageLayout& layout);

// Throws Error(where, ...) for what Load and Convert refuse under every dialect: sizes that do not
// fit the shape (the error states the right ones), bytes that are no codes, and repeated scales
// that differ.
void CheckStored(const StoredMatrix& stored, std::string_view where);

// Reads the bytes as a matrix of `dialect`. Throws Error(where, ...) if formats or blocks are not
// the dialect's, if sizes do not fit the shape (the error states the right size), if a byte is no
// code, if a scale is a number that no byte of the dialect has, and if repeated scales of one tile
// differ. `amax` of the result is empty if no tensor-scale
// number is stored or if the dialect has no tensor scale.
Quantized Load(const Dialect& dialect, const StoredMatrix& stored, std::string_view where);

// The same matrix in another layout: codes and scales move, their values do not change. Tensor
// scales go through ConvertTensorScale, which is not always reversible. Scales keep their type,
// whatever the layout's.
StoredMatrix Convert(const StoredMatrix& stored, const StorageLayout& to, float scale_max,
                     std::string_view where);

// The same matrix with block scales of another type; bytes are of the format `scale`. Throws
// Error(where, ...) for a scale that has no equal in the type.
StoredMatrix WithScaleType(const StoredMatrix& stored, ScaleType type, FormatId scale,
                           std::string_view where);

// The values, computed as the code bases of each convention do; v is the element, s its block
// scale, m or d the stored number:
//   kAmax        fl(v * fl(fl(s * amax) * fl(1/C)))   (Transformer Engine)
//   kMultiplier  fl(v * fl(s * m))                    (ModelOpt)
//   kDivisor     fl(v * fl(s / d))                    (compressed-tensors)
//   kNone        v * s                                (also if no number is stored)
// If the tensor is one block: v * fl(1/S) with S = fl(C / amax), v * m, v * fl(1/d), v.
Matrix<float> StoredValues(const StoredMatrix& stored, float scale_max, std::string_view where);

}  // namespace fp4lab
