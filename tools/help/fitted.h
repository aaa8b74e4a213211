// Printing what fits the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tools/help/terminal.h"

namespace fp4lab::tools {

// Prints `full`, a table. Where standard output is a terminal that is narrower, and `wide` is not
// asked for: the rows `narrow`, fitted, and what they leave out, if anything.
void PrintFitted(const std::string& full, const TableRows& narrow, bool wide,
                 const std::string& left_out);

// Prints "label  text" with the text from a column on; on a terminal, in lines that fit.
void PrintLabelled(std::string_view label, std::size_t column, std::string_view text);

}  // namespace fp4lab::tools
