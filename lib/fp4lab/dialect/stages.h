// The quantization and decoding of a block through all stages of a dialect. The single stages are
// in tensor_scale_stage.h, scale_stage.h and element_stage.h.
#pragma once

#include <cstdint>

#include "fp4lab/dialect/decoded_product.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/element_stage.h"
#include "fp4lab/dialect/scale_stage.h"
#include "fp4lab/dialect/tensor_scale_stage.h"

namespace fp4lab {

// The numbers that all elements of a block share.
struct BlockNumbers {
  float amax = 0;          // b
  float scale_before = 0;  // t
  std::uint8_t byte = 0;
  float scale = 0;   // s
  float factor = 0;  // e, or the divisor
};

// The numbers of a block with amax b and scale before rounding t. Four over six computes its second
// candidate with 1.5 t.
constexpr BlockNumbers NumbersFrom(const Dialect& d, float b, float t, const TensorScale& l) {
  BlockNumbers n{.amax = b, .scale_before = t};
  n.byte = ScaleByteOf(d, b, t);
  n.scale = d.scale_encoding == ScaleEncoding::kBinary32 ? t : ScaleValueOf(d, n.byte);
  n.factor = FactorOf(d, b, n.scale, n.byte, l);
  return n;
}

// The code of element x. `random`: see CodeOf.
constexpr std::uint8_t QuantizedElement(const Dialect& d, const BlockNumbers& n,
                                        const TensorScale& l, float x, std::uint32_t random) {
  return CodeOf(d, x, n.scale, Scaled(d, x, n.factor, l), random);
}

// The factor that decodes a block's values: fl(fl(s*amax) * fl(1/C)) where the tensor scale is
// Transformer Engine's (dequantize_nvfp4.cuh), fl(s*D) elsewhere. 0 times infinity: see
// DecodedProduct, here and below.
constexpr float DecodeFactor(const Dialect& d, float s, float amax) {
  if (WithFormula<bool>(d.tensor_scale, ValuesHaveAmaxOf{})) {
    return DecodedProduct(s, amax) * (1.0f / TensorScaleConstant(d));
  }
  return DecodedProduct(s, TensorScaleOf(d, amax).decode);
}
// The decoded value of a code: its element value, divided by the prescale, times DecodeFactor.
constexpr float Dequantized(const Dialect& d, std::uint8_t code, float s, float amax) {
  float value = Decode(d.element, code);
  if (d.prescale != 1.0f) value /= d.prescale;
  return DecodedProduct(value, DecodeFactor(d, s, amax));
}

}  // namespace fp4lab
