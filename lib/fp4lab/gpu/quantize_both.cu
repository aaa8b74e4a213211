// Both operands of one BF16 tensor, blocks of FP4 along its rows and down its columns, from one
// reading of it.
#include "fp4lab/gpu/quantize_units.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = kUnitThreads;

// A block has kThreads pairs of columns of kUnit rows, a thread one of them, and the units of kUnit
// columns over the same elements, a thread kRuns: the second reading is from the first-level cache.
// The block has read all before it writes, so that an output may be x.
template <int kUnit, int kHadamard, bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    BothKernel(UnitArguments row, UnitArguments column, const Bf16* x, Bf16* row_out,
               Bf16* column_out) {
  constexpr unsigned kAcross = 2 * kThreads / kUnit;  // units in a row
  constexpr unsigned kRuns = kUnit * kAcross / kThreads;
  MakeAlpha(row.alpha);
  MakeAlpha(column.alpha);
  std::size_t at[kRuns];
  bool inside[kRuns];
  uint4 runs[kRuns][kUnit / 8];
  const auto units_across = static_cast<unsigned>(row.cols / kUnit);
#pragma unroll
  for (unsigned i = 0; i < kRuns; ++i) {
    const unsigned unit = i * kThreads + threadIdx.x;
    const unsigned q = blockIdx.x * kAcross + unit % kAcross;
    const std::size_t r = std::size_t{q / units_across} * kUnit + unit / kAcross;
    at[i] = r * row.cols + q % units_across * kUnit;
    inside[i] = r < row.rows;
#pragma unroll
    for (int j = 0; j < kUnit / 8; ++j) {
      if (inside[i]) runs[i][j] = *reinterpret_cast<const uint4*>(x + at[i] + 8 * j);
    }
  }
  const auto pairs_across = static_cast<unsigned>(column.cols / 2);
  const unsigned p = blockIdx.x * kThreads + threadIdx.x;
  const std::size_t c = std::size_t{p % pairs_across} * 2;
  const std::size_t r = std::size_t{p / pairs_across} * kUnit;
  std::uint32_t pairs[kUnit];
  if (r < column.rows) LoadPairs<kUnit>(x + r * column.cols + c, column.cols, pairs);
  __syncthreads();
  const TensorScale of_rows = TensorScaleAt(row);
#pragma unroll
  for (unsigned i = 0; i < kRuns; ++i) {
    if (!inside[i]) continue;
    float v[kUnit];
    UnpackRun<kUnit>(runs[i], v);
    QuantizeUnit<kUnit, kUnit, kStochastic, true>(row, of_rows, at[i], v);
    StoreRun<kUnit>(row_out + at[i], v);
  }
  if (r >= column.rows) return;
  ProcessPairs<kUnit, kUnit, kHadamard, kStochastic, true>(column, TensorScaleAt(column),
                                                           c * column.rows + r, pairs);
  StorePairs<kUnit>(column_out + r * column.cols + c, column.cols, pairs);
}

}  // namespace

bool QuantizesBoth(const QuantizeJob& row, const QuantizeJob& column) {
  const auto takes = [](const QuantizeJob& job) {
    return job.format && job.format->element == FormatId::kE2M1 && job.format->block_rows == 1;
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
  WithBool(row.rounding == Rounding::kStochastic, [&](auto stochastic) {
    const auto launch = [&](auto kernel) {
      kernel<<<blocks, kThreads, 0, stream>>>(along, down, x, row_out, column_out);
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
