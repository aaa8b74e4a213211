#include "tools/help/fitted.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

std::size_t LongestLine(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    longest = std::max(longest, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

}  // namespace

void PrintFitted(const std::string& full, const TableRows& narrow, bool wide,
                 const std::string& left_out) {
  const std::optional<std::size_t> width = TerminalWidth(STDOUT_FILENO);
  if (wide || !width || LongestLine(full) <= *width) return PrintText(full);
  PrintText(AlignedText(narrow, width));
  if (!left_out.empty()) PrintText("(" + left_out + " with --wide)\n");
}

void PrintLabelled(std::string_view label, std::size_t column, std::string_view text) {
  std::string line(label);
  line.resize(std::max(column, label.size() + 1), ' ');
  PrintText(line + Hanging(text, LeftOf(TerminalWidth(STDOUT_FILENO), line.size()), line.size()) +
            "\n");
}

}  // namespace fp4lab::tools
