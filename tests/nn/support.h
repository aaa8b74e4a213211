// Inputs for the tests of nn.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "fp4lab/base/random.h"

namespace fp4lab {

// Standard normal values, different for each seed.
inline std::vector<double> RandomValues(std::size_t count, std::uint64_t seed) {
  const RandomStream stream{.seed = seed};
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(UniformOpen(stream.Bits32(2 * i))));
    const double angle = 2 * std::numbers::pi * UniformOpen(stream.Bits32(2 * i + 1));
    values[i] = radius * std::cos(angle);
  }
  return values;
}

}  // namespace fp4lab
