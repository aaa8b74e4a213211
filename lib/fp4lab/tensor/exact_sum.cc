#include "fp4lab/tensor/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

constexpr std::uint64_t kDigit = 0xFFFFFFFFu;
// Each term changes a limb by less than 2^33.
constexpr std::size_t kMostAdds = std::size_t{1} << 29;

}  // namespace

void ExactSum::Add(std::int64_t significand, int exponent) {
  const auto magnitude = static_cast<std::uint64_t>(significand < 0 ? -significand : significand);
  if (magnitude == 0) return;
  Expects(magnitude >> 62 == 0 && exponent >= kLeast && exponent < 500, "a term in range");
  const auto place = static_cast<std::size_t>(exponent - kLeast);
  const std::size_t limb = place / 32;
  const std::uint64_t low = (magnitude & kDigit) << place % 32;
  const std::uint64_t high = (magnitude >> 32) << place % 32;
  const std::int64_t sign = significand < 0 ? -1 : 1;
  limbs_[limb] += sign * static_cast<std::int64_t>(low & kDigit);
  limbs_[limb + 1] += sign * static_cast<std::int64_t>((low >> 32) + (high & kDigit));
  limbs_[limb + 2] += sign * static_cast<std::int64_t>(high >> 32);
  if (++adds_ == kMostAdds) Carry();
}

void ExactSum::Add(double x) {
  Expects(std::isfinite(x), "a finite term");
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto biased = static_cast<int>(bits >> 52 & 0x7FF);
  std::uint64_t significand = bits & 0xFFFFFFFFFFFFF;
  if (biased != 0) significand |= std::uint64_t{1} << 52;
  if (significand == 0) return;
  const int zeros = std::countr_zero(significand);
  const auto odd = static_cast<std::int64_t>(significand >> zeros);
  Add(bits >> 63 != 0 ? -odd : odd, std::max(biased, 1) - 1075 + zeros);
}

void ExactSum::Carry() {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i + 1 < kLimbs; ++i) {
    const std::int64_t value = limbs_[i] + carry;
    limbs_[i] = value & static_cast<std::int64_t>(kDigit);
    carry = value >> 32;
  }
  limbs_[kLimbs - 1] += carry;  // the last limb keeps the sign
  adds_ = 0;
}

ExactSum::Magnitude ExactSum::Normalized() const {
  ExactSum sum = *this;
  sum.Carry();
  Magnitude m;
  m.negative = sum.limbs_[kLimbs - 1] < 0;
  if (m.negative) {
    for (std::int64_t& limb : sum.limbs_) limb = -limb;
    sum.Carry();
  }
  for (std::size_t i = 0; i < kLimbs; ++i) {
    m.digits[i] = static_cast<std::uint32_t>(sum.limbs_[i]);
    if (m.digits[i] != 0) m.top = static_cast<int>(32 * i) + std::bit_width(m.digits[i]) - 1;
  }
  return m;
}

std::uint64_t ExactSum::Magnitude::Bits(int from) const {
  std::uint64_t bits = 0;
  for (int i = 0; i < 3; ++i) {
    const int limb = (from >= 0 ? from / 32 : (from - 31) / 32) + i;
    if (limb < 0 || limb >= static_cast<int>(kLimbs)) continue;
    const std::uint64_t digit = digits[static_cast<std::size_t>(limb)];
    const int left = 32 * limb - from;  // in (-32, 64]
    if (left >= 64) continue;
    bits |= left >= 0 ? digit << left : digit >> -left;
  }
  return bits;
}

bool ExactSum::Magnitude::AnyBelow(int place) const {
  for (int i = 0; i < place; i += 32) {
    const std::uint32_t mask =
        place - i >= 32 ? 0xFFFFFFFFu : (std::uint32_t{1} << (place - i)) - 1;
    if ((digits[static_cast<std::size_t>(i / 32)] & mask) != 0) return true;
  }
  return false;
}

int ExactSum::Sign() const {
  const Magnitude m = Normalized();
  return m.top < 0 ? 0 : m.negative ? -1 : 1;
}

float ExactSum::ToFloat() const {
  const Magnitude m = Normalized();
  if (m.top < 0) return 0.0f;
  const int unit = std::max(m.top + kLeast, -126) - 23;  // exponent of the last place kept
  const int place = unit - kLeast;
  std::uint64_t kept = m.Bits(place) & 0xFFFFFF;
  const bool half = (m.Bits(place - 1) & 1) != 0;
  if (half && (m.AnyBelow(place - 1) || (kept & 1) != 0)) ++kept;
  const double value = std::ldexp(static_cast<double>(kept), unit);
  const float magnitude =
      value >= 0x1p128 ? std::numeric_limits<float>::infinity() : static_cast<float>(value);
  return m.negative ? -magnitude : magnitude;
}

double ExactSum::MagnitudeUp() const {
  const Magnitude m = Normalized();
  if (m.top < 0) return 0.0;
  const int place = std::max(m.top - 52, 0);
  std::uint64_t kept = m.Bits(place) & ((std::uint64_t{1} << 53) - 1);
  if (m.AnyBelow(place)) ++kept;
  return std::ldexp(static_cast<double>(kept), place + kLeast);
}

}  // namespace fp4lab
