#include "fp4lab/oracle/formats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fp4lab::oracle {
namespace {

bool IsExponentOnly(const Format& format) { return format.mantissa_bits == 0; }

struct Fields {
  bool negative;
  std::uint32_t exponent, fraction;
  bool exponent_is_ones, fraction_is_ones;
};

Fields Split(const Format& format, std::uint32_t code) {
  const std::uint32_t fractions = 1u << format.mantissa_bits;
  const std::uint32_t exponents = 1u << format.exponent_bits;
  Fields fields{};
  fields.fraction = code % fractions;
  fields.exponent = code / fractions % exponents;
  fields.negative = format.is_signed && code / fractions / exponents % 2 == 1;
  fields.exponent_is_ones = fields.exponent == exponents - 1;
  fields.fraction_is_ones = fields.fraction == fractions - 1;
  return fields;
}

// The value of the fields as a finite number, even if the code is NaN or Inf.
double FiniteValue(const Format& format, std::uint32_t exponent, std::uint32_t fraction) {
  const double part = fraction / std::ldexp(1.0, format.mantissa_bits);
  const int e = static_cast<int>(exponent);
  if (e == 0 && !IsExponentOnly(format)) return std::ldexp(part, 1 - format.bias);
  return std::ldexp(1.0 + part, e - format.bias);
}

}  // namespace

Kind Classify(const Format& format, std::uint32_t code) {
  const Fields fields = Split(format, code);
  switch (format.specials) {
    case Specials::kNone:
      break;
    case Specials::kNan:
    case Specials::kOnlyOnesNan:
      if (fields.exponent_is_ones && fields.fraction_is_ones) return Kind::kNan;
      break;
    case Specials::kInfAndNan:
      if (fields.exponent_is_ones) return fields.fraction == 0 ? Kind::kInf : Kind::kNan;
      break;
  }
  if (IsExponentOnly(format) || fields.exponent > 0) return Kind::kNormal;
  return fields.fraction == 0 ? Kind::kZero : Kind::kSubnormal;
}

double Value(const Format& format, std::uint32_t code) {
  const Fields fields = Split(format, code);
  const Kind kind = Classify(format, code);
  double value = FiniteValue(format, fields.exponent, fields.fraction);
  if (kind == Kind::kInf) value = std::numeric_limits<double>::infinity();
  if (kind == Kind::kNan) value = std::numeric_limits<double>::quiet_NaN();
  return fields.negative ? -value : value;
}

Grid::Grid(const Format& format) : format_(format) {
  const std::uint32_t codes = 1u << (format.exponent_bits + format.mantissa_bits);
  std::uint32_t code = 0;
  for (; code < codes; ++code) {
    const Kind kind = Classify(format, code);
    if (kind == Kind::kInf || kind == Kind::kNan) break;
    magnitudes_.push_back(Value(format, code));
  }
  const std::uint32_t fractions = 1u << format.mantissa_bits;
  magnitudes_.push_back(FiniteValue(format, code / fractions, code % fractions));
  for (code = 0; code < codes; ++code) {
    has_inf_ |= Classify(format, code) == Kind::kInf;
    has_nan_ |= Classify(format, code) == Kind::kNan;
  }
  nan_ = codes - 1;
}

std::size_t Grid::Below(double x, std::size_t* near) const {
  if (near != nullptr && magnitudes_[*near] <= x && x < magnitudes_[*near + 1]) return *near;
  const auto above = std::upper_bound(magnitudes_.begin(), magnitudes_.end(), x);
  const auto below = static_cast<std::size_t>(above - magnitudes_.begin()) - 1;
  if (near != nullptr) *near = below;
  return below;
}

bool Grid::RoundsUp(std::size_t below, double x, bool negative, Rounding rounding,
                    std::uint32_t random16) const {
  const double low = magnitudes_[below], high = magnitudes_[below + 1];
  const double part = (x - low) / (high - low);  // exact: the gap is a power of two
  switch (rounding) {
    case Rounding::kNearestEven:
      if (IsExponentOnly(format_)) return below == 0 ? part > 0.0 : part >= 0.5;
      return part > 0.5 || (part == 0.5 && below % 2 == 1);
    case Rounding::kTowardZero:
      return false;
    case Rounding::kTowardPositive:
      return part > 0.0 && !negative;
    case Rounding::kStochastic:
      return std::floor(part * 65536.0) + random16 >= 65536.0;
  }
  return false;
}

std::uint32_t Grid::Round(float x, Rounding rounding, std::uint32_t random16, Overflow overflow,
                          std::size_t* near) const {
  if (std::isnan(x)) return nan_;
  const bool negative = std::signbit(x) && format_.is_signed;  // unsigned formats encode |x|
  const double magnitude = std::fabs(static_cast<double>(x));
  const auto largest = static_cast<std::uint32_t>(magnitudes_.size() - 2);
  const std::uint32_t sign = negative ? 1u << (format_.exponent_bits + format_.mantissa_bits) : 0u;
  if (magnitude < magnitudes_.front()) return sign;  // E8M0 below its least value: code 0
  std::uint32_t code = largest + 1;
  if (magnitude < magnitudes_.back()) {
    const std::size_t below = Below(magnitude, near);
    code = static_cast<std::uint32_t>(below) +
           (RoundsUp(below, magnitude, negative, rounding, random16) ? 1u : 0u);
  }
  if (code <= largest) return sign + code;
  const bool inward =
      !std::isinf(x) && !IsExponentOnly(format_) &&
      (rounding == Rounding::kTowardZero || (rounding == Rounding::kTowardPositive && negative));
  if (overflow == Overflow::kSaturate || inward) return sign + largest;
  if (has_inf_) return sign + largest + 1;
  return has_nan_ ? sign + nan_ : sign + largest;
}

}  // namespace fp4lab::oracle
