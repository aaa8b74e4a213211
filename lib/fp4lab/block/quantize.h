// x is (rows, cols) with blocks along cols, the GEMM's reduction axis. For a columnwise
// quantization the caller passes x.Transposed(). Rows and columns may be any number: a partial
// block at the edge is a block of the elements that exist.
//
// The bytes equal those of quantize/quantize.h, whose scalar reference is the definition. These
// kernels serve the dialects of block/tuned.h, on every SIMD target and for any number of threads.
//   scale and multiplier e of a block: dialect/stages.h;  code = element(fl(x * e))
//   Rounding toward zero cuts the magnitude of fl(x * e) to the next code below. Beyond the largest
//   element, and for NaN and Inf, all roundings give the same codes.
//
// Special inputs ("max": the code of the largest element with the sign of x):
//                       NVFP4                  MX floor, ceil, even   MX rceil      FP8
//   all zeros           scale 0x00             scale 0x00 (2^-127)    scale 0x00    scale 1
//   Inf in the block    scale 448 (0x7E); max  scale 0xFF = NaN:      scale 0xFE    max
//                                              all codes NanCode      = 2^127; max
//   amax of tensor Inf  S = 1                  -                      -             scale 1
//   only subnormals     byte by the rule,      scale 0x00,            scale 0x00    S = fl(q/amax),
//     in the block      0x00 if b*K <= 2^-10   e = 2^127                            <= FLT_MAX
//   only NaN            as all zeros, with codes NanCode
// In every format:
//   0, -0        code 0 with the sign of x
//   subnormal x  is quantized as any other value: nothing is flushed
//   NaN element  is ignored by every amax; its code is NanCode(element): 0x7F in FP8, +max in FP4
//                and FP6, which have no NaN. The other elements of the block are not affected.
//
// FP6 codes take one byte each; block/packing.h packs four in three bytes (kDense6). Stochastic
// rounding takes, for element i = r * cols + c of this (possibly transposed) x, random.Bits16(i) or
// random.Bits32(i) (formats/stochastic32.h), as the dialect says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/quantized.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

struct QuantizeOptions {
  Dialect dialect;           // WhyNotTuned(dialect) gives no reason (block/tuned.h)
  RandomStream random = {};  // for stochastic rounding
  // TensorAmax(x), if the caller has it; computed if absent. Used only where
  // HasTensorScale(dialect).
  std::optional<float> amax = {};
};

// The order in which these kernels write and read codes.
constexpr CodeOrder TunedOrder(const Dialect& dialect) {
  return FormatOf(dialect.element).bits == 4 ? CodeOrder::kLowFirst : CodeOrder::kBytes;
}

// max |x| over all elements, NaN ignored; 0 for an empty matrix.
float TensorAmax(MatrixView<const float> x);

// The result has its codes in TunedOrder.
Quantized Quantize(MatrixView<const float> x, const QuantizeOptions& options);
// Quantizes x into *q and reuses the memory of *q.
void Quantize(MatrixView<const float> x, const QuantizeOptions& options, Quantized* q);

// *rows = Quantize(x, row_options) and *columns = Quantize(x.Transposed(), column_options), as two
// GEMMs need them, while x is read from memory once: a band of rows at a time.
void QuantizeBothWays(MatrixView<const float> x, const QuantizeOptions& row_options,
                      const QuantizeOptions& column_options, Quantized* rows, Quantized* columns);

// out(r, c) = element value * block scale, the tensor scale left out: what a GEMM multiplies. Exact
// in BF16 for E2M1 elements (as long as the product is no binary32 subnormal). Equals
// BlockScaledValues of Quantize(x, options) bit for bit without making the codes. `out` may be x
// itself.
void QuantizeToValues(MatrixView<const float> x, const QuantizeOptions& options,
                      MatrixView<float> out);

// out(r, c) = element value * block scale, from the codes, in TunedOrder, and scale bytes of q; out
// has q's shape.
void BlockScaledValues(const Dialect& dialect, const Quantized& q, MatrixView<float> out);

// Full decoding, out = value * block scale * tensor scale, in the order of TE's dequantize kernel
// (dequantize_nvfp4.cuh): f = fl(fl(scale * amax) * fl(1/2688)), y = fl(value * f). out has q's
// shape, and q's codes are in TunedOrder.
void Dequantize(const Dialect& dialect, const Quantized& q, MatrixView<float> out);

}  // namespace fp4lab
