// The behaviour of a dialect at zeros, NaN, Inf and subnormals, found by running the quantizer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// The result for one input of two blocks: the first block holds the special case, the second is
// ordinary.
struct Behaviour {
  std::string_view input;
  std::uint8_t scale = 0, code = 0;  // scale byte of the first block, code of its first element
  std::uint8_t neighbour = 0;        // code of the second element, half as large as the others
  std::uint8_t other_scale = 0;      // scale byte of the second block
};
std::vector<Behaviour> Behaviours(const Dialect& dialect);

}  // namespace fp4lab
