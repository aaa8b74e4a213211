// MS-EDEN: the scales of nearest rounding, corrected so that the quantization is unbiased.
//
// Source: Quartet II, arXiv 2601.22813 section 4. After a random rotation, rounding to nearest is
// biased along x by a factor that <x, x> / <x, Q(x)> corrects. The corrected block scales are
// rounded stochastically, because rounding to nearest would bias them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/diagnostics/statistic.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/quantize/random_source.h"

namespace fp4lab {

inline constexpr std::size_t kMsEdenGroup = 128;  // elements that share one correction

// A piece of a row that starts at a multiple of kMsEdenGroup: its elements, their codes, and the
// bytes and scales of its blocks, which CorrectScales overwrites.
struct MsEdenRow {
  std::span<const float> x;
  std::span<const std::uint8_t> codes;
  std::size_t block_cols = 16;
  std::uint64_t first_block = 0;  // the index of its first block in the grid, row-major
  std::uint8_t* bytes = nullptr;
  float* scales = nullptr;
};

// The correction of a group from its sums: their quotient, or 1 if that is not a positive finite
// number.
constexpr float MsEdenCorrection(float squares, float products) {
  const float f = squares / products;
  return f > 0.0f && f <= kFloatMax ? f : 1.0f;
}

// The sums of one group, whose elements are added one by one. Host and device share this struct.
struct MsEdenSums {
  OrderedSum squares, products;

  // Adds element x; `value` is its quantized element times the block scale.
  constexpr void Add(float x, float value, const TensorScale& tensor) {
    squares.Add(x * x);
    products.Add(x * (value * tensor.decode));
  }
  constexpr float Correction() const { return MsEdenCorrection(squares.Total(), products.Total()); }
};

// The stored byte of a scale s under a correction f, rounded with 16 random bits.
constexpr std::uint8_t CorrectedScaleByte(const Dialect& d, float s, float f, std::uint32_t bits) {
  return static_cast<std::uint8_t>(Encode(d.scale, s * f, Rounding::kStochastic, bits));
}

// The source of the scales' random bits, given the elements' source.
constexpr RandomSource ScaleSource(RandomSource source) {
  source.stream.tensor += 1u << 30;
  return source;
}
// The 16 random bits of a block's scale. `block`: the index of the block in the grid, row-major.
constexpr std::uint32_t ScaleBits(const RandomSource& source, std::uint64_t block) {
  return source.CounterBits(16, block, 1);
}

// Corrects the block scales of a piece of a row, for each group of kMsEdenGroup elements:
//   f  = fl(a / b), a = sum of x * x, b = sum of x * fl(fl(value * s) * D) (sums of
//   base/simd/reduce.h);
//        1 if the quotient is not a positive finite number
//   s' = fl(s * f) in the scale format, rounded stochastically with the 16 bits of the block's
//        index in the stream of tensor + 2^30
void CorrectScales(const Dialect& dialect, const TensorScale& tensor, const DialectOptions& options,
                   const MsEdenRow& row);

}  // namespace fp4lab
