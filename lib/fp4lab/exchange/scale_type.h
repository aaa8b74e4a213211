// The types in which scales of blocks are stored: bytes of a scale format, or numbers.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "fp4lab/formats/format.h"

namespace fp4lab {

enum class ScaleType : std::uint8_t { kByte, kBF16, kFP32 };
struct NamedScaleType {
  ScaleType type;
  std::string_view name;
  std::size_t bytes;  // of one scale
};
inline constexpr std::array kScaleTypes = {
    NamedScaleType{ScaleType::kByte, "byte", 1},
    NamedScaleType{ScaleType::kBF16, "bf16", 2},
    NamedScaleType{ScaleType::kFP32, "fp32", 4},
};
constexpr const NamedScaleType& Named(ScaleType type) {
  return kScaleTypes[static_cast<std::size_t>(type)];
}
constexpr std::optional<ScaleType> FindScaleType(std::string_view name) {
  for (const NamedScaleType& t : kScaleTypes) {
    if (t.name == name) return t.type;
  }
  return std::nullopt;
}

// A scale as an integer: its byte in `format`, or the bits of its number. All NaNs of a number type
// are one scale, the quiet NaN. A value is rounded to nearest even, of bytes as by Encode.
inline constexpr std::uint32_t kScaleNan = 0x7FC00000u;
constexpr std::uint32_t ScaleCodeOf(ScaleType type, FormatId format, float value) {
  if (type == ScaleType::kByte) return Encode(format, value);
  if (value != value) return type == ScaleType::kFP32 ? kScaleNan : kScaleNan >> 16;
  if (type == ScaleType::kFP32) return std::bit_cast<std::uint32_t>(value);
  return Encode(FormatId::kBF16, value, Rounding::kNearestEven, 0, Overflow::kSpecial);
}
constexpr float ScaleValueOf(ScaleType type, FormatId format, std::uint32_t code) {
  if (type == ScaleType::kByte) return Decode(format, code);
  return std::bit_cast<float>(type == ScaleType::kFP32 ? code : code << 16);
}

// Scale number `place` of an array of stored scales, read and written, little-endian.
constexpr std::uint32_t ScaleCodeAt(std::span<const std::uint8_t> scales, std::size_t place,
                                    ScaleType type) {
  if (type == ScaleType::kByte) return scales[place];
  const std::size_t width = Named(type).bytes;
  std::uint32_t code = 0;
  for (std::size_t i = width; i-- > 0;) code = code << 8 | scales[place * width + i];
  const std::uint32_t magnitude = code << (8 * (4 - width)) & 0x7FFFFFFFu;
  return magnitude > 0x7F800000u ? kScaleNan >> (8 * (4 - width)) : code;
}
constexpr void PutScaleCode(std::uint32_t code, std::size_t place, ScaleType type,
                            std::span<std::uint8_t> scales) {
  const std::size_t width = Named(type).bytes;
  for (std::size_t i = 0; i < width; ++i) {
    scales[place * width + i] = static_cast<std::uint8_t>(code >> 8 * i);
  }
}

}  // namespace fp4lab
