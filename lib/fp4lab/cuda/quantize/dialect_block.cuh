// One block of a quantized matrix in the kernels that take any dialect: its place, its statistic
// and its numbers. kLanes threads work on a block: one thread, or half a warp or a whole warp, in
// which each lane has every kLanes-th row.
#pragma once

#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/device/side.cuh"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/diagnostics/statistic.h"

namespace fp4lab::cuda {

// The mask of the lanes that work on the calling thread's block.
template <unsigned kLanes>
__device__ unsigned LanesOfBlock() {
  static_assert(kLanes == 16 || kLanes == 32);
  return kLanes == 32 ? 0xFFFFFFFFu : 0xFFFFu << (threadIdx.x & 16u);
}

// The blocks of a matrix as a grid. If the dialect has no blocks (one scale for the tensor), the
// grid cells are pieces of a row of 16 elements, and stores_scales is false.
struct DialectGrid {
  std::size_t block_rows, block_cols, rows, cols;
  bool stores_scales;
};

__host__ __device__ inline DialectGrid GridOf(const Dialect& d, std::size_t rows,
                                              std::size_t cols) {
  DialectGrid g{};
  g.stores_scales = d.block_rows > 0;
  g.block_rows = g.stores_scales ? static_cast<std::size_t>(d.block_rows) : 1;
  g.block_cols = g.stores_scales ? static_cast<std::size_t>(d.block_cols) : 16;
  g.rows = DivideUp(rows, g.block_rows);
  g.cols = DivideUp(cols, g.block_cols);
  return g;
}

struct DialectBlock {
  std::size_t i, j;    // row and column in the grid
  std::size_t r0, c0;  // row and column of the first element
  std::size_t rows, cols;
};

// Block number `id`; blocks with consecutive numbers are neighbours in memory.
__device__ inline DialectBlock BlockAt(const DialectGrid& grid, const SideJob& job,
                                       std::size_t id) {
  DialectBlock block;
  block.i = job.transposed ? id % grid.rows : id / grid.cols;
  block.j = job.transposed ? id / grid.rows : id % grid.cols;
  block.r0 = block.i * grid.block_rows;
  block.c0 = block.j * grid.block_cols;
  block.rows = min(grid.block_rows, job.rows - block.r0);
  block.cols = min(grid.block_cols, job.cols - block.c0);
  return block;
}

__device__ inline TensorScale TensorScaleOfBlock(const SideJob& job, const Dialect& d,
                                                 const DialectBlock& block) {
  return HasTensorScale(d) ? TensorScaleOf(d, job.side.amax[d.row_scaled ? block.r0 : 0])
                           : TensorScale{};
}

template <unsigned kLanes>
__device__ float BlockAmax(const SideJob& job, const DialectBlock& block, unsigned lane,
                           bool keeps_nan) {
  float amax = 0.0f;
  bool nan = false;
  for (std::size_t r = lane; r < block.rows; r += kLanes) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      const float magnitude = Magnitude(job.Element(block.r0 + r, block.c0 + c));
      if (magnitude > amax) amax = magnitude;
      nan = nan || magnitude != magnitude;
    }
  }
  if constexpr (kLanes > 1) {
    const unsigned lanes = LanesOfBlock<kLanes>();
    amax = __uint_as_float(__reduce_max_sync(lanes, __float_as_uint(amax)));
    nan = __any_sync(lanes, nan);
  }
  return nan && keeps_nan ? __uint_as_float(0x7FC00000u) : amax;
}

// QuestStatistic (quantize/diagnostics/statistic.h) of the block. With several lanes, each lane
// adds up the elements of one virtual lane of base/simd/reduce.h.
template <unsigned kLanes>
__device__ __noinline__ float QuestOfBlock(const SideJob& job, const DialectBlock& block,
                                           unsigned lane) {
  const std::size_t count = block.rows * block.cols;
  const auto at = [&](std::size_t i) {
    return job.Element(block.r0 + i / block.cols, block.c0 + i % block.cols);
  };
  if constexpr (kLanes == 1) {
    OrderedSum sum, squares;
    for (std::size_t i = 0; i < count; ++i) {
      const float x = at(i);
      sum.Add(x);
      squares.Add(x * x);
    }
    return QuestOfSigma(__fsqrt_rn(VarianceOf(sum.Total(), squares.Total(), count)));
  } else {
    constexpr unsigned kVirtual = kReductionLanes;  // in a whole warp both halves compute the same
    float sum = 0.0f, squares = 0.0f;
    for (std::size_t i = lane % kVirtual; i < count; i += kVirtual) {
      const float x = at(i);
      sum = sum + x;
      squares = squares + x * x;
    }
    const unsigned lanes = LanesOfBlock<kLanes>();
    for (unsigned width = kVirtual / 2; width > 0; width /= 2) {
      sum = sum + __shfl_down_sync(lanes, sum, width, kVirtual);
      squares = squares + __shfl_down_sync(lanes, squares, width, kVirtual);
    }
    const float b = QuestOfSigma(__fsqrt_rn(VarianceOf(sum, squares, count)));
    return __shfl_sync(lanes, b, 0, kVirtual);
  }
}

// The block's statistic b. kQuest: whether the dialect may have QuEST's statistic; a kernel that
// contains this call is a tenth slower.
template <unsigned kLanes, bool kQuest>
__device__ float StatisticOfBlock(const SideJob& job, const Dialect& d, const DialectBlock& block,
                                  unsigned lane) {
  if constexpr (kQuest) {
    if (d.statistic == BlockStatistic::kQuest) return QuestOfBlock<kLanes>(job, block, lane);
  }
  return BlockAmax<kLanes>(job, block, lane, d.nan != NanRule::kElement);
}

// The error of row r of the block, its elements' errors combined in column order; 0 for rows that
// the block does not have.
__device__ inline float LineError(const SideJob& job, const Dialect& d, const BlockNumbers& n,
                                  const TensorScale& l, const DialectBlock& block, std::size_t r) {
  float line = 0.0f;
  for (std::size_t c = 0; r < block.rows && c < block.cols; ++c) {
    const float x = job.Element(block.r0 + r, block.c0 + c);
    line = CombinedError(d, line, AdaptiveElementError(d, n, l, x));
  }
  return line;
}

// AdaptiveBlockError (dialect/adaptive.h) of the block under the numbers n. With several lanes,
// each lane computes one row: a block has no more rows than lanes.
template <unsigned kLanes>
__device__ float ErrorUnder(const SideJob& job, const Dialect& d, const BlockNumbers& n,
                            const TensorScale& l, const DialectBlock& block, unsigned lane) {
  if constexpr (kLanes == 1) {
    if (d.block_rows == 1) return LineError(job, d, n, l, block, 0);
    return AdaptiveBlockError(d, n, l, block.rows, block.cols, [&](std::size_t r, std::size_t c) {
      return job.Element(block.r0 + r, block.c0 + c);
    });
  } else {
    const unsigned lanes = LanesOfBlock<kLanes>();
    float line = LineError(job, d, n, l, block, lane);
    for (unsigned half = std::bit_ceil(static_cast<unsigned>(d.block_rows)) / 2; half > 0;
         half /= 2) {
      const float other = __shfl_down_sync(lanes, line, half, kLanes);
      if (lane < half) line = CombinedError(d, line, other);
    }
    return __shfl_sync(lanes, line, 0, kLanes);
  }
}

// The numbers of the block; with four over six, those of the candidate with the smaller error.
template <unsigned kLanes, bool kQuest = false>
__device__ BlockNumbers Chosen(const SideJob& job, const Dialect& d, const TensorScale& l,
                               const DialectBlock& block, unsigned lane) {
  const float b = StatisticOfBlock<kLanes, kQuest>(job, d, block, lane);
  const float t = ScaleBefore(d, b, l);
  // One loop for both candidates: a function with two call sites is called, not inlined, and the
  // call spills registers to memory.
  BlockNumbers chosen;
  float least = 0.0f;
#pragma unroll 1
  for (const bool is_four : {false, true}) {
    const BlockNumbers n = NumbersFrom(d, b, is_four ? t * 1.5f : t, l);
    if (d.adaptive == Adaptive::kNo) return n;
    const float error = ErrorUnder<kLanes>(job, d, n, l, block, lane);
    if (is_four && !(error < least)) break;
    chosen = n;
    least = error;
  }
  return chosen;
}

}  // namespace fp4lab::cuda
