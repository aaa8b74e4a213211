// A linear's operand on the device: rounded values -> (Hadamard transform) -> values of a dialect,
// with the bits of nn/linear.h's operands (transform/hadamard.h, block/quantize.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/quantize/quantize_job.h"

namespace fp4lab::gpu {

// *amax = max(*amax, amax of the operand after its Hadamard transform), as float bits; NaN is
// passed over. The caller zeroes *amax first. (The kernel takes an integer maximum, so the order of
// threads does not matter.)
template <class T>
void MeasureAmax(const QuantizeJob& job, const T* x, std::uint32_t* amax, cudaStream_t stream);

// MeasureAmax for a job with a Hadamard transform along rows; the same pass raises *plain to the
// amax of x itself.
template <class T>
void MeasureBoth(const QuantizeJob& job, const T* x, std::uint32_t* plain, std::uint32_t* amax,
                 cudaStream_t stream);

// out = the operand that `job` describes. `amax`: as MeasureAmax left it, read only if the format
// has a tensor scale. out may be x. The kernel also writes `alpha`, which saves a launch.
template <class T>
void QuantizeToValues(const QuantizeJob& job, const T* x, const std::uint32_t* amax, T* out,
                      cudaStream_t stream, const AlphaJob& alpha = {});

// Writes alpha in a launch of its own.
void WriteAlpha(const AlphaJob& job, cudaStream_t stream);

// QuantizeBoth makes both operands of x from one reading of x, with the results of two calls of
// QuantizeToValues: `row` along the rows of x, and `column`, with along_rows, down its columns. One
// of the outputs may be x. Expects QuantizesBoth(row, column) (quantize_job.h).
void QuantizeBoth(const QuantizeJob& row, const std::uint32_t* amax_row, const AlphaJob& alpha_row,
                  Bf16* row_out, const QuantizeJob& column, const std::uint32_t* amax_column,
                  const AlphaJob& alpha_column, Bf16* column_out, const Bf16* x,
                  cudaStream_t stream);

}  // namespace fp4lab::gpu
