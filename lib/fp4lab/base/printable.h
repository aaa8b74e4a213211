// Text that may come from anywhere, as one line that a terminal shows and does not obey.
#pragma once

#include <string>
#include <string_view>

namespace fp4lab {

// Letters of all scripts stay as they are (UTF-8). What moves a cursor, starts a new line, turns
// the direction of writing or is no UTF-8 is spelled out: "\n", "\t", "\u001b", "\xff". A text
// without such characters comes back unchanged, so the function may be applied twice.
std::string Printable(std::string_view text);

// The same of a text of several lines, whose ends stay. In a JSON document the spelling is JSON's
// own.
std::string PrintableLines(std::string_view text);

}  // namespace fp4lab
