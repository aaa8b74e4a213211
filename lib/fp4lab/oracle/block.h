// An independent implementation of the quantization of one block, for tests: it searches all scales
// and all codes, and computes products and quotients in long double, rounded once. It shares no
// code with the library except the types that name formats and formulas, and covers the dialects of
// block/tuned.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/oracle/formats.h"

namespace fp4lab::oracle {

struct Block {
  std::uint8_t scale = 0;            // scale byte; 0 if the dialect has no blocks
  std::vector<std::uint32_t> codes;  // one an element
};

class BlockQuantizer {
 public:
  // tensor_amax is used only if the dialect has a tensor scale.
  BlockQuantizer(const Dialect& dialect, float tensor_amax);

  // Quantizes one block. random16: one 16-bit field an element for kStochastic, else empty.
  Block Quantize(std::span<const float> x, Rounding rounding,
                 std::span<const std::uint32_t> random16 = {}) const;

  // The scale byte of a block with this amax (not NaN), and the factor of its elements.
  struct Scale {
    std::uint8_t byte;
    float multiplier;
  };
  Scale ScaleOf(float amax) const;

 private:
  Scale Nvfp4Scale(float amax) const;
  std::uint8_t E8m0Scale(float amax) const;

  Dialect dialect_;
  float tensor_amax_;
  Grid elements_, e4m3_;
  long double largest_;        // the largest finite element
  long double largest_power_;  // the largest power of two that is not above largest_
};

}  // namespace fp4lab::oracle
