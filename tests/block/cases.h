// Matrices and formats on which block quantizers are compared.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/block_format.h"

namespace fp4lab {

// kBlockFormats, the two of the block size x scale format ablation, and odd shapes.
inline std::vector<NamedBlockFormat> TestFormats() {
  std::vector<NamedBlockFormat> formats(kBlockFormats.begin(), kBlockFormats.end());
  formats.push_back(
      {"e2m1, E8M0 at 16", {FormatId::kE2M1, FormatId::kE8M0, 1, 16, ScaleRule::kCeil}});
  formats.push_back(
      {"e2m1, E4M3 at 32", {FormatId::kE2M1, FormatId::kE4M3, 1, 32, ScaleRule::kNvfp4}});
  formats.push_back({"e2m3, 3x8", {FormatId::kE2M3, FormatId::kE8M0, 3, 8, ScaleRule::kRceil}});
  formats.push_back({"e3m2, 1x24", {FormatId::kE3M2, FormatId::kE8M0, 1, 24, ScaleRule::kEven}});
  formats.push_back(
      {"e2m1, 128x128", {FormatId::kE2M1, FormatId::kE4M3, 128, 128, ScaleRule::kNvfp4}});
  return formats;
}

enum class Kind {
  kNormal,    // Gaussian-like, two decades of row scales
  kTies,      // small multiples of 1/8 times powers of two, zeros of both signs
  kAnyFloat,  // any finite bit pattern
  kAnyBits    // any bit pattern at all: NaN, Inf, subnormals
};
inline constexpr Kind kKinds[] = {Kind::kNormal, Kind::kTies, Kind::kAnyFloat, Kind::kAnyBits};

inline float TestValue(Kind kind, const RandomStream& stream, std::uint64_t i, std::size_t row) {
  const PhiloxBlock bits = stream.Block(i);
  switch (kind) {
    case Kind::kNormal: {
      double sum = -6.0;
      for (int k = 0; k < 12; ++k) sum += UniformOpen(stream.Block(i * 3 + 1000000 + k / 4)[k % 4]);
      return static_cast<float>(sum * std::exp2(static_cast<double>(row % 7) - 3.0));
    }
    case Kind::kTies: {
      const int n = static_cast<int>(bits[0] % 97) - 48;
      if (n == 0) return bits[1] % 2 == 0 ? 0.0f : -0.0f;
      return std::ldexp(static_cast<float>(n), static_cast<int>(bits[2] % 3) - 4);
    }
    case Kind::kAnyFloat: {
      const std::uint32_t u =
          (bits[0] & 0x7F800000u) == 0x7F800000u ? bits[0] ^ 0x40000000u : bits[0];
      return std::bit_cast<float>(u);
    }
    case Kind::kAnyBits: {
      if (bits[1] % 19 == 0) return std::bit_cast<float>(bits[0] | 0x7F800000u);  // NaN
      if (bits[1] % 331 == 1) return std::bit_cast<float>(0x7F800000u | (bits[0] & 0x80000000u));
      return std::bit_cast<float>(bits[0]);
    }
  }
  return 0.0f;
}

inline Matrix<float> TestMatrix(Kind kind, std::size_t rows, std::size_t cols,
                                std::uint64_t seed = 1) {
  const RandomStream stream{.seed = seed, .step = 0, .tensor = static_cast<std::uint32_t>(kind)};
  Matrix<float> m(rows, cols);
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    m.values[i] = TestValue(kind, stream, i, i / cols);
  }
  return m;
}

inline std::vector<std::uint32_t> BitsOf(const Matrix<float>& m) {
  std::vector<std::uint32_t> bits(m.values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = std::bit_cast<std::uint32_t>(m.values[i]);
  return bits;
}

}  // namespace fp4lab
