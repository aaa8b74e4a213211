#include <algorithm>
#include <cmath>
#include <limits>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/products/gemm.h"

namespace fp4lab {
namespace {

constexpr double kSlack = 1.0 + 0x1p-40;
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// At least (1 + x)^n - 1, for x <= 1: expm1(n log1p(x)) <= expm1(n x), whose binary64 error is
// far below kSlack; for large n x it is infinite, which bounds everything.
double GrowthUp(double x, double n) {
  const double power = n * x;
  return power > 500 ? kUnbounded : std::expm1(power) * kSlack + 0x1p-1000;
}

struct OutputError {
  double relative, absolute;
};

OutputError RoundingOf(MmaOutput output) {
  switch (output) {
    case MmaOutput::kTruncate32:
      return {0x1p-23, 0x1p-149};
    case MmaOutput::kTruncate32E8M13:
      return {0x1p-13, 0x1p-139};
    case MmaOutput::kNearest16:
      return {0x1p-11, 0x1p-25};
  }
  return {1, kUnbounded};
}

// The number of steps in the sense of the bound, and the number of products or groups of a step.
struct Steps {
  double count, terms;
};

Steps StepsOf(const TensorCoreModel& model, std::size_t depth) {
  const auto k = static_cast<double>(depth);
  switch (model.scheme) {
    case MmaScheme::kChain:
    case MmaScheme::kScaledChain:
      return {std::ceil(k / model.products), static_cast<double>(model.products)};
    case MmaScheme::kScaledGroups:
      return {std::ceil(k / model.products), static_cast<double>(model.products) / 16};
    case MmaScheme::kFp8InFp16:
      return {3 * std::ceil(k / kFp8InFp16Depth), static_cast<double>(model.products)};
  }
  return {k, k};
}

}  // namespace

double AnyOrderBound(const SumFacts& facts) {
  const IeeeArithmetic ieee;
  const auto k = static_cast<double>(facts.terms);
  const double growth = GrowthUp(0x1p-23, k);
  return (growth * facts.magnitudes + (1 + growth) * k * 0x1p-149) * kSlack;
}

double TensorCoreBound(const TensorCoreModel& model, const SumFacts& facts) {
  const IeeeArithmetic ieee;
  const Steps steps = StepsOf(model, facts.terms);
  const OutputError output = RoundingOf(model.output);
  const double truncation = (steps.terms + 1) * std::ldexp(1.0, -model.fraction_bits);
  const double x = (truncation + output.relative + truncation * output.relative) * kSlack;
  const double growth = GrowthUp(x, steps.count);
  const double least = std::max(0x1p-126, std::ldexp(1.0, std::max(model.floor, -1000)));
  const double b = facts.magnitudes + std::max(facts.largest_power, least);
  return (growth * b + (1 + growth) * steps.count * output.absolute) * kSlack;
}

}  // namespace fp4lab
