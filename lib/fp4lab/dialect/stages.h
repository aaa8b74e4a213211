// All stages of a dialect: level_two.h, scale_stage.h, element_stage.h; here a block and a reader
// as a whole.
#pragma once

#include <cstdint>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/element_stage.h"
#include "fp4lab/dialect/level_two.h"
#include "fp4lab/dialect/scale_stage.h"

namespace fp4lab {

// Everything of a block that its elements share.
struct BlockNumbers {
  float amax = 0;          // b
  float scale_before = 0;  // t
  std::uint8_t byte = 0;
  float scale = 0;   // s
  float factor = 0;  // e, or the divisor
};

// From t on; four over six asks for it with 1.5 t.
constexpr BlockNumbers NumbersFrom(const Dialect& d, float b, float t, const Level& l) {
  BlockNumbers n{.amax = b, .scale_before = t};
  n.byte = ScaleByteOf(d, b, t);
  n.scale = d.scale_encoding == ScaleEncoding::kBinary32 ? t : ScaleValueOf(d, n.byte);
  n.factor = FactorOf(d, b, n.scale, n.byte, l);
  return n;
}

constexpr std::uint8_t QuantizedElement(const Dialect& d, const BlockNumbers& n, const Level& l,
                                        float x, std::uint32_t random) {
  return CodeOf(d, x, n.scale, Scaled(d, x, n.factor, l), random);
}

// The value of a code: fl(value * fl(fl(s*amax) * fl(1/C))) where level 2 is Transformer Engine's
// (dequantize_nvfp4.cuh), fl(value * fl(s*D)) elsewhere.
constexpr float Dequantized(const Dialect& d, std::uint8_t code, float s, float amax) {
  float value = Decode(d.element, code);
  if (d.prescale != 1.0f) value /= d.prescale;
  switch (d.level_two) {
    case LevelTwo::kEncodeScale:
    case LevelTwo::kEncodeApproximate:
    case LevelTwo::kEncodeFused:
    case LevelTwo::kEncodePartial:
    case LevelTwo::kEncodeJax:
      return value * (s * amax * (1.0f / LevelTwoConstant(d)));
    case LevelTwo::kEncodePlain:
    case LevelTwo::kMultiplier:
    case LevelTwo::kTwoDivisions:
    case LevelTwo::kDivisor:
    case LevelTwo::kDivisorOrOne:
    case LevelTwo::kTensorFp8:
    case LevelTwo::kNone:
      break;
  }
  return value * (s * LevelOf(d, amax).decode);
}

}  // namespace fp4lab
