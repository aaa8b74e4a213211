// Orders of block scales in memory: linear, or in the tiles that matrix instructions read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/base/divide_up.h"

namespace fp4lab {

// An arrangement of a (rows, cols) matrix of scale bytes, padded to whole tiles of tile_rows x 4;
// the swizzled ones hold tile after tile, in row-major order with the columns fastest.
enum class ScaleOrder : std::uint8_t {
  kLinear,  // row-major, no padding
  k128x4,   // cuBLASLt VEC16_UE4M3 and VEC32_UE8M0, tcgen05; torch's SWIZZLE_32_4_4: a tile of
            // 512 bytes holds row r, column c at (r % 32) * 16 + (r % 128) / 32 * 4 + c % 4
  k8x4,     // TensorRT-LLM's and FlashInfer's for few rows: (r % 8) * 4 + c % 4
  kPadded   // row-major, rows padded to 128 and columns to 4 (Transformer Engine's compact form)
};

struct NamedScaleOrder {
  ScaleOrder order;
  std::string_view name;
  std::size_t tile_rows, tile_cols;
};
inline constexpr std::array kScaleOrders = {
    NamedScaleOrder{ScaleOrder::kLinear, "linear", 1, 1},
    NamedScaleOrder{ScaleOrder::k128x4, "128x4", 128, 4},
    NamedScaleOrder{ScaleOrder::k8x4, "8x4", 8, 4},
    NamedScaleOrder{ScaleOrder::kPadded, "padded", 128, 4},
};

constexpr const NamedScaleOrder& Named(ScaleOrder order) {
  return kScaleOrders[static_cast<std::size_t>(order)];
}
constexpr std::optional<ScaleOrder> FindScaleOrder(std::string_view name) {
  for (const NamedScaleOrder& o : kScaleOrders) {
    if (o.name == name) return o.order;
  }
  return std::nullopt;
}

// Bytes that the arrangement takes, padding included.
constexpr std::size_t ScaleBytes(ScaleOrder order, std::size_t rows, std::size_t cols) {
  const NamedScaleOrder& o = Named(order);
  return RoundUp(rows, o.tile_rows) * RoundUp(cols, o.tile_cols);
}

// The byte offset of scale (r, c) in k128x4, for r and c of any unsigned type.
template <class T>
constexpr std::size_t Offset128x4(T r, T c, T cols) {
  const std::size_t tile = static_cast<std::size_t>(r / 128) * DivideUp(cols, 4) + c / 4;
  return tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

// The byte offset of scale (r, c) of a matrix of scales with `cols` columns.
constexpr std::size_t ScaleOffset(ScaleOrder order, std::size_t r, std::size_t c,
                                  std::size_t cols) {
  const NamedScaleOrder& o = Named(order);
  const std::size_t tiles = DivideUp(cols, o.tile_cols);
  const std::size_t tile =
      (r / o.tile_rows * tiles + c / o.tile_cols) * (o.tile_rows * o.tile_cols);
  switch (order) {
    case ScaleOrder::kLinear:
      return tile;
    case ScaleOrder::k128x4:
      return Offset128x4(r, c, cols);
    case ScaleOrder::k8x4:
      return tile + r % 8 * 4 + c % 4;
    case ScaleOrder::kPadded:
      return r * (tiles * o.tile_cols) + c;
  }
  return tile;
}

// The same scales in another order; padding bytes of the result are `padding`.
std::vector<std::uint8_t> ReorderScales(std::span<const std::uint8_t> scales, ScaleOrder from,
                                        ScaleOrder to, std::size_t rows, std::size_t cols,
                                        std::uint8_t padding = 0);

}  // namespace fp4lab
