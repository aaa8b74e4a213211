#include "fp4lab/study/report/tables/text_table.h"

#include <algorithm>
#include <cstddef>

namespace fp4lab::study {
namespace {

// `left`: the columns that are flush left.
std::string Aligned(const TextRows& rows, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    text += "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      text += (i == 0 ? "" : "   ") + (i < left ? row[i] + space : space + row[i]);
    }
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  return text;
}

}  // namespace

std::string AlignedText(const TextRows& rows) { return Aligned(rows, 1); }

std::string LeftAlignedText(const TextRows& rows) { return Aligned(rows, rows.front().size()); }

}  // namespace fp4lab::study
