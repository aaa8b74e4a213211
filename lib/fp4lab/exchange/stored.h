// A quantized matrix as a kernel or a checkpoint stores it: bytes, and how they are to be read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fp4lab/block/packing.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/dialect/quantize.h"

namespace fp4lab {

// What the stored level-2 number is. C = Dialect::scale_max * largest element: 2688 for NVFP4.
enum class LevelTwoConvention : std::uint8_t {
  kNone,        // nothing is stored
  kAmax,        // amax itself (Transformer Engine)
  kMultiplier,  // fl(amax / C): values are code * scale * it (ModelOpt weight_scale_2, GGUF .scale)
  kDivisor      // fl(C / amax): values are code * scale / it (compressed-tensors global scales)
};
struct NamedLevelTwo {
  LevelTwoConvention convention;
  std::string_view name;
};
inline constexpr std::array kLevelTwoConventions = {
    NamedLevelTwo{LevelTwoConvention::kNone, "none"},
    NamedLevelTwo{LevelTwoConvention::kAmax, "amax"},
    NamedLevelTwo{LevelTwoConvention::kMultiplier, "multiplier"},
    NamedLevelTwo{LevelTwoConvention::kDivisor, "divisor"},
};

constexpr std::string_view Name(LevelTwoConvention convention) {
  return kLevelTwoConventions[static_cast<std::size_t>(convention)].name;
}
constexpr std::optional<LevelTwoConvention> FindLevelTwoConvention(std::string_view name) {
  for (const NamedLevelTwo& c : kLevelTwoConventions) {
    if (c.name == name) return c.convention;
  }
  return std::nullopt;
}

struct StorageLayout {
  CodeOrder codes = CodeOrder::kLowFirst;
  ScaleOrder scales = ScaleOrder::kLinear;
  // The bytes are those of the transposed matrix: codes (cols, rows) packed along rows, scales of
  // its blocks transposed as well (Transformer Engine's columnwise data).
  bool transposed = false;
  // Blocks of several rows: the scales of a tile are repeated for each of its rows (TE stores 16x16
  // blocks this way).
  bool expanded_scales = false;
  LevelTwoConvention level_two = LevelTwoConvention::kAmax;
  friend constexpr bool operator==(const StorageLayout&, const StorageLayout&) = default;
};

struct StoredMatrix {
  std::size_t rows = 0, cols = 0;  // of the quantized matrix, in elements, before `transposed`
  FormatId element = FormatId::kE2M1, scale = FormatId::kE4M3;
  int block_rows = 1, block_cols = 16;
  StorageLayout layout;
  std::vector<std::uint8_t> codes = {}, scales = {};
  std::vector<float> level_two = {};  // as layout.level_two says: 1 value, or one a row
  friend bool operator==(const StoredMatrix&, const StoredMatrix&) = default;
};

// A matrix that `dialect` wrote in this layout, as a shape: its bytes are still to come.
StoredMatrix ShapeOf(const Dialect& dialect, std::size_t rows, std::size_t cols,
                     const StorageLayout& layout);

// What the layout of `shape` (its sizes, formats, blocks and layout; the vectors do not count)
// needs. Error(where, ...) where the code order cannot hold the elements, or sizes beyond all
// memory.
struct StoredSizes {
  std::size_t code_rows = 0, code_row_bytes = 0;
  std::size_t scale_rows = 0, scale_cols = 0;  // of the stored matrix of scales, without padding
  std::size_t codes = 0, scales = 0;           // bytes, padding included
};
StoredSizes SizesOf(const StoredMatrix& shape, std::string_view where);

// Codes that CodeOrder::kSplitHalves keeps together: a block, in whatever direction the codes lie.
std::size_t SplitGroup(const StoredMatrix& shape);

// How codes of a format lie where nothing else is said: kLowFirst, kBytes for more than 4 bits.
constexpr CodeOrder DefaultCodeOrder(FormatId element) {
  return FormatOf(element).bits == 4 ? CodeOrder::kLowFirst : CodeOrder::kBytes;
}

// C, the constant between amax and the other conventions of level 2: scale_max * largest element,
// the largest element alone where the tensor is one block.
constexpr float LevelTwoConstant(const StoredMatrix& m, float scale_max) {
  return m.block_rows == 0 ? MaxFinite(m.element) : scale_max * MaxFinite(m.element);
}

// Whether values are wrong without a number of level 2: the dialect has it, or, where the dialect
// is unknown (nullptr), scales are E4M3 or the tensor is one block. A matrix without elements needs
// none.
bool NeedsLevelTwo(const StoredMatrix& stored, const Dialect* dialect);

// A level-2 number in another convention, each in one rounding: amax / C, C / amax, 1 / v. Towards
// kAmax it is the amax next to v * C or C / v that gives v back, where one does. Neither side is
// kNone.
float ConvertLevelTwo(float value, LevelTwoConvention from, LevelTwoConvention to, float constant);

// The quantized matrix in a layout. Padding bytes are 0. Where the dialect has no level 2 nothing
// is stored for it, whatever the layout's convention.
StoredMatrix Store(const Dialect& dialect, const Quantized& quantized, const StorageLayout& layout);

// The same without the codes, which need not be there: scales and level 2.
StoredMatrix StoreScales(const Dialect& dialect, const Quantized& quantized,
                         const StorageLayout& layout);

// Error(where, ...) for what Load and Convert refuse whatever the dialect is: sizes that do not fit
// the shape, with those that would, bytes that are no codes, repeated scales that differ.
void CheckStored(const StoredMatrix& stored, std::string_view where);

// What the bytes say, read as `dialect`. Throws Error(where, ...) where sizes do not fit the shape,
// with the size that would, where a byte is no code, and where repeated scales of one tile differ.
// Level 2: `amax` is empty where none is stored, and where the dialect has none.
Quantized Load(const Dialect& dialect, const StoredMatrix& stored, std::string_view where);

// The same matrix in another layout: codes and scales move, no value changes. Level 2 goes through
// ConvertLevelTwo, which need not be reversible.
StoredMatrix Convert(const StoredMatrix& stored, const StorageLayout& to, float scale_max,
                     std::string_view where);

// The values as those who use the convention compute them, v the element and s the scale:
//   kAmax        fl(v * fl(fl(s * amax) * fl(1/C)))   (Transformer Engine)
//   kMultiplier  fl(v * fl(s * m))                    (ModelOpt)
//   kDivisor     fl(v * fl(s / d))                    (compressed-tensors)
//   kNone, or no level 2 stored    v * s
// Where the tensor is one block: v * fl(1/S) with S = fl(C / amax), v * m, v * fl(1/d).
Matrix<float> StoredValues(const StoredMatrix& stored, float scale_max, std::string_view where);

}  // namespace fp4lab
