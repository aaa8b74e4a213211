// One output of the random Hadamard transform, by an exact sum in wide fixed point: the definition.
// constexpr and free of macros: host and device share it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "fp4lab/formats/format.h"
#include "fp4lab/transform/hadamard_transform.h"

namespace fp4lab {

// An exact sum of up to 2^20 BF16 values: a two's-complement number in base 2^32, unit 2^-133.
class ExactBf16Sum {
 public:
  static constexpr std::size_t kDigits = 10;

  // The number value * 2^(32 digit - 133).
  struct Term {
    std::size_t digit;
    std::int64_t value;
  };
  static constexpr Term TermOf(float bf16) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(bf16);
    const std::uint32_t e = (u >> 23) & 0xFF;
    const std::int64_t significand = ((u >> 16) & 0x7F) | (e > 0 ? 0x80 : 0);
    const std::uint32_t shift = e > 0 ? e - 1 : 0;  // value = significand * 2^(shift - 133)
    const std::int64_t term = significand << (shift % 32);
    return {shift / 32, (u >> 31) != 0 ? -term : term};
  }

  constexpr void Add(float bf16) { Add(TermOf(bf16)); }
  // `term`: that of one value, or the sum of those of several with one digit.
  constexpr void Add(const Term& term) { digits_[term.digit] += term.value; }

  // The sum times 2^scale, rounded once to binary32 (RNE); zero is +0.
  constexpr float Round(int scale) const {
    std::array<std::int64_t, kDigits> d = digits_;
    const bool negative = Normalise(&d) < 0;
    // The magnitude's highest digit but 0, the two below it, and whether any of the others has
    // bits.
    std::uint64_t lead[3] = {}, below[2] = {};
    bool rest = false, any_below = false;
    int top = -1;
    std::uint64_t carry = negative ? 1 : 0;
    for (std::size_t i = 0; i < kDigits; ++i) {
      carry += static_cast<std::uint64_t>(d[i]) ^ (negative ? 0xFFFFFFFF : 0);
      const std::uint64_t digit = carry & 0xFFFFFFFF;
      carry >>= 32;
      if (digit != 0) {
        lead[0] = digit;
        lead[1] = below[0];
        lead[2] = below[1];
        rest = any_below;
        top = static_cast<int>(i);
      }
      any_below = any_below || below[1] != 0;
      below[1] = below[0];
      below[0] = digit;
    }
    if (top < 0) return 0.0f;
    // The leading 52 bits and a sticky bit for all bits below them. The 53 bits are exact in
    // binary64 and round to 24 bits as the whole sum does, so that the cast is the only rounding.
    const int shift = std::countl_zero(static_cast<std::uint32_t>(lead[0]));
    const std::uint64_t third = lead[2] << shift;
    const std::uint64_t bits = (lead[0] << 32 | lead[1]) << shift | third >> 32;
    const bool sticky = rest || (bits & 0xFFF) != 0 || (third & 0xFFFFFFFF) != 0;
    const int low = 32 * (top - 1) - shift + 12;  // the exponent of the 52 bits, in units
    const double magnitude = static_cast<double>(bits >> 12 << 1 | (sticky ? 1u : 0u)) *
                             PowerOfTwo(low - 1 - 133 + scale);
    return static_cast<float>(negative ? -magnitude : magnitude);
  }

 private:
  static constexpr double PowerOfTwo(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  }
  // Propagates carries upwards, so that digits are in [0, 2^32). Returns the carry out of the top
  // digit, which is negative if the number is negative.
  static constexpr std::int64_t Normalise(std::array<std::int64_t, kDigits>* d) {
    std::int64_t carry = 0;
    for (std::size_t i = 0; i < kDigits; ++i) {
      std::int64_t& digit = (*d)[i];
      digit += carry;
      carry = digit >> 32;
      digit &= 0xFFFFFFFF;
    }
    return carry;
  }

  std::array<std::int64_t, kDigits> digits_{};
};

// The output of a group of `size` whose sum, with the signs of this output, is `sum`, before the
// rounding to BF16.
constexpr float HadamardOutputOf(int size, const ExactBf16Sum& sum) {
  if (HasExactHadamardFactor(size)) return sum.Round(-HadamardStages(size) / 2);
  return sum.Round(0) * HadamardFactor(size);
}

// Output y_j of one group of `size` BF16 values, before the rounding to BF16. value(k) returns
// element k with the transform's sign.
template <class Value>
constexpr float ExactHadamardOutput(int size, int j, const Value& value) {
  ExactBf16Sum sum;
  bool nan = false, plus = false, minus = false;
  for (int k = 0; k < size; ++k) {
    const bool odd = std::popcount(static_cast<unsigned>(j & k)) % 2 != 0;
    const float x = value(k);
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x) ^ (odd ? 0x80000000u : 0u);
    const std::uint32_t magnitude = u & 0x7FFFFFFFu;
    nan = nan || magnitude > 0x7F800000u;
    plus = plus || u == 0x7F800000u;
    minus = minus || u == 0xFF800000u;
    if (magnitude < 0x7F800000u) sum.Add(std::bit_cast<float>(u));
  }
  if (nan || (plus && minus)) return std::numeric_limits<float>::quiet_NaN();
  if (plus) return std::numeric_limits<float>::infinity();
  if (minus) return -std::numeric_limits<float>::infinity();
  return HadamardOutputOf(size, sum);
}

}  // namespace fp4lab
