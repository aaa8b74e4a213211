// Block formats as data: which element, which scale, which block, which rule finds the scale.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fp4lab/formats/format.h"

namespace fp4lab {

// How a block's (or tensor's) scale follows from its amax. The formulas, in their exact operation
// order, are the functions of block/scale_rules.h.
enum class ScaleRule : std::uint8_t {
  kNvfp4,  // E4M3 block scale under an FP32 tensor scale, as Transformer Engine's kernels
  kFloor,  // E8M0, OCP MX v1.0: floor(log2 amax) - emax
  kCeil,   // E8M0: the exponent rounded up
  kRceil,  // E8M0: 2^ceil(log2(amax / max)), by cvt.rp of amax * (1/max)
  kEven,   // E8M0: amax's mantissa rounded to the element's precision first, then floor
  kTensor  // one FP32 scale for the tensor, max / amax (TE Float8CurrentScaling)
};

// Blocks lie along a row (the reduction axis of the GEMM): 1x16, 16x16, 1x32, 32x32. kTensor has no
// blocks (block_rows = block_cols = 0) and no scale format.
struct BlockFormat {
  FormatId element = FormatId::kE2M1;
  FormatId scale = FormatId::kE4M3;
  int block_rows = 1, block_cols = 16;
  ScaleRule rule = ScaleRule::kNvfp4;
  friend constexpr bool operator==(const BlockFormat&, const BlockFormat&) = default;
};

struct NamedBlockFormat {
  std::string_view name;
  BlockFormat format;
};

namespace internal {
constexpr BlockFormat Mx(FormatId element, ScaleRule rule, int rows) {
  return {element, FormatId::kE8M0, rows, 32, rule};
}
}  // namespace internal

// ".2d" = square blocks, one scale for a tile and its transpose.
inline constexpr std::array kBlockFormats = {
    NamedBlockFormat{"nvfp4", {FormatId::kE2M1, FormatId::kE4M3, 1, 16, ScaleRule::kNvfp4}},
    NamedBlockFormat{"nvfp4.2d", {FormatId::kE2M1, FormatId::kE4M3, 16, 16, ScaleRule::kNvfp4}},
    NamedBlockFormat{"mxfp4.floor", internal::Mx(FormatId::kE2M1, ScaleRule::kFloor, 1)},
    NamedBlockFormat{"mxfp4.ceil", internal::Mx(FormatId::kE2M1, ScaleRule::kCeil, 1)},
    NamedBlockFormat{"mxfp4.rceil", internal::Mx(FormatId::kE2M1, ScaleRule::kRceil, 1)},
    NamedBlockFormat{"mxfp4.even", internal::Mx(FormatId::kE2M1, ScaleRule::kEven, 1)},
    NamedBlockFormat{"mxfp4.floor.2d", internal::Mx(FormatId::kE2M1, ScaleRule::kFloor, 32)},
    NamedBlockFormat{"mxfp4.ceil.2d", internal::Mx(FormatId::kE2M1, ScaleRule::kCeil, 32)},
    NamedBlockFormat{"mxfp4.rceil.2d", internal::Mx(FormatId::kE2M1, ScaleRule::kRceil, 32)},
    NamedBlockFormat{"mxfp4.even.2d", internal::Mx(FormatId::kE2M1, ScaleRule::kEven, 32)},
    NamedBlockFormat{"mxfp6_e2m3.floor", internal::Mx(FormatId::kE2M3, ScaleRule::kFloor, 1)},
    NamedBlockFormat{"mxfp6_e2m3.ceil", internal::Mx(FormatId::kE2M3, ScaleRule::kCeil, 1)},
    NamedBlockFormat{"mxfp6_e2m3.rceil", internal::Mx(FormatId::kE2M3, ScaleRule::kRceil, 1)},
    NamedBlockFormat{"mxfp6_e2m3.even", internal::Mx(FormatId::kE2M3, ScaleRule::kEven, 1)},
    NamedBlockFormat{"mxfp6_e3m2.floor", internal::Mx(FormatId::kE3M2, ScaleRule::kFloor, 1)},
    NamedBlockFormat{"mxfp6_e3m2.ceil", internal::Mx(FormatId::kE3M2, ScaleRule::kCeil, 1)},
    NamedBlockFormat{"mxfp6_e3m2.rceil", internal::Mx(FormatId::kE3M2, ScaleRule::kRceil, 1)},
    NamedBlockFormat{"mxfp6_e3m2.even", internal::Mx(FormatId::kE3M2, ScaleRule::kEven, 1)},
    NamedBlockFormat{"mxfp8_e4m3.floor", internal::Mx(FormatId::kE4M3, ScaleRule::kFloor, 1)},
    NamedBlockFormat{"mxfp8_e4m3.ceil", internal::Mx(FormatId::kE4M3, ScaleRule::kCeil, 1)},
    NamedBlockFormat{"mxfp8_e4m3.rceil", internal::Mx(FormatId::kE4M3, ScaleRule::kRceil, 1)},
    NamedBlockFormat{"mxfp8_e4m3.even", internal::Mx(FormatId::kE4M3, ScaleRule::kEven, 1)},
    NamedBlockFormat{"mxfp8_e5m2.floor", internal::Mx(FormatId::kE5M2, ScaleRule::kFloor, 1)},
    NamedBlockFormat{"mxfp8_e5m2.ceil", internal::Mx(FormatId::kE5M2, ScaleRule::kCeil, 1)},
    NamedBlockFormat{"mxfp8_e5m2.rceil", internal::Mx(FormatId::kE5M2, ScaleRule::kRceil, 1)},
    NamedBlockFormat{"mxfp8_e5m2.even", internal::Mx(FormatId::kE5M2, ScaleRule::kEven, 1)},
    NamedBlockFormat{"fp8_e4m3", {FormatId::kE4M3, FormatId::kE8M0, 0, 0, ScaleRule::kTensor}},
    NamedBlockFormat{"fp8_e5m2", {FormatId::kE5M2, FormatId::kE8M0, 0, 0, ScaleRule::kTensor}},
};

constexpr std::optional<BlockFormat> FindBlockFormat(std::string_view name) {
  for (const NamedBlockFormat& f : kBlockFormats) {
    if (f.name == name) return f.format;
  }
  return std::nullopt;
}

// True where the scale needs the tensor's amax.
constexpr bool HasTensorScale(const BlockFormat& f) {
  return f.rule == ScaleRule::kNvfp4 || f.rule == ScaleRule::kTensor;
}

}  // namespace fp4lab
