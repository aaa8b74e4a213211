// Operands of GEMMs: a matrix quantized as any dialect says, as values or as FP4 integers.
// The kernels of block/ serve the rows that they know (tuned.h), those of quantize.cc all others.
#pragma once

#include <optional>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/gemm_alpha.h"  // OperandDecode, GemmAlpha
#include "fp4lab/dialect/quantize.h"

namespace fp4lab {

// The options of block/'s kernels where those serve the dialect with these options, else nullopt.
std::optional<QuantizeOptions> TunedOptions(const Dialect& dialect, const DialectOptions& options);

// out(r, c) = element value * block scale, the tensor's (or row's) scale left out; `out` may be x.
// For dialects with a level 2 options.amax is given (LevelTwoAmax finds it).
void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out);

// Whether the elements are E2M1 in blocks that an integer GEMM takes, under scales of a format with
// at most 4 significant bits (block/fp4_integers.h).
bool HasFp4Integers(const Dialect& dialect);

// The same as integers. out.codes has unit stride along its rows, or, where TunedOptions has some,
// in either direction. Returns whether they say all (block/fp4_integers.h: scales that are +0 or
// in [2^-60, 2^58]); if not, use QuantizeToValues.
bool QuantizeToFp4Integers(const Dialect& dialect, MatrixView<const float> x,
                           const DialectOptions& options, const Fp4Integers& out);

namespace reference {
void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out);
}

}  // namespace fp4lab
