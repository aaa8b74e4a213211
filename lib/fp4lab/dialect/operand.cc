#include "fp4lab/dialect/operand.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/fp4_kernels.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/outputs.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/dialect/tuned.h"

namespace fp4lab {
namespace {

bool HasNarrowScales(const Dialect& d) {
  return d.scale_encoding != ScaleEncoding::kBinary32 && FormatOf(d.scale).mantissa_bits <= 3;
}

}  // namespace

std::optional<QuantizeOptions> TunedOptions(const Dialect& dialect, const DialectOptions& options) {
  const std::optional<TunedQuantizer> tuned = TunedFor(dialect);
  if (!tuned) return std::nullopt;
  QuantizeOptions out{
      .format = tuned->format, .rounding = tuned->rounding, .random_bits = tuned->random_bits};
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
  Expects(out.rows == x.rows && out.cols == x.cols, "out has the shape of x");
  Expects(!HasLevelTwo(dialect) || !options.amax.empty(), "the amax is known");
  if (const auto tuned = TunedOptions(dialect, options)) return QuantizeToValues(x, *tuned, out);
  QuantizeInto(dialect, x, options, options.amax, {.values = out});
}

bool HasFp4Integers(const Dialect& d) {
  return d.element == FormatId::kE2M1 && HasNarrowScales(d) &&
         HasFp4Integers(BlockFormat{
             .element = d.element, .block_rows = d.block_rows, .block_cols = d.block_cols});
}

bool QuantizeToFp4Integers(const Dialect& dialect, MatrixView<const float> x,
                           const DialectOptions& options, const Fp4Integers& out) {
  Expects(HasFp4Integers(dialect), "FP4 in blocks of 16 or 32");
  Expects(!HasLevelTwo(dialect) || !options.amax.empty(), "the amax is known");
  if (const auto tuned = TunedOptions(dialect, options)) {
    return QuantizeToFp4Integers(x, *tuned, out);
  }
  QuantizeInto(dialect, x, options, options.amax, {.integers = out.codes, .scales = out.scales});
  return internal::FinishFp4Scales({.element = dialect.element,
                                    .scale = dialect.scale,
                                    .block_rows = dialect.block_rows,
                                    .block_cols = dialect.block_cols},
                                   out);
}

namespace reference {

void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out) {
  const Quantized q = reference::QuantizeAs(dialect, x, options);
  const BlockGrid grid(dialect, x.rows, x.cols);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      out(r, c) =
          Decode(dialect.element, q.codes[r * x.cols + c]) * ScaleAt(dialect, grid, q, r, c);
    }
  }
}

}  // namespace reference
}  // namespace fp4lab
