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
  std::vector<std::uint8_t> codes, scales;
  std::vector<float> level_two;  // as layout.level_two says: 1 value, or one a row
  friend bool operator==(const StoredMatrix&, const StoredMatrix&) = default;
};

// The quantized matrix in a layout. Padding bytes are 0.
StoredMatrix Store(const Dialect& dialect, const Quantized& quantized, const StorageLayout& layout);

// What the bytes say, read as `dialect`. Throws Error(where, ...) where sizes do not fit the shape,
// with the size that would.
Quantized Load(const Dialect& dialect, const StoredMatrix& stored, std::string_view where);

// The same matrix in another layout: codes and scales move, no value changes. Level 2 is converted
// between conventions with one rounding (fl(C / v), fl(v * C), ...), which need not be reversible.
StoredMatrix Convert(const StoredMatrix& stored, const StorageLayout& to, float scale_max,
                     std::string_view where);

}  // namespace fp4lab
