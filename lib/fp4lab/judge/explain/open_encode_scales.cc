#include "fp4lab/judge/explain/open_encode_scales.h"

#include <algorithm>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain/rounding_interval.h"

namespace fp4lab {
namespace {

constexpr std::size_t kRead = 4096;  // blocks of OfAll

// The S for which unit * S lies in the interval, up to a formula's roundings.
EncodeScales Fitting(double unit, Interval interval) {
  constexpr double kRoundings = 0x1p-21;
  if (!(unit > 0.0) || !(interval.low <= interval.high)) return {};
  return {interval.low / unit * (1.0 - kRoundings), interval.high / unit * (1.0 + kRoundings)};
}

}  // namespace

EncodeScales EncodeScales::With(const EncodeScales& other) const {
  const IeeeArithmetic ieee;
  return {std::max(low, other.low), std::min(high, other.high)};
}

EncodeScaleReader::EncodeScaleReader(const Kernel& kernel, ByteMatcher& matcher)
    : kernel_(kernel),
      got_(matcher.got()),
      evaluator_(matcher.MakeEvaluator(PlanOf(kernel))),
      places_(PlanOf(kernel), evaluator_.rows(), evaluator_.cols()),
      random_(matcher.options().random),
      x_(matcher.x()) {
  if (kernel.hadamard == 0) return;
  transformed_ = InputOf(PlanOf(kernel).input, matcher.x());
  x_ = transformed_.View();
}

bool EncodeScaleReader::CanRead() const {
  const FormatId scale = kernel_.dialect.scale;
  return (scale == FormatId::kE4M3 || scale == FormatId::kE8M0) &&
         places_.scale_type() == ScaleType::kByte && evaluator_.grid().stores_scales &&
         !got_.scales.empty();
}

EncodeScales EncodeScaleReader::OfBlock(std::size_t i, std::size_t j, ReadFrom from) const {
  const IeeeArithmetic ieee;
  const Dialect& d = kernel_.dialect;
  const std::size_t place = places_.ScalePlace(i, j, 0);
  if (place >= got_.scales.size()) return {};
  const Format& scale = FormatOf(d.scale);
  const std::uint8_t byte = got_.scales[place];
  if (byte < 1u << scale.mantissa_bits || IsNan(scale, byte)) return {};  // may be clamped
  BlockBytes block;
  evaluator_.Evaluate(i, j, &block);
  EncodeScales open;
  // A rule of E8M0 scales is no rounding to nearest.
  if (from != ReadFrom::kCodes && d.adaptive == Adaptive::kNo && d.scale == FormatId::kE4M3) {
    open = Fitting(double{block.numbers.amax} / MaxFinite(d.element), RoundsTo(scale, byte));
  }
  const bool stochastic = IsStochastic(d) && random_.size() == x_.size();
  if (from == ReadFrom::kScales) return open;
  if (d.rounding != ElementRounding::kNearestEven && !stochastic) return open;
  const double s = ScaleValueOf(d, byte);
  for (std::size_t k = 0; k < block.codes.size(); ++k) {
    const std::size_t row = block.row + k / block.cols, col = block.col + k % block.cols;
    const std::size_t bit = places_.CodeBit(row, col);
    if (!places_.Fits(bit, got_.codes.size())) continue;
    const std::uint8_t code = places_.CodeAt(got_.codes, bit);
    const Interval v = stochastic ? RoundsTo(d.rounding,
                                             {.element = d.element,
                                              .x = x_(row, col),
                                              .s = static_cast<float>(s),
                                              .v = x_(row, col),
                                              .random = random_[row * x_.cols + col]},
                                             code)
                                  : RoundsTo(FormatOf(d.element), code);
    open = open.With(Fitting(Magnitude(x_(row, col)) / s, v));
  }
  return open;
}

EncodeScales EncodeScaleReader::OfAll(ReadFrom from) const {
  const IeeeArithmetic ieee;
  const std::size_t blocks = grid().rows * grid().cols;
  const std::size_t step = std::max<std::size_t>(1, blocks / kRead);
  EncodeScales open;
  for (std::size_t at = 0; at < blocks && !open.Empty(); at += step) {
    open = open.With(OfBlock(at / grid().cols, at % grid().cols, from));
  }
  return open;
}

}  // namespace fp4lab
