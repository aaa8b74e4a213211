// What the block stage's kernels look up.
#pragma once

#include <array>

#include "fp4lab/block/plan.h"

namespace fp4lab {

// What a dialect's block stage looks up.
struct ScaleTables {
  ElementConstants constants;          // of the scale's format
  ScaleConstants exponent;             // of E8M0 scales by Dialect::mx_rule
  std::array<float, 256> values = {};  // ScaleValueOf every byte
};

}  // namespace fp4lab
