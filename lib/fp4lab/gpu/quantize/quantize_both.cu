// Quantizes one BF16 tensor to FP4 in blocks along its rows and in blocks down its columns, from
// one reading of the tensor.
#include "fp4lab/cuda/device/divider.cuh"
#include "fp4lab/gpu/quantize/quantize.cuh"
#include "fp4lab/gpu/quantize/quantize_units.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = kUnitThreads;

// Divisors: the number of units, and of pairs of columns, in a row of x.
struct Across {
  cuda::Divider units, pairs;
};

// Blocks of 16 are always NVFP4's; the constant lets the compiler leave out the other rules.
template <int kUnit>
__device__ inline BlockRule KnownRule(BlockRule rule) {
  if (kUnit == 16) rule.rule = BlockScale::kFolded;
  return rule;
}

// A thread block covers kUnit rows of kThreads pairs of columns. Down the columns, a thread
// quantizes one pair; along the rows, it quantizes kRuns units of kUnit columns over the same
// elements, whose second reading hits the L1 cache. The thread block reads all elements before it
// writes any, so an output may be x.
template <int kUnit, int kHadamard, bool kStochastic>
__global__ void __launch_bounds__(kThreads, kUnit == 16 ? 7 : 4)
    BothKernel(UnitArguments row, UnitArguments column, Across across, const Bf16* x, Bf16* row_out,
               Bf16* column_out) {
  constexpr unsigned kAcross = 2 * kThreads / kUnit;  // units in a row of the thread block
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
  __shared__ TensorNumbers tensor[2];
  if (threadIdx.x == 0) tensor[0] = TensorNumbersAt(row);
  if (threadIdx.x == 32) tensor[1] = TensorNumbersAt(column);
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
  WithBool(IsStochastic(*row.format), [&](auto stochastic) {
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
