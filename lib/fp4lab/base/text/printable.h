// Untrusted text as one line that a terminal displays without acting on control characters.
#pragma once

#include <string>
#include <string_view>

namespace fp4lab {

// Escapes control characters, line and paragraph separators, marks of text direction and bytes that
// are not UTF-8: "\n", "\t", "\u001b", "\xff". Letters of all scripts stay as they are (UTF-8). A
// text without such characters comes back unchanged, so the function may be applied twice.
std::string Printable(std::string_view text);

// Printable for a text of several lines: line ends stay. In a JSON document the escapes of control
// characters are JSON's own.
std::string PrintableLines(std::string_view text);

}  // namespace fp4lab
