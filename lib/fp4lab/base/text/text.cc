#include "fp4lab/base/text/text.h"

#include <charconv>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"

namespace fp4lab {

std::string ShortestText(float x) {
  const IeeeArithmetic ieee;
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
}

std::string HexText(std::uint32_t bits, int digits) {
  std::string text = "0x";
  for (int bit = 4 * digits - 4; bit >= 0; bit -= 4) text += "0123456789ABCDEF"[bits >> bit & 0xF];
  return text;
}

std::string CountText(std::size_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

namespace {

template <class Text>
std::string JoinedTexts(std::span<const Text> parts, std::string_view separator) {
  std::string text;
  for (const Text& part : parts) {
    if (&part != parts.data()) text += separator;
    text += part;
  }
  return text;
}

}  // namespace

std::string Joined(std::span<const std::string> parts, std::string_view separator) {
  return JoinedTexts(parts, separator);
}

std::string Joined(std::span<const std::string_view> parts, std::string_view separator) {
  return JoinedTexts(parts, separator);
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string EscapedMarkup(std::string_view text) {
  std::string result;
  for (const char c : PrintableLines(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace fp4lab
