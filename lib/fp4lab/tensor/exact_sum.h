// An exact sum: fixed point, wide enough for any product of two scaled codes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fp4lab {

class ExactSum {
 public:
  // Terms are multiples of 2^kLeast and sums stay below 2^kMost. Products of two elements, two
  // block scales and a binary32 factor lie in [2^-450, 2^420].
  static constexpr int kLeast = -480, kMost = 600;

  // Adds significand * 2^exponent; |significand| < 2^62, kLeast <= exponent < 500.
  void Add(std::int64_t significand, int exponent);
  // Adds x, which must be finite and a multiple of 2^kLeast below 2^560.
  void Add(double x);

  // The sign of the sum: -1, 0 or +1.
  int Sign() const;
  // The sum rounded to binary32, RNE; subnormals are kept, a zero is +0, overflow gives infinity.
  float ToFloat() const;
  // |sum| rounded up to binary64.
  double MagnitudeUp() const;

 private:
  static constexpr std::size_t kLimbs = (kMost - kLeast) / 32 + 3;
  struct Magnitude {
    bool negative = false;
    std::array<std::uint32_t, kLimbs> digits = {};  // least significant first
    int top = -1;                                   // place of the highest one bit; -1: zero
    // Bits [from, from + 64); bits outside the number are zero.
    std::uint64_t Bits(int from) const;
    bool AnyBelow(int place) const;
  };
  Magnitude Normalized() const;

  std::array<std::int64_t, kLimbs> limbs_ = {};  // limb i counts 2^(32 i + kLeast)
  std::size_t adds_ = 0;
  void Carry();
};

}  // namespace fp4lab
