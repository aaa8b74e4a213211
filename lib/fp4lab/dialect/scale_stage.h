// The block scale under a dialect: t from b, S and D, the stored byte from t, and its value.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/dialect/block_scale_rules.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// t, the block scale before rounding.
constexpr float ScaleBefore(const Dialect& d, float b, const TensorScale& l) {
  return BlockScaleBefore(d.block_scale, {b, TargetOf(d), d.scale_max, l});
}

// The byte of t, for encodings that derive the byte from t alone (all but kExponent and kBinary32).
constexpr std::uint8_t EncodedScale(const Dialect& d, float t) {
  return WithFormula<std::uint8_t>(d.scale_encoding, EncodedScaleOf{d.scale, t});
}

// Whether the rule treats amax b as Inf: b = Inf, and for EVEN, which adds half a unit of the
// element's last fraction bit, every b from the bits 0x7F800000 - 2^(22 - m) on (0x7F600000 for
// E2M1).
constexpr bool ReachesInf(const Dialect& d, float b) {
  const std::uint32_t added = d.block_scale == BlockScale::kEven
                                  ? EvenAddend(FormatOf(d.element).mantissa_bits)
                              : d.block_scale == BlockScale::kEvenQuarter ? kQuarterBinade
                                                                          : 0u;
  return std::bit_cast<std::uint32_t>(b) + added >= 0x7F800000u;
}

constexpr std::uint8_t EncodedExponent(const Dialect& d, float b, float t) {
  if (b != b) {  // NanRule::kBlock or kTensor: the amax of a block with a NaN is NaN
    const bool wraps =
        d.block_scale == BlockScale::kCeilLog2Wrapped || d.block_scale == BlockScale::kRoundLog2;
    return wraps ? kNotFiniteWrapped : std::uint8_t{0xFF};
  }
  if (d.inf_scale != InfScale::kRule && ReachesInf(d, b)) {
    return d.inf_scale == InfScale::kNan ? 0xFF
                                         : static_cast<std::uint8_t>(255 - MaxExponent(d.element));
  }
  return BlockScaleExponent(d.block_scale, {b, t, TargetOf(d), d.element});
}

// The stored byte: the dialect's nan_scale, if it has one, in place of a NaN byte.
constexpr std::uint8_t ReplacedNan(const Dialect& d, std::uint8_t byte) {
  const bool replaced = d.nan_scale >= 0 && IsNan(FormatOf(d.scale), byte);
  return replaced ? static_cast<std::uint8_t>(d.nan_scale) : byte;
}

// The stored byte of a block with amax b and t = ScaleBefore(d, b, level); 0 if the scale is stored
// in binary32.
constexpr std::uint8_t ScaleByteOf(const Dialect& d, float b, float t) {
  if (d.scale_encoding == ScaleEncoding::kBinary32) return 0;
  const std::uint8_t byte =
      d.scale_encoding == ScaleEncoding::kExponent ? EncodedExponent(d, b, t) : EncodedScale(d, t);
  return ReplacedNan(d, byte);
}

// The scale value that the quantizer and readers decode the byte to, from the value that it has in
// its format. ggml decodes NaN as 0.
constexpr float ScaleValueFrom(const Dialect& d, std::uint8_t byte, float decoded) {
  if (d.block_scale == BlockScale::kOneBlock) return 1.0f;
  if (d.scale_encoding == ScaleEncoding::kHalfUpGgml && byte == 0x7F) return 0.0f;
  return decoded;
}
constexpr float ScaleValueOf(const Dialect& d, std::uint8_t byte) {
  return ScaleValueFrom(d, byte, Decode(d.scale, byte));
}

}  // namespace fp4lab
