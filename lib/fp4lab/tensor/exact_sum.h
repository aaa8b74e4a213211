// A sum without rounding: fixed point, wide enough for any product of two scaled codes.
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

  // += significand * 2^exponent, |significand| < 2^62, kLeast <= exponent < 500.
  void Add(std::int64_t significand, int exponent);
  // += x, finite, a multiple of 2^kLeast below 2^560.
  void Add(double x);

  // -1, 0, +1.
  int Sign() const;
  // Rounded to binary32, RNE; subnormals are kept, a zero is +0, overflow gives infinity.
  float ToFloat() const;
  // The least binary64 number that is not below |sum|.
  double MagnitudeUp() const;

 private:
  static constexpr std::size_t kLimbs = (kMost - kLeast) / 32 + 3;
  struct Magnitude {
    bool negative = false;
    std::array<std::uint32_t, kLimbs> digits = {};  // least first
    int top = -1;                                   // place of the highest one bit; -1: zero
    // Bits [from, from + 64), zeros outside.
    std::uint64_t Bits(int from) const;
    bool AnyBelow(int place) const;
  };
  Magnitude Normalized() const;

  std::array<std::int64_t, kLimbs> limbs_ = {};  // limb i counts 2^(32 i + kLeast)
  std::size_t adds_ = 0;
  void Carry();
};

}  // namespace fp4lab
