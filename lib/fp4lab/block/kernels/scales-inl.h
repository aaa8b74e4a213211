// The block scales of one unit: amaxes of its blocks, then the scale rule in lanes.
#if defined(FP4LAB_BLOCK_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_SCALES_INL_H_
#undef FP4LAB_BLOCK_SCALES_INL_H_
#else
#define FP4LAB_BLOCK_SCALES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One entry per block column of the unit, with room for one more vector.
struct UnitScales {
  alignas(64) std::int32_t amax[kMaxChunk + 64];  // bits of the magnitude
  alignas(64) float multiplier[kMaxChunk + 64];
  alignas(64) float value[kMaxChunk + 64];
  alignas(64) std::int32_t byte[kMaxChunk + 64];
};

// A unit's elements: `rows` rows, `stride` apart, of `cols` columns.
struct Tile {
  const float* data;
  std::size_t stride, rows, cols;
};

// The elements of a unit of x: in place, or in `buffer` if the plan has a stage.
HWY_INLINE Tile TileOf(const QuantizePlan& plan, const MatrixView<const float>& x, const Unit& unit,
                       StageBuffer* buffer) {
  const float* from = x.data + unit.row * x.row_stride + unit.col;
  if (HWY_LIKELY(plan.stage.fill == nullptr)) return {from, x.row_stride, unit.rows, unit.cols};
  const std::size_t stride = RoundUp(unit.cols, 16);  // whole vectors
  plan.stage.fill(plan.stage.context, {from, unit.rows, unit.cols, x.row_stride, 1},
                  plan.transposed, {buffer->data, unit.rows, unit.cols, stride, 1});
  return {buffer->data, stride, unit.rows, unit.cols};
}

// The largest magnitude bits of each of a vector's columns.
HWY_INLINE VI ColumnMax(const Tile& x, std::size_t col) {
  VI max = AbsBits(hn::LoadU(DF(), x.data + col));
  for (std::size_t r = 1; r < x.rows; ++r) {
    max = hn::Max(max, AbsBits(hn::LoadU(DF(), x.data + r * x.stride + col)));
  }
  return max;
}

// The bits of the largest magnitude of columns [col, end), NaN ignored. This scalar definition
// serves partial blocks and blocks that hold a NaN.
HWY_INLINE std::int32_t PlainMax(const Tile& x, std::size_t col, std::size_t end) {
  float amax = 0.0f;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = col; c < end; ++c) {
      const float magnitude = std::fabs(x.data[r * x.stride + c]);
      if (magnitude > amax) amax = magnitude;
    }
  }
  return std::bit_cast<std::int32_t>(amax);
}

// The maximum per lane over the vectors of one block.
HWY_INLINE VI BlockMax(const Tile& x, std::size_t col, std::size_t block_cols) {
  VI max = ColumnMax(x, col);
  for (std::size_t c = hn::Lanes(DF()); c < block_cols; c += hn::Lanes(DF())) {
    max = hn::Max(max, ColumnMax(x, col + c));
  }
  return max;
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE VI VectorOfBlockMaxes(const Tile& x, std::size_t col, std::size_t block_cols) {
  return BlockMax(x, col, block_cols);
}

#else

// The maxima of four blocks: lane i of every 128-bit part is that part's maximum of block i.
HWY_INLINE VI FourBlockMaxes(const Tile& x, std::size_t col, std::size_t block_cols) {
  const DI d;
  const hn::Repartition<std::int64_t, DI> d64;
  const VI a = BlockMax(x, col, block_cols);
  const VI b = BlockMax(x, col + block_cols, block_cols);
  const VI c = BlockMax(x, col + 2 * block_cols, block_cols);
  const VI e = BlockMax(x, col + 3 * block_cols, block_cols);
  const auto ab =
      hn::BitCast(d64, hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce =
      hn::BitCast(d64, hn::Max(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  return hn::Max(hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)));
}

#if HWY_TARGET <= HWY_AVX3
HWY_INLINE VI VectorOfBlockMaxes(const Tile& x, std::size_t col, std::size_t block_cols) {
  const DI d;
  const VI a = FourBlockMaxes(x, col, block_cols);
  const VI b = FourBlockMaxes(x, col + 4 * block_cols, block_cols);
  const VI c = FourBlockMaxes(x, col + 8 * block_cols, block_cols);
  const VI e = FourBlockMaxes(x, col + 12 * block_cols, block_cols);
  const VI ac = hn::Max(hn::ConcatLowerLower(d, c, a), hn::ConcatUpperUpper(d, c, a));
  const VI be = hn::Max(hn::ConcatLowerLower(d, e, b), hn::ConcatUpperUpper(d, e, b));
  return hn::Max(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(be), ac),
                 hn::OddEvenBlocks(be, hn::SwapAdjacentBlocks(ac)));
}
#elif HWY_TARGET <= HWY_AVX2
HWY_INLINE VI VectorOfBlockMaxes(const Tile& x, std::size_t col, std::size_t block_cols) {
  const DI d;
  const VI a = FourBlockMaxes(x, col, block_cols);
  const VI b = FourBlockMaxes(x, col + 4 * block_cols, block_cols);
  return hn::Max(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
}
#else
HWY_INLINE VI VectorOfBlockMaxes(const Tile& x, std::size_t col, std::size_t block_cols) {
  return FourBlockMaxes(x, col, block_cols);
}
#endif

#endif

// Finds the amaxes of the whole blocks. Returns their number, or 0 if a block is not a whole number
// of vectors.
HWY_INLINE std::size_t FullBlockMaxes(const Tile& x, std::size_t block_cols, std::int32_t* amax) {
  const DI d;
  const std::size_t lanes = hn::Lanes(d);
  if (block_cols % lanes != 0) return 0;
  const std::size_t blocks = x.cols / block_cols;
  std::size_t b = 0;
  for (; b + lanes <= blocks; b += lanes) {
    hn::StoreU(VectorOfBlockMaxes(x, b * block_cols, block_cols), d, amax + b);
  }
  for (; b < blocks; ++b) {
    amax[b] = hn::GetLane(hn::MaxOfLanes(d, BlockMax(x, b * block_cols, block_cols)));
  }
  return blocks;
}

// Finds one amax per column, whole vectors only; returns the number of columns done.
HWY_INLINE std::size_t FullColumnMaxes(const Tile& x, std::int32_t* amax) {
  const std::size_t lanes = hn::Lanes(DI());
  std::size_t c = 0;
  for (; c + lanes <= x.cols; c += lanes) hn::StoreU(ColumnMax(x, c), DI(), amax + c);
  return c;
}

// Fills `s` for the unit's blocks; returns their number.
HWY_INLINE std::size_t FindScales(const ScaleConstants& k, const Tile& x, std::size_t block_cols,
                                  UnitScales* s) {
  const DF d;
  const DI di;
  const std::size_t blocks = DivideUp(x.cols, block_cols);
  hn::StoreU(hn::Zero(di), di, s->amax + blocks);
  if (k.rule == BlockScale::kOneBlock) {
    std::fill_n(s->amax, blocks, 0);
  } else {
    const std::size_t done =
        block_cols == 1 ? FullColumnMaxes(x, s->amax) : FullBlockMaxes(x, block_cols, s->amax);
    for (std::size_t b = done; b < blocks; ++b) {
      s->amax[b] = PlainMax(x, b * block_cols, std::min((b + 1) * block_cols, x.cols));
    }
  }
  for (std::size_t b = 0; b < blocks; b += hn::Lanes(d)) {
    VI amax = hn::LoadU(di, s->amax + b);
    if (!hn::AllFalse(di, hn::Gt(amax, hn::Set(di, kInfBits)))) {
      for (std::size_t i = b; i < std::min(b + hn::Lanes(d), blocks); ++i) {
        s->amax[i] = PlainMax(x, i * block_cols, std::min((i + 1) * block_cols, x.cols));
      }
      amax = hn::LoadU(di, s->amax + b);
    }
    const BlockScales scales = ScalesOf(k, Float(amax));
    hn::StoreU(scales.multiplier, d, s->multiplier + b);
    hn::StoreU(scales.value, d, s->value + b);
    hn::StoreU(scales.byte, di, s->byte + b);
  }
  return blocks;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BLOCK_SCALES_INL_H_
