// The result of a quantization, and the options of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/quantize/random_source.h"

namespace fp4lab {

// The result of a quantizer, without any storage layout.
struct Quantized {
  std::size_t rows = 0, cols = 0;
  std::vector<std::uint8_t> codes = {};  // (rows, cols), one code a byte
  std::size_t scale_rows = 0, scale_cols = 0;
  // (scale_rows, scale_cols), row-major: one byte per block; a 16x16 tile has one.
  std::vector<std::uint8_t> scales = {};
  std::vector<float> amax = {};  // one for the tensor or one per row; empty without a tensor scale
  std::vector<float> scale_values = {};  // binary32 scales, same grid; `scales` is then empty
  friend bool operator==(const Quantized&, const Quantized&) = default;
};

struct DialectOptions {
  // The tensor scale's amax, if the caller has it (a reduced or a post-RHT one): 1 value, or one
  // per row for row_scaled. If empty, it is computed: max |x|, where a NaN element is ignored or
  // makes it NaN, as the dialect says.
  std::vector<float> amax = {};
  // The random bits of stochastic rounding: `random` holds one field of at most 16 bits per
  // element, row-major; or `source` generates them, with a generator that Feeds the dialect.
  std::span<const std::uint16_t> random = {};
  std::optional<RandomSource> source = {};
};

}  // namespace fp4lab
