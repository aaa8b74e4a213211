#include "fp4lab/judge/attention/softmax_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

constexpr double kLess = 1.0 - 0x1p-20, kMore = 1.0 + 0x1p-20;
constexpr std::size_t kMostScales = 16;  // that are tried one by one

// The byte of a block's scale, for the largest p of the block times the row's S.
std::uint32_t WeightScaleByte(const PRule& rule, double b) {
  if (rule.scale == FormatId::kE8M0) {
    if (!(b > 0)) return 0;
    return static_cast<std::uint32_t>(std::clamp(std::ilogb(b) - 2 + 127, 0, 254));
  }
  return Encode(rule.scale, static_cast<float>(b / 6.0));
}

// 1 / max(1e-8, the row's largest p), times 2688.
double RowScale(double largest) { return 2688.0 / std::max(largest, 1e-8); }

struct ScaleRange {
  double lo, x, hi;
};

void RoundGroup(const PRule& rule, const ScaleRange& row, std::span<AllowedNumber> p) {
  AllowedNumber b;
  for (const AllowedNumber& w : p) {
    b = {std::max(b.lo, w.lo), std::max(b.x, w.x), std::max(b.hi, w.hi)};
  }
  // An E8M0 scale is made of exponent bits: nothing is rounded on the way. S is 1 if there is none.
  const bool rounds = rule.scale != FormatId::kE8M0, has_level = rule.level != PLevel::kNone;
  const std::uint32_t least = WeightScaleByte(rule, b.lo * row.lo * (rounds ? kLess : 1.0));
  const std::uint32_t most = WeightScaleByte(rule, b.hi * row.hi * (rounds ? kMore : 1.0));
  const double out_low = row.lo * (has_level ? kLess : 1.0);
  const double out_high = row.hi * (has_level ? kMore : 1.0);
  const std::uint32_t nominal = WeightScaleByte(rule, b.x * row.x);
  const auto element = [&](double v) { return RoundedTo64(rule.element, v); };
  const auto decoded = [&](double v) {
    return rule.decoded_to_bf16 ? RoundedTo64(FormatId::kBF16, v) : v;
  };
  // The value of weight w under scale s, where S of the row is `in` for the element and `out` for
  // its decoding, and the block's largest weight is `top`.
  const auto value = [&](double w, double s, double in, double out, double top) {
    if (s == 0.0 || w == 0.0) return 0.0;
    const double code = rule.by_exact_scale ? element(w / (top / 6.0)) : element(w * in / s);
    return decoded(code * s / out);
  };
  const double s = Decode(rule.scale, nominal);
  for (AllowedNumber& w : p) {
    AllowedNumber out{std::numeric_limits<double>::infinity(), value(w.x, s, row.x, row.x, b.x),
                      0.0};
    const auto widen = [&](std::uint32_t byte) {
      const double of = Decode(rule.scale, byte);
      out.lo = std::min(out.lo, value(w.lo * kLess, of, row.lo, out_high, b.hi));
      out.hi = std::max(out.hi, value(w.hi * kMore, of, row.hi, out_low, b.lo));
    };
    if (most - least < kMostScales) {
      for (std::uint32_t byte = least; byte <= most; ++byte) widen(byte);
    } else {
      out.lo = 0.0;
      out.hi = decoded(6.0 * Decode(rule.scale, most) / row.lo * kMore);
    }
    w = {std::min(out.lo, out.x), out.x, std::max(out.hi, out.x)};
  }
}

}  // namespace

double RoundedTo64(FormatId format, double x) {
  const IeeeArithmetic ieee;
  const Format f = FormatOf(format);
  const Overflow overflow =
      f.specials == Specials::kInfAndNan ? Overflow::kSpecial : Overflow::kSaturate;
  return Decode(f, Encode(f, static_cast<float>(x), Rounding::kNearestEven, 0, overflow));
}

void SpreadWeights(const PRule& rule, std::span<AllowedNumber> p) {
  const IeeeArithmetic ieee;
  const Format f = FormatOf(rule.element);
  const double unit = std::ldexp(1.0, -f.mantissa_bits - 1);
  const double least = std::ldexp(1.0, 1 - f.bias) * unit;  // of subnormal numbers
  for (AllowedNumber& w : p) {
    w.lo = std::max(0.0, w.lo * (1 - unit) - least);
    w.hi = w.hi * (1 + unit) + least;
  }
}

void RoundWeights(const PRule& rule, std::span<AllowedNumber> p) {
  const IeeeArithmetic ieee;
  if (rule.group == 0) {
    for (AllowedNumber& w : p) {
      w = {RoundedTo64(rule.element, w.lo * kLess), RoundedTo64(rule.element, w.x),
           RoundedTo64(rule.element, w.hi * kMore)};
    }
    return;
  }
  ScaleRange row{1, 1, 1};
  if (rule.level == PLevel::kRow) {
    AllowedNumber largest;
    for (const AllowedNumber& w : p) {
      largest = {std::max(largest.lo, w.lo), std::max(largest.x, w.x), std::max(largest.hi, w.hi)};
    }
    row = {RowScale(largest.hi), RowScale(largest.x), RowScale(largest.lo)};
  }
  const std::size_t group = static_cast<std::size_t>(rule.group);
  for (std::size_t from = 0; from < p.size(); from += group) {
    RoundGroup(rule, row, p.subspan(from, std::min(group, p.size() - from)));
  }
}

}  // namespace fp4lab
