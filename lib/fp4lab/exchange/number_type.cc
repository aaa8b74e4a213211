#include "fp4lab/exchange/number_type.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/formats/encode.h"

namespace fp4lab {
namespace {

struct Alias {
  std::string_view alias, name;
};
// Names that kFormats does not list, in lower case.
constexpr std::array kAliases = {
    Alias{"f32", "float32"},      Alias{"fp32", "float32"},          Alias{"f4", "float32"},
    Alias{"u8", "uint8"},         Alias{"f16", "float16"},           Alias{"half", "float16"},
    Alias{"f4_e2m1", "e2m1"},     Alias{"float4_e2m1fn_x2", "e2m1"}, Alias{"f6_e2m3", "e2m3"},
    Alias{"f6_e3m2", "e3m2"},     Alias{"f8_e4m3", "e4m3"},          Alias{"f8_e5m2", "e5m2"},
    Alias{"f8_e8m0", "e8m0"},     Alias{"e4m3fn", "e4m3"},           Alias{"float8_e4m3", "e4m3"},
    Alias{"float8_e8m0", "e8m0"},
};

struct FileName {
  FormatId format;
  std::string_view name;
};
constexpr std::array kSafetensorsNames = {
    FileName{FormatId::kE2M1, "F4"},      FileName{FormatId::kE2M3, "F6_E2M3"},
    FileName{FormatId::kE3M2, "F6_E3M2"}, FileName{FormatId::kE4M3, "F8_E4M3"},
    FileName{FormatId::kE5M2, "F8_E5M2"}, FileName{FormatId::kE8M0, "F8_E8M0"},
    FileName{FormatId::kFP16, "F16"},     FileName{FormatId::kBF16, "BF16"},
};

}  // namespace

std::optional<NumberType> FindNumberType(std::string_view name) {
  std::string small = LowerCase(name);
  if (name == "F4") return NumberType{NumberType::Kind::kFormat, FormatId::kE2M1};  // safetensors
  for (const Alias& a : kAliases) {
    if (a.alias == small) small = a.name;
  }
  if (small == "float32") return NumberType{NumberType::Kind::kFloat32, FormatId::kBF16};
  if (small == "uint8") return NumberType{NumberType::Kind::kUint8, FormatId::kBF16};
  const std::optional<FormatId> format = FindFormat(small);
  if (!format || FormatOf(*format).bits > 16) return std::nullopt;
  return NumberType{NumberType::Kind::kFormat, *format};
}

NumberType RequireNumberType(std::string_view name, std::string_view where) {
  if (const std::optional<NumberType> type = FindNumberType(name)) return *type;
  std::vector<std::string> known = {"float32", "uint8"};
  for (const NamedFormat& f : kFormats) {
    if (f.format.bits <= 16) known.emplace_back(f.name);
  }
  throw Error(where,
              "\"" + std::string(name) + "\" is not a number type; " + DidYouMean(name, known));
}

std::string_view Name(NumberType type) {
  switch (type.kind) {
    case NumberType::Kind::kFormat:
      return Named(type.format).name;
    case NumberType::Kind::kFloat32:
      return "float32";
    case NumberType::Kind::kUint8:
      return "uint8";
  }
  return "";
}

std::string_view SafetensorsName(NumberType type) {
  if (type.kind == NumberType::Kind::kFloat32) return "F32";
  if (type.kind == NumberType::Kind::kUint8) return "U8";
  for (const FileName& f : kSafetensorsNames) {
    if (f.format == type.format) return f.name;
  }
  return "U8";
}

int Bits(NumberType type) {
  switch (type.kind) {
    case NumberType::Kind::kFormat:
      return FormatOf(type.format).bits;
    case NumberType::Kind::kFloat32:
      return 32;
    case NumberType::Kind::kUint8:
      return 8;
  }
  return 0;
}

std::vector<float> DecodeNumbers(NumberType type, std::span<const std::byte> bytes,
                                 std::size_t count) {
  const IeeeArithmetic ieee;
  std::vector<float> values(count);
  DecodeNumbers(type, bytes, values);
  return values;
}

void DecodeNumbers(NumberType type, std::span<const std::byte> bytes, std::span<float> values) {
  const IeeeArithmetic ieee;
  const int bits = Bits(type);
  const std::size_t count = values.size();
  Expects(bytes.size() == DivideUp(count * static_cast<std::size_t>(bits), 8),
          "bytes that the elements fill");
  if (count == 0) return;
  const std::span<const std::uint8_t> raw(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                          bytes.size());
  if (type.kind == NumberType::Kind::kFloat32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (type.kind == NumberType::Kind::kUint8) {
    std::copy(raw.begin(), raw.end(), values.begin());
  } else if (bits == 16) {
    std::vector<std::uint16_t> codes(count);
    std::memcpy(codes.data(), bytes.data(), bytes.size());
    Decode(type.format, codes, values);
  } else if (bits == 8) {
    Decode(type.format, raw, values);
  } else {
    const CodeOrder order = bits == 4 ? CodeOrder::kLowFirst : CodeOrder::kDense6;
    Decode(type.format, UnpackCodes(raw, 1, count, order), values);
  }
}

std::vector<std::byte> EncodeNumbers(NumberType type, std::span<const float> values) {
  const IeeeArithmetic ieee;
  Expects(type.kind != NumberType::Kind::kUint8, "a type of floating-point numbers");
  const auto as_bytes = [](const auto& elements) {
    const auto bytes = std::as_bytes(std::span(elements));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (type.kind == NumberType::Kind::kFloat32) return as_bytes(values);
  const EncodeOptions options{.overflow = Overflow::kSpecial};
  const int bits = Bits(type);
  if (bits == 16) {
    std::vector<std::uint16_t> codes(values.size());
    Encode(type.format, values, codes, options);
    return as_bytes(codes);
  }
  std::vector<std::uint8_t> codes(values.size());
  Encode(type.format, values, codes, options);
  if (bits == 8) return as_bytes(codes);
  return as_bytes(
      PackCodes(codes, 1, codes.size(), bits == 4 ? CodeOrder::kLowFirst : CodeOrder::kDense6));
}

}  // namespace fp4lab
