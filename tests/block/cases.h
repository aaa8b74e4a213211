// Matrices and formats on which block quantizers are compared.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/tuned.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// The dialects that the tuned kernels compute: one row of the table for each formula.
inline std::vector<Dialect> TunedRows() {
  std::vector<Dialect> rows;
  for (const Dialect& d : Dialects()) {
    const bool nearest = d.rounding == ElementRounding::kNearestEven;
    if (nearest && WhyNotTuned(d).empty() && Canonical(d).name == d.name) rows.push_back(d);
  }
  return rows;
}

// TunedRows, the two dialects of the block size x scale format ablation, and odd block shapes.
inline std::vector<Dialect> TestDialects() {
  std::vector<Dialect> dialects = TunedRows();
  const auto add = [&](std::string_view name, BlockScale rule, FormatId element, int rows,
                       int cols) {
    dialects.push_back(DialectUnder(rule, element, rows, cols));
    dialects.back().name = name;
  };
  add("e2m1, E8M0 at 16", BlockScale::kCeil, FormatId::kE2M1, 1, 16);
  add("e2m1, E4M3 at 32", BlockScale::kFolded, FormatId::kE2M1, 1, 32);
  add("e2m3, 3x8", BlockScale::kRceil, FormatId::kE2M3, 3, 8);
  add("e3m2, 1x24", BlockScale::kEven, FormatId::kE3M2, 1, 24);
  add("e2m1, 128x128", BlockScale::kFolded, FormatId::kE2M1, 128, 128);
  return dialects;
}

enum class Kind {
  kNormal,    // Gaussian-like, row scales from 2^-3 to 2^3
  kTies,      // small multiples of 1/8 times powers of two, zeros of both signs
  kAnyFloat,  // any finite bit pattern
  kAnyBits    // any bit pattern: NaN, Inf, subnormals
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
