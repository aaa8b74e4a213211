// The tables of the block stage's kernels.
#pragma once

#include <array>
#include <cstdint>

#include "fp4lab/block/plan.h"

namespace fp4lab {

// The tables of a dialect's block stage.
struct ScaleTables {
  ElementConstants constants;                 // of the scale's format
  ScaleConstants exponent;                    // of E8M0 scales by OCP's rules
  std::array<float, 256> values = {};         // ScaleValueOf of every byte
  std::array<std::uint8_t, 256> stored = {};  // ReplacedNan of every byte
};

}  // namespace fp4lab
