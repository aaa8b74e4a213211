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
#include "fp4lab/dialect/stages.h"

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

// For each group: f = fl(a / b), a = sum of x * x, b = sum of x * fl(fl(value * s) * D) (base/
// reduce.h), f = 1 where that is not a positive finite number; s' = the scale format's value of
// fl(s * f), rounded at random with the 16 bits of the block's number in the stream of tensor +
// 2^30.
void CorrectScales(const Dialect& dialect, const Level& level, const DialectOptions& options,
                   const MsEdenRow& row);

}  // namespace fp4lab
