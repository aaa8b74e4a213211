// A second statement of block quantization, for one block: scales and codes by search over all of
// them, products and quotients in long double rounded once. It shares no code with block/ but the
// types that name a format.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp4lab/block/block_format.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/oracle/formats.h"

namespace fp4lab::oracle {

struct Block {
  std::uint8_t scale = 0;            // 0 for kTensor
  std::vector<std::uint32_t> codes;  // one an element
};

class BlockQuantizer {
 public:
  // tensor_amax matters where the rule has a tensor scale.
  BlockQuantizer(const BlockFormat& format, float tensor_amax);

  // random16: one field an element for kStochastic, else empty.
  Block Quantize(std::span<const float> x, Rounding rounding,
                 std::span<const std::uint32_t> random16 = {}) const;

  // A block's scale byte, and what its elements are multiplied by, from its amax (no NaN).
  struct Scale {
    std::uint8_t byte;
    float multiplier;
  };
  Scale ScaleOf(float amax) const;

 private:
  Scale Nvfp4Scale(float amax) const;
  std::uint8_t E8m0Scale(float amax) const;

  BlockFormat format_;
  float tensor_amax_;
  Grid elements_, e4m3_;
  long double largest_;        // element
  long double largest_power_;  // the largest power of two that is an element at most
};

}  // namespace fp4lab::oracle
