// Where the random bits of stochastic rounding come from: a good generator, and poor ones that
// published kernels have had.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fp4lab/base/random.h"

namespace fp4lab {

enum class RandomGenerator : std::uint8_t {
  kPhilox,         // bits of their own for every element: RandomStream's Bits8, Bits16, Bits32
  kLinearCounter,  // the element's number, counted on from a random start
  kWordPerRow      // the bits of a row's first element for all of the row
};

struct NamedGenerator {
  RandomGenerator generator;
  std::string_view name;
};
inline constexpr std::array kRandomGenerators = {
    NamedGenerator{RandomGenerator::kPhilox, "philox"},
    NamedGenerator{RandomGenerator::kLinearCounter, "linear_counter"},
    NamedGenerator{RandomGenerator::kWordPerRow, "word_per_row"},
};

struct RandomSource {
  RandomStream stream = {};
  RandomGenerator generator = RandomGenerator::kPhilox;

  // `bits` (4, 8, 16 or 32) bits of element i of rows that are `cols` long, with zeros above.
  // 4 bits are the upper half of 8.
  constexpr std::uint32_t Bits(int bits, std::uint64_t i, std::size_t cols) const {
    switch (generator) {
      case RandomGenerator::kPhilox:
        break;
      case RandomGenerator::kLinearCounter:
        return static_cast<std::uint32_t>(stream.Block(0)[0] + i) & (~0u >> (32 - bits));
      case RandomGenerator::kWordPerRow:
        i -= i % cols;
        break;
    }
    if (bits == 32) return stream.Bits32(i);
    if (bits == 16) return stream.Bits16(i);
    return stream.Bits8(i) >> (8 - bits);
  }
};

}  // namespace fp4lab
