// The scalar reference as the tuned kernels of block/ return it: QuantizeAs's codes and scales,
// packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/kernels/fp4_kernels.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/diagnostics/statistic.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab::reference {

// The code of element (r, c) of q, whose codes are in TunedOrder or one a byte.
inline std::uint32_t CodeAt(const Quantized& q, std::size_t r, std::size_t c) {
  if (q.order == CodeOrder::kBytes) return q.codes[r * q.cols + c];
  return q.codes[r * ((q.cols + 1) / 2) + c / 2] >> c % 2 * 4 & 0xF;
}

inline float TensorAmax(MatrixView<const float> x) { return MaxMagnitudeOf(x, false); }

inline Quantized Quantize(MatrixView<const float> x, const QuantizeOptions& options) {
  DialectOptions given{.source = RandomSource{options.random}};
  if (options.amax && HasTensorScale(options.dialect)) given.amax = {*options.amax};
  return InOrder(reference::QuantizeAs(options.dialect, x, given), TunedOrder(options.dialect));
}

inline void BlockScaledValues(const Dialect& dialect, const Quantized& q, MatrixView<float> out) {
  ToOperandValues(dialect, InOrder(q, CodeOrder::kBytes), out);
}

inline void Dequantize(const Dialect& dialect, const Quantized& q, MatrixView<float> out) {
  const Matrix<float> values = DequantizeAs(dialect, InOrder(q, CodeOrder::kBytes));
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) out(r, c) = values(r, c);
  }
}

inline bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                                  const Fp4Integers& out) {
  const Dialect& d = options.dialect;
  const Quantized q = reference::Quantize(x, options);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float twice = 2.0f * Decode(d.element, CodeAt(q, r, c));
      out.codes(r, c) = static_cast<std::uint8_t>(12 + static_cast<int>(twice));
    }
  }
  for (std::size_t i = 0; i < out.scales.rows; ++i) {
    for (std::size_t j = 0; j < out.scales.cols; ++j) {
      out.scales(i, j) = ScaleValueOf(d, q.scales[i * out.scales.cols + j]);
    }
  }
  return internal::FinishFp4Scales(d, out);
}

}  // namespace fp4lab::reference
