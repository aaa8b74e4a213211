#include "fp4lab/judge/kernels/deviation.h"

#include <string>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text.h"

namespace fp4lab {
namespace {

std::string Span(const char* what, std::size_t first, std::size_t count) {
  const std::string text = std::to_string(first);
  if (count == 1) return std::string(what) + " " + text;
  return std::string(what) + "s " + text + ".." + std::to_string(first + count - 1);
}

std::string ByteText(std::uint8_t byte) { return HexText(byte, byte > 0xF ? 2 : 1); }

std::string WhatStandsThere(const DeviationValue& v) {
  std::string text;
  if (v.even_code && v.odd_code) {
    text = *v.even_code == *v.odd_code
               ? "codes " + ByteText(*v.even_code)
               : "codes " + ByteText(*v.even_code) + " and " + ByteText(*v.odd_code);
  }
  if (v.scale) text += (text.empty() ? "scales " : ", scales ") + ByteText(*v.scale);
  return text;
}

}  // namespace

std::string Text(const Rectangle& region) {
  const IeeeArithmetic ieee;
  return Span("row", region.row, region.rows) + ", " + Span("column", region.col, region.cols);
}

std::string Text(ValueKind kind, const DeviationValue& value) {
  const IeeeArithmetic ieee;
  switch (kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kPlace:
      return "place " + std::to_string(value.number) + " of every group";
    case ValueKind::kRowShift:
      return value.number > 0 ? std::to_string(value.number) + " down"
                              : std::to_string(-value.number) + " up";
    case ValueKind::kLastRows:
      return "the last " + std::to_string(value.number);
    case ValueKind::kAmax:
      return (value.amax_is_open ? "about " : "") + ShortestText(value.amax);
    case ValueKind::kUnwritten:
      return Text(value.region) + " hold " + WhatStandsThere(value);
    case ValueKind::kSwapped: {
      const Rectangle other{value.other_row, value.other_col, value.region.rows, value.region.cols};
      return Text(value.region) + " with " + Text(other);
    }
  }
  return "";
}

}  // namespace fp4lab
