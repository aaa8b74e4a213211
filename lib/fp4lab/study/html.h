// HTML tables and the frame of a report's page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp4lab::study {

// A cell with this content is one with the cell on its left.
inline constexpr std::string_view kJoined = "<<";

// A table cell is HTML; text goes through Escaped first. The first columns are text, the others
// numbers.
struct HtmlTable {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::size_t text_columns = 1;  // left aligned

  std::string Html() const;
};

// The whole document around `body`.
std::string HtmlPage(std::string_view title, std::string_view body);

}  // namespace fp4lab::study
