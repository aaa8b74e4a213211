// What fits a terminal: its width, text in lines of a width, tables.
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

using TableRows = std::vector<std::vector<std::string>>;

// The rows in columns as wide as their longest cell, two spaces apart. With a width, the last cell
// of a row is wrapped into the columns that are left of it.
std::string AlignedText(const TableRows& rows, std::optional<std::size_t> width = std::nullopt);

// Prints `full`, a table. Where standard output is a terminal that is narrower, and `wide` is not
// asked for: the rows `narrow`, fitted, and what they leave out, if anything.
void PrintFitted(const std::string& full, const TableRows& narrow, bool wide,
                 const std::string& left_out);

// Prints "label  text" with the text from a column on; on a terminal, in lines that fit.
void PrintLabelled(std::string_view label, std::size_t column, std::string_view text);

}  // namespace fp4lab::tools
