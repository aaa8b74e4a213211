// Division of 31-bit numbers by a divisor that is the same for a whole launch.
#pragma once

#include <cstdint>

namespace fp4lab::cuda {

// Granlund and Montgomery, PLDI 1994, figure 4.1: n / d = (umulhi(m, n) + n) >> s for n < 2^31,
// with s = ceil(log2 d) and m = floor(2^32 (2^s - d) / d) + 1.
struct Divider {
  std::uint32_t divisor = 1, multiplier = 1, shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t d) : divisor(d) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint32_t>(
        (std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - d) / d + 1);
  }
  __device__ std::uint32_t Quotient(std::uint32_t n) const {
    return (__umulhi(multiplier, n) + n) >> shift;
  }
};

}  // namespace fp4lab::cuda
