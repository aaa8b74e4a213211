// Operands of GEMMs, of a matrix in device memory: element value * block scale, as any dialect
// says. The bits of dialect/operand.h's QuantizeToValues, with the random bits of its RandomSource.
#pragma once

#include "fp4lab/cuda/quantize.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/random_source.h"

namespace fp4lab::cuda {

struct ValuesJob {
  DeviceMatrix x;
  bool transposed = false;  // x's transpose is quantized: blocks go down the columns of x
  // One float, or one for each row of the quantized matrix where the dialect is row-scaled; read
  // where it has a level 2.
  const float* amax = nullptr;
  RandomSource source = {};  // of stochastic rounding, of elements and of MS-EDEN's scales
  // Laid out and typed as x, which it may be; BF16 is rounded to nearest even, exact but for
  // subnormals.
  void* values = nullptr;
};

// Signed elements of at most 8 bits, any scales of at most 8 bits or in binary32, four over six in
// blocks of at most 32 rows, MS-EDEN in blocks of one row: all that a recipe can say. (Where a
// dialect's answer is a set, the member that the CPU gives.) Values under binary32 scales are no
// BF16 numbers: as BF16 they are rounded.
bool CanQuantizeToValues(const Dialect& dialect);

// One thread for a block of one row (for a group of 128 of MS-EDEN), half a warp or a whole one for
// a block of several.
void QuantizeToValues(const Dialect& dialect, const ValuesJob& job, StreamHandle stream = nullptr);

}  // namespace fp4lab::cuda
