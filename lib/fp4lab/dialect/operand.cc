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

// Level two is Transformer Engine's kind: S = C / amax.
bool HasEncodeScale(const Dialect& d) {
  switch (d.level_two) {
    case LevelTwo::kEncodeScale:
    case LevelTwo::kEncodeFused:
    case LevelTwo::kEncodeApproximate:
    case LevelTwo::kEncodePartial:
    case LevelTwo::kEncodeJax:
    case LevelTwo::kEncodePlain:
      return true;
    case LevelTwo::kNone:
    case LevelTwo::kMultiplier:
    case LevelTwo::kTwoDivisions:
    case LevelTwo::kDivisor:
    case LevelTwo::kDivisorOrOne:
    case LevelTwo::kTensorFp8:
      break;
  }
  return false;
}

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
  return d.element == FormatId::kE2M1 && HasNarrowScales(d) && !d.row_scaled &&
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

float OperandDecode(const Dialect& dialect, float amax) {
  const float decode =
      HasEncodeScale(dialect) ? amax / LevelTwoConstant(dialect) : LevelOf(dialect, amax).decode;
  return dialect.prescale == 1.0f ? decode : decode / dialect.prescale;
}

float GemmAlpha(const Dialect& a, float amax_a, const Dialect& b, float amax_b) {
  if (HasEncodeScale(a) && HasEncodeScale(b)) {
    const float alpha = amax_a * amax_b / (LevelTwoConstant(a) * LevelTwoConstant(b));
    const float prescale = a.prescale * b.prescale;
    return prescale == 1.0f ? alpha : alpha / prescale;
  }
  return OperandDecode(a, amax_a) * OperandDecode(b, amax_b);
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
