// Tables for a terminal.
#pragma once

#include <string>
#include <vector>

namespace fp4lab::study {

using TextRows = std::vector<std::vector<std::string>>;

// The rows as lines of text, indented by two spaces; each column is as wide as its widest cell, the
// first one flush left, the others flush right. Rows may have fewer cells than others.
std::string AlignedText(const TextRows& rows);
// The same, for a first row and more, with every column flush left, for tables of words.
std::string LeftAlignedText(const TextRows& rows);

}  // namespace fp4lab::study
