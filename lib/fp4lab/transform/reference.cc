// The scalar definition of the random Hadamard transform: exact sums in wide fixed point.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp4lab/base/error.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::reference {
namespace {

// An exact sum of up to 2^20 BF16 values: a two's-complement number in base 2^32, unit 2^-133.
class ExactSum {
 public:
  void Add(float bf16) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(bf16);
    const std::uint32_t e = (u >> 23) & 0xFF;
    const std::int64_t significand = ((u >> 16) & 0x7F) | (e > 0 ? 0x80 : 0);
    const std::uint32_t shift = e > 0 ? e - 1 : 0;  // value = significand * 2^(shift - 133)
    const std::int64_t term = significand << (shift % 32);
    digits_[shift / 32] += (u >> 31) != 0 ? -term : term;
  }

  // The sum times 2^scale, rounded once to binary32 (RNE); zero is +0.
  float Round(int scale) const {
    std::array<std::int64_t, kDigits> d = digits_;
    bool negative = false;
    if (Normalise(&d) < 0) {
      negative = true;
      for (std::size_t i = 0; i < kDigits; ++i) d[i] = -digits_[i];
      Normalise(&d);
    }
    std::size_t top = kDigits;
    while (top > 0 && d[top - 1] == 0) --top;
    if (top == 0) return 0.0f;
    // The leading 64 bits with everything below as a sticky bit; ldexp and the cast are exact up
    // to the one rounding, since 55 bits and a sticky bit round to 24 as the whole sum does.
    const int length = static_cast<int>(top - 1) * 32 + std::bit_width(Digit(d, top - 1));
    std::uint64_t lead = 0;
    bool sticky = false;
    for (int bit = length - 1; bit >= 0; --bit) {
      const bool one = (Digit(d, static_cast<std::size_t>(bit) / 32) >> (bit % 32) & 1) != 0;
      if (bit >= length - 50) {
        lead = lead << 1 | (one ? 1u : 0u);
      } else {
        sticky = sticky || one;
      }
    }
    const int low = length > 50 ? length - 50 : 0;
    const double magnitude =
        std::ldexp(static_cast<double>(lead << 1 | (sticky ? 1u : 0u)), low - 1 - 133 + scale);
    return static_cast<float>(negative ? -magnitude : magnitude);
  }

 private:
  static constexpr std::size_t kDigits = 10;

  static std::uint32_t Digit(const std::array<std::int64_t, kDigits>& d, std::size_t i) {
    return static_cast<std::uint32_t>(d[i]);
  }
  // Carries upwards, so that digits are in [0, 2^32); returns what leaves the top (negative if the
  // number is).
  static std::int64_t Normalise(std::array<std::int64_t, kDigits>* d) {
    std::int64_t carry = 0;
    for (std::int64_t& digit : *d) {
      digit += carry;
      carry = digit >> 32;
      digit &= 0xFFFFFFFF;
    }
    return carry;
  }

  std::array<std::int64_t, kDigits> digits_{};
};

float SignedElement(float x, std::uint32_t negate) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ (negate & 1u) << 31);
}

// y_j of one group, before the rounding to BF16.
float Output(const float* group, int size, std::uint32_t sign_mask, int j) {
  ExactSum sum;
  bool nan = false, plus = false, minus = false;
  for (int k = 0; k < size; ++k) {
    const std::uint32_t odd =
        static_cast<std::uint32_t>(std::popcount(static_cast<unsigned>(j & k)));
    const float term = SignedElement(group[k], (sign_mask >> k) ^ odd);
    nan = nan || std::isnan(term);
    plus = plus || (std::isinf(term) && term > 0);
    minus = minus || (std::isinf(term) && term < 0);
    if (std::isfinite(term)) sum.Add(term);
  }
  if (nan || (plus && minus)) return std::numeric_limits<float>::quiet_NaN();
  if (plus || minus) return SignedElement(std::numeric_limits<float>::infinity(), minus ? 1 : 0);
  return size == 16 ? sum.Round(-2) : sum.Round(0) * kInverseSqrt32;
}

}  // namespace

void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out) {
  CheckHadamard(x, size, out);
  const std::size_t n = static_cast<std::size_t>(size);
  std::array<float, 32> group{};
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; c += n) {
      for (std::size_t k = 0; k < n; ++k) group[k] = x(r, c + k);
      for (std::size_t j = 0; j < n; ++j) {
        out(r, c + j) = RoundToBf16(Output(group.data(), size, sign_mask, static_cast<int>(j)));
      }
    }
  }
}

}  // namespace fp4lab::reference
