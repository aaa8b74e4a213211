// Matrices whose quantization depends on subnormal numbers and on the direction of rounding.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"

namespace fp4lab::host {

struct NamedInput {
  std::string name;
  Matrix<float> x;
};

// Random signs and fractions; exponents from `first`, `exponents` of them, one a block of 16.
inline Matrix<float> RandomMatrix(std::size_t rows, std::size_t cols, int first, int exponents,
                                  std::uint64_t seed = 1) {
  Matrix<float> x(rows, cols);
  const RandomStream stream{.seed = seed, .step = 0, .tensor = 0};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::uint32_t bits = stream.Bits32(i);
    const auto block = static_cast<std::uint32_t>(i / 16);
    const auto exponent = static_cast<std::uint32_t>(first) +
                          (block * 7u + (bits >> 29)) % static_cast<std::uint32_t>(exponents);
    x.values[i] = std::bit_cast<float>((bits & 0x807FFFFFu) | exponent << 23);
  }
  return x;
}

// Ordinary numbers, numbers around 2^-126 (subnormal ones, scales and products among them), and
// both in one matrix.
inline const std::vector<NamedInput>& Inputs() {
  static const std::vector<NamedInput> inputs = [] {
    std::vector<NamedInput> all = {{"ordinary", RandomMatrix(32, 96, 120, 8)},
                                   {"tiny", RandomMatrix(32, 96, 0, 6)},
                                   {"wide", RandomMatrix(32, 96, 0, 160)}};
    Matrix<float> smallest(2, 32, 1e-40f);  // the scale of nvfp4.te is 3 of 127, not 0
    all.push_back({"1e-40", smallest});
    return all;
  }();
  return inputs;
}

inline std::vector<float> Bf16(const Matrix<float>& x) {
  std::vector<float> rounded;
  for (const float v : x.values) {
    rounded.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xFFFF0000u));
  }
  return rounded;
}

inline Matrix<float> Bf16Matrix(const Matrix<float>& x) {
  Matrix<float> y = x;
  y.values = Bf16(x);
  return y;
}

}  // namespace fp4lab::host
