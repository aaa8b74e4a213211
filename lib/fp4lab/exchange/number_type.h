// The types of numbers in files, under all names that file formats and users give them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/formats/format.h"

namespace fp4lab {

// A format of kFormats, float32 or uint8.
struct NumberType {
  enum class Kind : std::uint8_t { kFormat, kFloat32, kUint8 };
  Kind kind = Kind::kFloat32;
  FormatId format = FormatId::kBF16;  // used by kFormat only
  friend constexpr bool operator==(const NumberType&, const NumberType&) = default;
};

// The type of a name: "bfloat16", "bf16", "BF16", "F8_E4M3", "float32" ... Case does not matter,
// except that "F4" is safetensors' E2M1 and "f4" is NumPy's float32. nullopt for an unknown name.
std::optional<NumberType> FindNumberType(std::string_view name);
// FindNumberType, but throws Error(where, ...) with suggestions for an unknown name.
NumberType RequireNumberType(std::string_view name, std::string_view where);

std::string_view Name(NumberType type);             // ml_dtypes's, "float32", "uint8"
std::string_view SafetensorsName(NumberType type);  // "F8_E4M3"; "U8" for a type without a name
int Bits(NumberType type);

// Decodes `count` values to binary32, exactly. Elements of less than 8 bits are packed without
// gaps, the first one in the lowest bits. bytes.size() must be ceil(count * Bits(type) / 8).
std::vector<float> DecodeNumbers(NumberType type, std::span<const std::byte> bytes,
                                 std::size_t count);
void DecodeNumbers(NumberType type, std::span<const std::byte> bytes, std::span<float> values);

// Encodes values with RNE. Values beyond the largest finite value give the format's Inf or NaN (as
// casts of ml_dtypes and torch do), or the largest value if the format has neither. `type` must not
// be kUint8.
std::vector<std::byte> EncodeNumbers(NumberType type, std::span<const float> values);

}  // namespace fp4lab
