// Deterministic test values.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <span>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"

namespace fp4lab {

// Approximately N(0, deviation^2), by Box-Muller.
inline void FillNormalValues(std::uint64_t seed, double deviation, std::span<float> out) {
  const RandomStream stream{seed, 0, 0};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double u = UniformOpen(stream.Bits32(2 * i)), w = UniformOpen(stream.Bits32(2 * i + 1));
    out[i] = static_cast<float>(deviation * std::sqrt(-2.0 * std::log(u)) *
                                std::cos(2.0 * std::numbers::pi * w));
  }
}

inline Matrix<float> NormalMatrix(std::uint64_t seed, std::size_t rows, std::size_t cols,
                                  double deviation = 1.0) {
  Matrix<float> m(rows, cols);
  FillNormalValues(seed, deviation, m.values);
  return m;
}

inline bool SameBits(const Matrix<float>& a, const Matrix<float>& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

}  // namespace fp4lab
