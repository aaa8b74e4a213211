// Both operands of one BF16 tensor, blocks of FP4 along its rows and down its columns, from one
// reading of it.
#include "fp4lab/cuda/divider.cuh"
#include "fp4lab/gpu/quantize_units.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = kUnitThreads;

// How many units, and how many pairs of columns, a row of x has.
struct Across {
  cuda::Divider units, pairs;
};

// Blocks of 16 are NVFP4's, so that the compiler leaves out the other rules.
template <int kUnit>
__device__ inline BlockRule KnownRule(BlockRule rule) {
  if (kUnit == 16) rule.rule = ScaleRule::kNvfp4;
  return rule;
}

// A block has kThreads pairs of columns of kUnit rows, a thread one of them, and the units of kUnit
// columns over the same elements, a thread kRuns: the second reading is from the first-level cache.
// The block has read all before it writes, so that an output may be x.
template <int kUnit, int kHadamard, bool kStochastic>
__global__ void __launch_bounds__(kThreads, kUnit == 16 ? 7 : 4)
    BothKernel(UnitArguments row, UnitArguments column, Across across, const Bf16* x, Bf16* row_out,
               Bf16* column_out) {
  constexpr unsigned kAcross = 2 * kThreads / kUnit;  // units in a row
  constexpr unsigned kRuns = kUnit * kAcross / kThreads;
  MakeAlpha(row.alpha);
  MakeAlpha(column.alpha);
  std::size_t at[kRuns];
  bool inside[kRuns];
  std::uint32_t runs[kRuns][kUnit / 2];
#pragma unroll
  for (unsigned i = 0; i < kRuns; ++i) {
    const unsigned unit = i * kThreads + threadIdx.x;
    const unsigned q = blockIdx.x * kAcross + unit % kAcross, band = across.units.Quotient(q);
    const std::size_t r = std::size_t{band} * kUnit + unit / kAcross;
    at[i] = r * row.cols + (q - band * across.units.divisor) * kUnit;
    inside[i] = r < row.rows;
    if (inside[i]) LoadWords<kUnit / 2>(x + at[i], runs[i]);
  }
  const unsigned p = blockIdx.x * kThreads + threadIdx.x, band = across.pairs.Quotient(p);
  const std::size_t c = std::size_t{p - band * across.pairs.divisor} * 2;
  const std::size_t r = std::size_t{band} * kUnit;
  std::uint32_t pairs[kUnit];
  if (r < column.rows) LoadPairs<kUnit>(x + r * column.cols + c, column.cols, pairs);
  __shared__ TensorScale tensor[2];
  if (threadIdx.x == 0) tensor[0] = TensorScaleAt(row);
  if (threadIdx.x == 32) tensor[1] = TensorScaleAt(column);
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < kRuns; ++i) {
    if (!inside[i]) continue;
    CleanNan(runs[i]);
    QuantizeWords<kStochastic>(KnownRule<kUnit>(row.rule), tensor[0], row.random, at[i], runs[i]);
    StoreWords(row_out + at[i], runs[i]);
  }
  if (r >= column.rows) return;
  QuantizePairs<kHadamard, kStochastic>(KnownRule<kUnit>(column.rule), tensor[1], column.random,
                                        c * column.rows + r, column.rows, pairs);
  StorePairs<kUnit>(column_out + r * column.cols + c, column.cols, pairs);
}

}  // namespace

bool QuantizesBoth(const QuantizeJob& row, const QuantizeJob& column) {
  const auto takes = [](const QuantizeJob& job) {
    if (!job.format || job.format->element != FormatId::kE2M1 || job.format->block_rows != 1) {
      return false;
    }
    return job.format->block_cols == (job.format->rule == ScaleRule::kNvfp4 ? 16 : 32);
  };
  if (!takes(row) || !takes(column) || row.hadamard != 0) return false;
  const int unit = row.format->block_cols;
  return column.format->block_cols == unit && (column.hadamard == 0 || column.hadamard == 16) &&
         unit >= column.hadamard && row.rounding == column.rounding;
}

void QuantizeBoth(const QuantizeJob& row, const std::uint32_t* amax_row, const AlphaJob& alpha_row,
                  Bf16* row_out, const QuantizeJob& column, const std::uint32_t* amax_column,
                  const AlphaJob& alpha_column, Bf16* column_out, const Bf16* x,
                  cudaStream_t stream) {
  CheckJob(row);
  CheckJob(column);
  Expects(QuantizesBoth(row, column) && !row.along_rows && column.along_rows,
          "QuantizeBoth: jobs of one shape, along rows and down columns");
  const unsigned blocks = Blocks(row.rows * row.cols, 2 * kThreads * row.format->block_cols);
  const UnitArguments along = Arguments(row, amax_row, alpha_row);
  const UnitArguments down = Arguments(column, amax_column, alpha_column);
  const Across across{cuda::Divider(static_cast<std::uint32_t>(row.cols) / row.format->block_cols),
                      cuda::Divider(static_cast<std::uint32_t>(row.cols) / 2)};
  WithBool(row.rounding == Rounding::kStochastic, [&](auto stochastic) {
    const auto launch = [&](auto kernel) {
      kernel<<<blocks, kThreads, 0, stream>>>(along, down, across, x, row_out, column_out);
    };
    if (row.format->block_cols == 32) {
      column.hadamard == 16 ? launch(BothKernel<32, 16, stochastic>)
                            : launch(BothKernel<32, 0, stochastic>);
    } else {
      column.hadamard == 16 ? launch(BothKernel<16, 16, stochastic>)
                            : launch(BothKernel<16, 0, stochastic>);
    }
  });
  CheckLaunch("QuantizeBoth");
}

}  // namespace fp4lab::gpu
