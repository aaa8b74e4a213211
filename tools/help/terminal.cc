#include "tools/help/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace fp4lab::tools {
namespace {

constexpr std::size_t kColumnGap = 2;
constexpr std::size_t kLeastWrapped = 20;  // below it, lines grow over the edge instead

}  // namespace

std::size_t LeftOf(std::optional<std::size_t> width, std::size_t used) {
  if (!width) return std::string::npos;
  return used + kLeastWrapped < *width ? *width - used : kLeastWrapped;
}

std::string Hanging(std::string_view text, std::size_t width, std::size_t indent) {
  std::string hanging;
  for (const char c : Wrapped(text, width)) {
    hanging += c;
    if (c == '\n') hanging += std::string(indent, ' ');
  }
  return hanging;
}

std::optional<std::size_t> TerminalWidth(int descriptor) {
  if (::isatty(descriptor) == 0) return std::nullopt;
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string Wrapped(std::string_view text, std::size_t width) {
  std::string wrapped;
  std::size_t line = 0;  // bytes of the last line
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    if (line > 0 && line + end > width) {
      wrapped.back() = '\n';
      line = 0;
    }
    wrapped += text.substr(0, end);
    if (end == text.size()) break;
    wrapped += text[end];
    line = text[end] == '\n' ? 0 : line + end + 1;
    text.remove_prefix(end + 1);
  }
  return wrapped;
}

std::string AlignedText(const TableRows& rows, std::optional<std::size_t> width) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + kColumnGap, ' ');
    }
    text += line + Hanging(row.back(), LeftOf(width, line.size()), line.size()) + "\n";
  }
  return text;
}

}  // namespace fp4lab::tools
