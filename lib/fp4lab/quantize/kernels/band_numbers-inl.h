// The numbers of a band's blocks: their maxima, then scale bytes, scales and factors.
#if defined(FP4LAB_QUANTIZE_BAND_NUMBERS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_BAND_NUMBERS_INL_H_
#undef FP4LAB_QUANTIZE_BAND_NUMBERS_INL_H_
#else
#define FP4LAB_QUANTIZE_BAND_NUMBERS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/plan.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/diagnostics/statistic.h"
#include "fp4lab/quantize/kernels/quantize_job.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/scales-inl.h"
#include "fp4lab/quantize/kernels/block_stage-inl.h"
#include "fp4lab/quantize/kernels/row_amax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The amax of columns `first` to `end` of a band, as MaxMagnitudeOf has it.
inline float AmaxOfColumns(const Tile& x, std::size_t first, std::size_t end, bool keeps_nan) {
  float amax = 0.0f;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float row = AmaxOfRow(x.data + r * x.stride + first, end - first, keeps_nan);
    if (row != row) return row;
    amax = std::max(amax, row);
  }
  return amax;
}

// Finds the statistic b (amax) of each block of a band; a NaN is ignored or makes the amax NaN, as
// the dialect says.
inline void FindMaxima(const DialectJob& job, const Tile& x, std::size_t blocks,
                       DialectBuffers* b) {
  const DI di;
  const std::size_t width = job.grid.block_cols;
  std::size_t done = 0;
  if (width % hn::Lanes(di) == 0) {
    done = FullBlockMaxes(x, width, b->maxima.data());
  } else {
    const std::size_t columns = FullColumnMaxes(x, b->maxima.data());
    for (; (done + 1) * width <= columns; ++done) {
      std::int32_t max = 0;
      for (std::size_t c = 0; c < width; ++c) max = std::max(max, b->maxima[done * width + c]);
      b->maxima[done] = max;
    }
  }
  if (job.dialect.statistic != BlockStatistic::kAmax) {
    for (std::size_t j = 0; j < blocks; ++j) {
      const std::size_t col = j * job.grid.block_cols;
      const std::size_t cols = std::min(job.grid.block_cols, x.cols - col);
      b->amax[j] = StatisticOf(job.dialect, {x.data + col, x.rows, cols, x.stride, 1});
    }
    return;
  }
  const bool keeps_nan = job.dialect.nan != NanRule::kElement;
  std::size_t j = 0;
  for (; j + hn::Lanes(di) <= done; j += hn::Lanes(di)) {
    const VI bits = hn::LoadU(di, b->maxima.data() + j);
    if (!hn::AllFalse(di, hn::Gt(bits, hn::Set(di, kInfBits)))) break;
    hn::StoreU(Float(bits), DF(), b->amax.data() + j);
  }
  for (; j < blocks; ++j) {
    const std::size_t col = j * width, end = std::min(col + width, x.cols);
    if (j < done && b->maxima[j] <= kInfBits) {
      b->amax[j] = std::bit_cast<float>(b->maxima[j]);
    } else {
      b->amax[j] = AmaxOfColumns(x, col, end, keeps_nan);
    }
  }
}

// Whether blocks are whole vectors; otherwise block numbers are stored per column
// (SpreadOverColumns).
inline bool HasWholeVectors(const DialectJob& job) {
  return job.grid.block_cols % hn::Lanes(DF()) == 0;
}

// Copies the numbers of blocks to each of their columns.
inline void SpreadOverColumns(const DialectJob& job, std::size_t cols, BandNumbers* c) {
  for (std::size_t i = 0; i < cols; ++i) {
    c->column_factor[i] = c->factor[i / job.grid.block_cols];
    c->column_scale[i] = c->scale[i / job.grid.block_cols];
  }
}

// Finds the numbers of a band's blocks for `raise` times t.
inline void FindBandNumbers(const DialectJob& job, const TensorScale& tensor, float raise,
                            std::size_t blocks, std::size_t cols, DialectBuffers* b,
                            BandNumbers* c) {
  FindNumbers(
      job.dialect, tensor, job.scale, raise, blocks,
      {b->amax.data(), b->scale_before.data(), c->scale.data(), c->factor.data(), c->byte.data()});
  if (!HasWholeVectors(job)) SpreadOverColumns(job, cols, c);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_BAND_NUMBERS_INL_H_
