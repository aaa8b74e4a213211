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

inline std::uint32_t CodeAt(const QuantizedMatrix& q, std::size_t r, std::size_t c) {
  const CodeLayout layout(q.dialect, q.cols);
  return q.codes[layout.Byte(r, c)] >> layout.Shift(c) & layout.mask;
}

// q with its codes packed as the tuned kernels pack them.
inline QuantizedMatrix Packed(const Dialect& dialect, const fp4lab::Quantized& q) {
  const CodeLayout layout(dialect, q.cols);
  QuantizedMatrix packed{.dialect = dialect,
                         .rows = q.rows,
                         .cols = q.cols,
                         .codes = std::vector<std::uint8_t>(q.rows * layout.row_bytes),
                         .scales = q.scales,
                         .amax = q.amax.empty() ? 0.0f : q.amax[0]};
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      packed.codes[layout.Byte(r, c)] |=
          static_cast<std::uint8_t>(q.codes[r * q.cols + c] << layout.Shift(c));
    }
  }
  return packed;
}

inline fp4lab::Quantized Unpacked(const QuantizedMatrix& q) {
  const ScaleLayout scales(q.dialect, q.rows, q.cols);
  fp4lab::Quantized out{.rows = q.rows,
                        .cols = q.cols,
                        .codes = std::vector<std::uint8_t>(q.rows * q.cols),
                        .scale_rows = q.scales.empty() ? 0 : scales.rows,
                        .scale_cols = q.scales.empty() ? 0 : scales.cols,
                        .scales = q.scales};
  if (HasTensorScale(q.dialect)) out.amax = {q.amax};
  for (std::size_t i = 0; i < out.codes.size(); ++i) {
    out.codes[i] = static_cast<std::uint8_t>(CodeAt(q, i / q.cols, i % q.cols));
  }
  return out;
}

inline float TensorAmax(MatrixView<const float> x) { return MaxMagnitudeOf(x, false); }

inline QuantizedMatrix Quantize(MatrixView<const float> x, const QuantizeOptions& options) {
  DialectOptions given{.source = RandomSource{options.random}};
  if (options.amax && HasTensorScale(options.dialect)) given.amax = {*options.amax};
  return Packed(options.dialect, reference::QuantizeAs(options.dialect, x, given));
}

inline void BlockScaledValues(const QuantizedMatrix& q, MatrixView<float> out) {
  const ScaleLayout scales(q.dialect, q.rows, q.cols);
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      const std::uint8_t byte = q.scales.empty() ? std::uint8_t{0} : q.scales[scales.Index(r, c)];
      out(r, c) = Decode(q.dialect.element, CodeAt(q, r, c)) * ScaleValueOf(q.dialect, byte);
    }
  }
}

inline void Dequantize(const QuantizedMatrix& q, MatrixView<float> out) {
  const Matrix<float> values = DequantizeAs(q.dialect, Unpacked(q));
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) out(r, c) = values(r, c);
  }
}

inline bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                                  const Fp4Integers& out) {
  const QuantizedMatrix q = reference::Quantize(x, options);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float twice = 2.0f * Decode(q.dialect.element, CodeAt(q, r, c));
      out.codes(r, c) = static_cast<std::uint8_t>(12 + static_cast<int>(twice));
    }
  }
  for (std::size_t i = 0; i < out.scales.rows; ++i) {
    for (std::size_t j = 0; j < out.scales.cols; ++j) {
      out.scales(i, j) = ScaleValueOf(q.dialect, q.scales[i * out.scales.cols + j]);
    }
  }
  return internal::FinishFp4Scales(q.dialect, out);
}

}  // namespace fp4lab::reference
