// HTML tables and the frame of a report's page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp4lab::study {

// The content of a cell that is merged with the cell on its left.
inline constexpr std::string_view kJoined = "<<";

// A table of a page. Cells are HTML: callers pass text through EscapedMarkup. The caption is plain
// text. The first `text_columns` columns are text, the others numbers.
struct HtmlTable {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::size_t text_columns = 1;  // left aligned; numbers are right aligned

  std::string Html() const;
};

// The whole document around `body`: the styles of page and figures for screens, light and dark, and
// for paper, and the page's script (page_script.h).
std::string HtmlPage(std::string_view title, std::string_view body);

}  // namespace fp4lab::study
