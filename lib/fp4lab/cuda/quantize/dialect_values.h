// Values of matrices in device memory in any dialect, for GEMMs: element value * block scale,
// without the tensor scale. The results have the bits of QuantizeToValues in quantize/operand.h,
// with the random bits of its RandomSource.
#pragma once

#include "fp4lab/cuda/quantize/quantize.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/random_source.h"

namespace fp4lab::cuda {

struct ValuesJob {
  DeviceMatrix x;
  bool transposed = false;  // quantize the transpose of x: blocks go down the columns of x
  // The tensor's amax: one float, or in row-scaled dialects one for each row of the quantized
  // matrix. Read only if the dialect has a tensor scale.
  const float* amax = nullptr;
  // The random bits of stochastic rounding and of MS-EDEN's scales. The generator must be one that
  // Feeds the dialect.
  RandomSource source = {};
  // The result, with the layout and the type of x; may be x itself. BF16 results are RNE, and exact
  // unless they are subnormal or the block scales are in binary32.
  void* values = nullptr;
  // If not null, values are those of elements alone, exact in BF16, and the scale of block (i, j)
  // goes to scales[j * rows of blocks + i]. Of blocks of 64 elements per row or a multiple, not of
  // MS-EDEN.
  float* scales = nullptr;
};

// Element formats of the kernels: signed, at most 8 bits.
constexpr bool IsValueElement(FormatId id) {
  return FormatOf(id).is_signed && FormatOf(id).bits <= 8;
}

// Whether the kernels compute the dialect: elements of IsValueElement, block scales of at most 8
// bits or in binary32, four over six in blocks of at most 32 rows, MS-EDEN in blocks of one row
// whose length divides 128 and without binary32 scales. These are all dialects that a recipe can
// name. If a dialect allows several answers, the kernels give the CPU's.
bool CanQuantizeToValues(const Dialect& dialect);

// Quantizes to job.values, in order with the stream's other work, without waiting. The general
// kernels have one thread for a block of one row (or for a group of 128 elements of MS-EDEN), half
// a warp or a whole warp for a block of several rows; kernels in registers take what most recipes
// have (values/block_registers.cuh).
void QuantizeToValues(const Dialect& dialect, const ValuesJob& job, StreamHandle stream = nullptr);

}  // namespace fp4lab::cuda
