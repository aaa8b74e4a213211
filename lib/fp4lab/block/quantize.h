// Block quantization of a matrix: codes and scales, or the values that they stand for.
//
// x is (rows, cols) with blocks along cols, the GEMM's reduction axis. A columnwise quantization is
// that of x.Transposed(); nothing else is special about it. Rows and columns may be any number: a
// partial block at the edge is a block of the elements that exist.
//
//   scale rule and multiplier e of a block: block/scale_rules.h;  code = element(fl(x * e))
//   Toward zero cuts the magnitude of fl(x * e) to the next code below; beyond the largest, and for
//   NaN and Inf, all roundings give the same codes.
//
// What special inputs become ("max": the code of the largest element with the sign of x):
//                        NVFP4                   MX floor, ceil, even    MX rceil      FP8
//                        (kTensor)
//   all zeros            scale 0x00              scale 0x00 (2^-127)     scale 0x00    scale 1
//   0, -0                code 0 with the sign of x, everywhere
//   subnormal x          as any other value: nothing is flushed. Blocks of them alone have:
//                        byte by the rule, 0x00  scale 0x00, e = 2^127   scale 0x00 fl(max/amax),
//                        for b * K <= 2^-10                                            <= FLT_MAX
//   NaN element          counts for no amax; its code is NanCode(element): 0x7F in FP8; E2M1, E2M3
//   and
//                        E3M2 have no NaN: +max. The rest of the block does not notice.
//   only NaN             as all zeros, codes NanCode
//   Inf in the block     scale 448 (0x7E); max   scale 0xFF = NaN: all   scale 0xFE    max
//                                                codes NanCode           = 2^127; max
//   amax of tensor Inf   S_enc = 1               -                       -             scale 1
//   FP6 codes lie one a byte; block/packing.h packs four in three bytes (kDense6).
//   Stochastic rounding takes, for element i = r * cols + c of this (possibly transposed) x and by
//   random_bits: 16: random.Bits16(i); 8: random.Bits8(i) as the upper half of 16 bits, so that the
//   discarded part is cut to 8 bits; 32: random.Bits32(i), see formats/stochastic32.h.
//
// fp4lab::reference holds the scalar definition, fp4lab the Highway kernels: the same bytes on
// every SIMD target and for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/block_format.h"
#include "fp4lab/block/scale_rules.h"  // TensorDecodeScale, GemmAlpha

namespace fp4lab {

struct QuantizeOptions {
  BlockFormat format;
  Rounding rounding = Rounding::kNearestEven;  // any but kTowardPositive
  RandomStream random = {};                    // for kStochastic
  int random_bits = 16;                        // for kStochastic: 8, 16 or 32 an element
  // TensorAmax(x), where the caller has it: found out otherwise. Used where HasTensorScale(format).
  std::optional<float> amax = {};
};

struct QuantizedMatrix {
  BlockFormat format;
  std::size_t rows = 0, cols = 0;
  // 4-bit elements: (rows, ceil(cols / 2)), even column in the low nibble, the odd tail's high
  // nibble 0. Wider elements: (rows, cols) bytes.
  std::vector<std::uint8_t> codes;
  // (ceil(rows / block_rows), ceil(cols / block_cols)) scale bytes; empty for kTensor.
  std::vector<std::uint8_t> scales;
  float amax = 0.0f;  // of the tensor, where HasTensorScale(format)
  friend bool operator==(const QuantizedMatrix&, const QuantizedMatrix&) = default;
};

// max |x| over all elements, NaN ignored; 0 for an empty matrix.
float TensorAmax(MatrixView<const float> x);

QuantizedMatrix Quantize(MatrixView<const float> x, const QuantizeOptions& options);
// The same into *q, whose memory is used again.
void Quantize(MatrixView<const float> x, const QuantizeOptions& options, QuantizedMatrix* q);

// *rows = Quantize(x, row_options) and *columns = Quantize(x.Transposed(), column_options), as two
// GEMMs need them, while x is read from memory once: a band of rows at a time.
void QuantizeBothWays(MatrixView<const float> x, const QuantizeOptions& row_options,
                      const QuantizeOptions& column_options, QuantizedMatrix* rows,
                      QuantizedMatrix* columns);

// out(r, c) = element value * block scale, the tensor scale left out: what a GEMM multiplies. Exact
// in BF16 for E2M1 elements (as long as the product is no binary32 subnormal). Equals
// UnscaledValues(Quantize(x, options)) bit for bit without making the codes. `out` may be x itself.
void QuantizeToValues(MatrixView<const float> x, const QuantizeOptions& options,
                      MatrixView<float> out);

// The same values from codes and scales.
void UnscaledValues(const QuantizedMatrix& q, MatrixView<float> out);

// The whole decoding, out = value * block scale * tensor scale, in the order of TE's dequantize
// kernel (dequantize_nvfp4.cuh): f = fl(fl(scale * amax) * fl(1/2688)), y = fl(value * f).
void Dequantize(const QuantizedMatrix& q, MatrixView<float> out);

namespace reference {
float TensorAmax(MatrixView<const float> x);
QuantizedMatrix Quantize(MatrixView<const float> x, const QuantizeOptions& options);
void UnscaledValues(const QuantizedMatrix& q, MatrixView<float> out);
void Dequantize(const QuantizedMatrix& q, MatrixView<float> out);
}  // namespace reference

}  // namespace fp4lab
