// Operands of GEMMs: a matrix quantized by any dialect, as values or as FP4 integers, by the first
// implementation that can (implementation.h).
#pragma once

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/dialect/gemm_alpha.h"  // OperandDecode, GemmAlpha
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// out(r, c) = element value * block scale, without the tensor (or row) scale; `out` may be x.
// Dialects with a tensor scale need options.amax (from TensorAmaxes).
void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out);

// The values of QuantizeToValues as FP4 integers and scales, for a dialect with HasFp4Integers
// (block/fp4_integers.h). out.codes has unit stride along its rows, or down its columns if
// WritesColumns. Returns whether `out` is exact (block/fp4_integers.h: every scale is +0 or in
// [2^-60, 2^58]); if not, the caller must use QuantizeToValues.
bool QuantizeToFp4Integers(const Dialect& dialect, MatrixView<const float> x,
                           const DialectOptions& options, const Fp4Integers& out);

// Whether an implementation writes integers of these options with unit stride down the columns.
bool WritesColumns(const Dialect& dialect, const DialectOptions& options);
// Whether an implementation writes integers of elements that pass a UnitStage (block/plan.h).
bool TakesStage(const Dialect& dialect, const DialectOptions& options);

namespace reference {
void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out);
}

}  // namespace fp4lab
