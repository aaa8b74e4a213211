// A linear's operand on the device: rounded values -> (Hadamard) -> values of a block format, the
// bits of nn/linear.h's operands (transform/hadamard.h, block/quantize.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp4lab/base/random.h"
#include "fp4lab/block/block_format.h"
#include "fp4lab/gpu/memory.cuh"

namespace fp4lab::gpu {

// x (rows, cols) in memory. The GEMM's reduction axis runs along cols, or along rows where
// `along_rows` says so: then the operand is x transposed, and so are its element numbers. The
// result lies in memory as x does.
struct QuantizeJob {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
  std::optional<BlockFormat> format;
  Rounding rounding = Rounding::kNearestEven;
  RandomStream random;
  int hadamard = 0;
};

// *amax = max(*amax, the largest magnitude of the operand after its Hadamard transform), as the
// bits of a float; NaN is passed over. Zero it first. (The maximum of integers: no order matters.)
template <class T>
void MeasureAmax(const QuantizeJob& job, const T* x, std::uint32_t* amax, cudaStream_t stream);

// The same for a job with a transform along rows, and *plain: that of x itself, in one pass.
template <class T>
void MeasureBoth(const QuantizeJob& job, const T* x, std::uint32_t* plain, std::uint32_t* amax,
                 cudaStream_t stream);

// *to: what nn/linear.cc gives as alpha to the GEMM of two operands. Null: nothing.
struct AlphaJob {
  std::optional<BlockFormat> a, b;
  const std::uint32_t *amax_a = nullptr, *amax_b = nullptr;
  float* to = nullptr;
};

// out = the job done; `amax` as MeasureAmax left it, read where the format has a tensor scale. out
// may be x. `alpha` is done too, so that it costs no launch.
template <class T>
void QuantizeToValues(const QuantizeJob& job, const T* x, const std::uint32_t* amax, T* out,
                      cudaStream_t stream, const AlphaJob& alpha = {});

void WriteAlpha(const AlphaJob& job, cudaStream_t stream);

// Both operands of x from one reading of it: what two calls of QuantizeToValues do, `row` along its
// rows and `column`, with along_rows, down its columns. One of the outputs may be x.
// QuantizesBoth: whether there is a kernel: FP4 in blocks of one length and one rounding, at most
// the columns transformed.
bool QuantizesBoth(const QuantizeJob& row, const QuantizeJob& column);
void QuantizeBoth(const QuantizeJob& row, const std::uint32_t* amax_row, const AlphaJob& alpha_row,
                  Bf16* row_out, const QuantizeJob& column, const std::uint32_t* amax_column,
                  const AlphaJob& alpha_column, Bf16* column_out, const Bf16* x,
                  cudaStream_t stream);

}  // namespace fp4lab::gpu
