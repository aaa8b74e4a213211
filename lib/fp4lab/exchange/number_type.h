// The types of numbers that files hold, under all names by which files and people call them.
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

// One of kFormats, or one of the two that need no decoding.
struct NumberType {
  enum class Kind : std::uint8_t { kFormat, kFloat32, kUint8 };
  Kind kind = Kind::kFloat32;
  FormatId format = FormatId::kBF16;  // kFormat
  friend constexpr bool operator==(const NumberType&, const NumberType&) = default;
};

// "bfloat16", "bf16", "BF16", "F8_E4M3", "float32" ...; case does not count.
std::optional<NumberType> FindNumberType(std::string_view name);
// The same; Error(where, ...) that lists the names for one that is unknown.
NumberType RequireNumberType(std::string_view name, std::string_view where);

std::string_view Name(NumberType type);             // ml_dtypes's, "float32", "uint8"
std::string_view SafetensorsName(NumberType type);  // "F8_E4M3"; "U8" where it has none
int Bits(NumberType type);

// `count` values as binary32, exactly. Elements of less than 8 bits lie without gaps, the first one
// lowest. bytes.size() must be ceil(count * Bits(type) / 8).
std::vector<float> DecodeNumbers(NumberType type, std::span<const std::byte> bytes,
                                 std::size_t count);
void DecodeNumbers(NumberType type, std::span<const std::byte> bytes, std::span<float> values);

// The inverse, rounded to nearest even; beyond the largest finite value the format's Inf or NaN
// (ml_dtypes's and torch's casts), or the largest where it has neither. kUint8 is not written.
std::vector<std::byte> EncodeNumbers(NumberType type, std::span<const float> values);

}  // namespace fp4lab
