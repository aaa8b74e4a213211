// Help that fits the terminal. In a file or a pipe a description stays on one line.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>
#include <string>

#include "tools/help/terminal.h"

namespace fp4lab::tools {

class FittedFormatter : public CLI::Formatter {
 public:
  explicit FittedFormatter(std::optional<std::size_t> terminal_width) : width_(terminal_width) {}

  std::string make_option_desc(const CLI::Option* option) const override {
    return Fitted(CLI::Formatter::make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_display_name(true),
                             Fitted(command->get_description()), get_column_width());
    return out.str();
  }

 private:
  static constexpr std::size_t kLeastWidth = 30;

  std::string Fitted(const std::string& text) const {
    if (!width_) return text;
    const std::size_t column = get_column_width();
    return Wrapped(text, std::max(*width_, column + kLeastWidth) - column);
  }

  std::optional<std::size_t> width_;
};

}  // namespace fp4lab::tools
