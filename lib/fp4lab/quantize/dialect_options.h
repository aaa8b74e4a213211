// The options of a quantization in any dialect.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/block/quantized.h"
#include "fp4lab/quantize/random_source.h"

namespace fp4lab {

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
