#include "fp4lab/base/text/printable.h"

#include <cstddef>
#include <cstdint>

namespace fp4lab {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not start with a valid UTF-8 character
};

// Decodes the first UTF-8 character of a non-empty text. Overlong forms and surrogates are invalid.
Character First(std::string_view text) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {};
  std::uint32_t code = lead & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes};
}

// Whether a terminal may act on the character: control characters, line and paragraph separators,
// and the marks that change the direction of text.
bool IsObeyed(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string Hexadecimal(std::uint32_t value, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    text += "0123456789abcdef"[value >> shift & 15];
  }
  return text;
}

std::string Spelled(std::string_view text, bool keep_line_ends) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = First(text);
    if (c.bytes == 0) {
      out += "\\x" + Hexadecimal(static_cast<unsigned char>(text[0]), 2);
      text.remove_prefix(1);
      continue;
    }
    if (!IsObeyed(c.code) || (keep_line_ends && c.code == '\n')) {
      out += text.substr(0, c.bytes);
    } else {
      out += c.code == '\n' ? "\\n" : c.code == '\t' ? "\\t" : "\\u" + Hexadecimal(c.code, 4);
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text) { return Spelled(text, false); }
std::string PrintableLines(std::string_view text) { return Spelled(text, true); }

}  // namespace fp4lab
