// Small text helpers for messages, reports and pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fp4lab {

// The shortest decimal number that reads back as the same float: "0.1", "3e-45", "inf", "nan".
std::string ShortestText(float x);

// The lowest `digits` hexadecimal digits of `bits`, 1 to 8 of them: "0x3E2AAAAB".
std::string HexText(std::uint32_t bits, int digits);

// "1 block", "2 blocks".
std::string CountText(std::size_t count, std::string_view noun);

// The parts with `separator` between them: "a, b, c" for ", ".
std::string Joined(std::span<const std::string> parts, std::string_view separator);
std::string Joined(std::span<const std::string_view> parts, std::string_view separator);

// The text with the letters A to Z in lower case, in any locale.
std::string LowerCase(std::string_view text);

// Escapes text for XML and HTML, for text nodes and quoted attributes. Control characters, which
// markup cannot hold, are escaped as in base/text/printable.h.
std::string EscapedMarkup(std::string_view text);

}  // namespace fp4lab
