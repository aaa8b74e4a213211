// MS-EDEN: the scales of nearest rounding, corrected so that the quantization is unbiased.
//
// Source: Quartet II, arXiv 2601.22813 section 4. After a random rotation, rounding to nearest is
// biased along x by a factor that <x, x> / <x, Q(x)> undoes; the corrected block scales are rounded
// at random, as nearest rounding would bring the bias back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/dialect/random_source.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/dialect/statistic.h"

namespace fp4lab {

inline constexpr std::size_t kMsEdenGroup = 128;  // elements that share one correction

// A piece of a row that starts at a multiple of kMsEdenGroup: its elements, their codes and the
// numbers of its blocks, of which bytes and scales are overwritten.
struct MsEdenRow {
  std::span<const float> x;
  std::span<const std::uint8_t> codes;
  std::size_t block_cols = 16;
  std::uint64_t first_block = 0;  // the number of its first block in the grid, row-major
  std::uint8_t* bytes = nullptr;
  float* scales = nullptr;
};

// The sums of one group, its elements one after the other. Shared with the device.
struct MsEdenSums {
  OrderedSum squares, products;

  // x and its quantized element times the block's scale.
  constexpr void Add(float x, float value, const Level& level) {
    squares.Add(x * x);
    products.Add(x * (value * level.decode));
  }
  constexpr float Correction() const {
    const float f = squares.Total() / products.Total();
    return f > 0.0f && f <= kFloatMax ? f : 1.0f;
  }
};

// The stored byte of a scale s under a correction f; 16 random bits.
constexpr std::uint8_t CorrectedScaleByte(const Dialect& d, float s, float f, std::uint32_t bits) {
  return static_cast<std::uint8_t>(Encode(d.scale, s * f, Rounding::kStochastic, bits));
}

// The source of the scales' random bits, given the elements' source.
constexpr RandomSource ScaleSource(RandomSource source) {
  source.stream.tensor += 1u << 30;
  return source;
}
// The random bits of a block's scale; the block by its number in the grid, row-major.
constexpr std::uint32_t ScaleBits(const RandomSource& source, std::uint64_t block) {
  return source.Bits(16, block, 1);
}

// For each group: f = fl(a / b), a = sum of x * x, b = sum of x * fl(fl(value * s) * D) (base/
// reduce.h), f = 1 where that is not a positive finite number; s' = the scale format's value of
// fl(s * f), rounded at random with the 16 bits of the block's number in the stream of tensor +
// 2^30.
void CorrectScales(const Dialect& dialect, const Level& level, const DialectOptions& options,
                   const MsEdenRow& row);

}  // namespace fp4lab
