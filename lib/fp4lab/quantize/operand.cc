#include "fp4lab/quantize/operand.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/fp4_kernels.h"
#include "fp4lab/block/tuned.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/kernels/outputs.h"

namespace fp4lab {

std::optional<QuantizeOptions> TunedOptions(const Dialect& dialect, const DialectOptions& options) {
  if (!IsTuned(dialect)) return std::nullopt;
  QuantizeOptions out{.dialect = dialect};
  if (!options.amax.empty()) out.amax = options.amax[0];
  if (IsStochastic(dialect)) {
    const bool philox = options.source && options.source->generator == RandomGenerator::kPhilox;
    if (!philox) return std::nullopt;
    out.random = options.source->stream;
  }
  return out;
}

void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  Expects(out.rows == x.rows && out.cols == x.cols, "out has the shape of x");
  Expects(!HasTensorScale(dialect) || !options.amax.empty(), "the amax is known");
  if (const auto tuned = TunedOptions(dialect, options)) return QuantizeToValues(x, *tuned, out);
  QuantizeInto(dialect, x, options, options.amax, {.values = out});
}

void ToOperandValues(const Dialect& dialect, const Quantized& q, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  Expects(out.rows == q.rows && out.cols == q.cols, "out has the shape of the matrix");
  const BlockGrid grid(dialect, q.rows, q.cols);
  ParallelFor(q.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      out(r, c) =
          Decode(dialect.element, q.codes[r * q.cols + c]) * ScaleAt(dialect, grid, q, r, c);
    }
  });
}

bool QuantizeToFp4Integers(const Dialect& dialect, MatrixView<const float> x,
                           const DialectOptions& options, const Fp4Integers& out) {
  const IeeeArithmetic ieee;
  Expects(HasFp4Integers(dialect), "FP4 in blocks of 16 or 32 under scales with few bits");
  Expects(!HasTensorScale(dialect) || !options.amax.empty(), "the amax is known");
  if (const auto tuned = TunedOptions(dialect, options)) {
    return QuantizeToFp4Integers(x, *tuned, out);
  }
  QuantizeInto(dialect, x, options, options.amax, {.integers = out.codes, .scales = out.scales});
  return internal::FinishFp4Scales(dialect, out);
}

namespace reference {

void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  ToOperandValues(dialect, reference::QuantizeAs(dialect, x, options), out);
}

}  // namespace reference
}  // namespace fp4lab
