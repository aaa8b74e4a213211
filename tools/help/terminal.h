// The terminal's width, and text and tables in lines of that width.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab::tools {

// The columns of the terminal that the descriptor writes to; nothing for a file or a pipe, which
// have no width.
std::optional<std::size_t> TerminalWidth(int descriptor);

// The text with line ends in place of spaces, so that lines have at most `width` bytes. A longer
// word stays whole. Lines that the text has stay.
std::string Wrapped(std::string_view text, std::size_t width);

// The columns that are left of a terminal of `width` after `used` ones; all without a width.
std::size_t LeftOf(std::optional<std::size_t> width, std::size_t used);
// The text in lines of `width` bytes, all but the first behind `indent` spaces.
std::string Hanging(std::string_view text, std::size_t width, std::size_t indent);

using TableRows = std::vector<std::vector<std::string>>;

// The rows in columns as wide as their longest cell, two spaces apart. With a width, the last cell
// of a row is wrapped into the columns that are left of it.
std::string AlignedText(const TableRows& rows, std::optional<std::size_t> width = std::nullopt);

}  // namespace fp4lab::tools
