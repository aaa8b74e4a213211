#include "tools/help/man_page.h"

#include <array>
#include <string_view>
#include <utility>

#include "fp4lab/base/version.h"

namespace fp4lab::tools {
namespace {

using TextPair = std::pair<std::string_view, std::string_view>;

constexpr std::array<TextPair, 4> kExitCodes = {{
    {"0", "Done. Of commands that compare: equal."},
    {"1",
     "An error, which one line on standard error states. Of commands that compare: different."},
    {"2", "An invalid command line. Of commands that compare: also any error."},
    {"128 + N", "Interrupted by signal N."},
}};

constexpr std::array<TextPair, 3> kVariables = {{
    {"FP4LAB_TARGET", "The SIMD target, as in avx2 or scalar. All give the same bytes."},
    {"FP4LAB_DATA_DIR", "The folder of the texts that `fp4lab data get` downloads."},
    {"OMP_NUM_THREADS", "The number of threads. Results do not depend on it."},
}};

// Text as roff prints it: quotes, dashes and accents are the characters of the terminal.
std::string Roff(std::string_view text) {
  std::string escaped;
  bool line_starts = true;
  for (const char c : text) {
    if (line_starts && (c == '.' || c == '\'')) escaped += "\\&";
    line_starts = c == '\n';
    switch (c) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':
        escaped += "\\(aq";
        break;
      case '`':
        escaped += "\\(ga";
        break;
      case '^':
        escaped += "\\(ha";
        break;
      case '~':
        escaped += "\\(ti";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string Bold(std::string_view text) { return "\\fB" + Roff(text) + "\\fR"; }
std::string Italic(std::string_view text) { return "\\fI" + Roff(text) + "\\fR"; }

std::string Item(const std::string& head, const std::string& text) {
  return ".TP\n" + head + "\n" + Roff(text) + "\n";
}

std::string Synopsis(const CommandFacts& command) {
  std::string text = Bold(command.path);
  for (const OptionFacts& positional : command.positionals) {
    const std::string name = Italic(positional.names[0]) + (positional.repeated ? "..." : "");
    text += positional.required ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty()) text += " [" + Italic("COMMAND") + "]";
  return text + " [" + Italic("OPTIONS") + "]";
}

std::string OptionText(const OptionFacts& option) {
  std::string text = option.text;
  if (!option.default_text.empty()) text += " [" + option.default_text + "]";
  for (std::size_t i = 0; i < option.choices.size(); ++i) {
    text += (i == 0 ? "; one of: " : " ") + option.choices[i];
  }
  return option.required ? text + " (required)" : text;
}

std::string OptionHead(const OptionFacts& option) {
  std::string head;
  for (const std::string& name : option.names) head += (head.empty() ? "" : ", ") + Bold(name);
  if (!option.argument.empty()) head += " " + Italic(option.argument);
  return option.repeated ? head + " ..." : head;
}

std::string Section(const CommandFacts& command) {
  std::string text = ".SS " + Synopsis(command) + "\n" + Roff(command.text) + "\n";
  for (const OptionFacts& positional : command.positionals) {
    text += Item(Italic(positional.names[0]), OptionText(positional));
  }
  for (const OptionGroup& group : command.groups) {
    text += ".PP\n" + Bold(group.name + ":") + "\n";
    for (const OptionFacts& option : group.options) {
      text += Item(OptionHead(option), OptionText(option));
    }
  }
  if (!command.footer.empty()) text += ".PP\n.nf\n" + Roff(command.footer) + "\n.fi\n";
  return text;
}

template <class Table>
std::string Items(const Table& table) {
  std::string text;
  for (const auto& [head, what] : table) text += Item(Bold(head), std::string(what));
  return text;
}

}  // namespace

std::string ManPage(const CommandFacts& root) {
  std::string text = ".TH FP4LAB 1 \"\" \"fp4lab " + std::string(kVersion) +
                     "\" \"User Commands\"\n.SH NAME\nfp4lab \\- the numerics of 4\\-bit LLM "
                     "training\n.SH SYNOPSIS\n" +
                     Synopsis(root) + "\n.SH COMMANDS\n";
  for (const CommandFacts* command : AllOf(root)) text += Section(*command);
  return text + ".SH EXIT STATUS\n" + Items(kExitCodes) + ".SH ENVIRONMENT\n" + Items(kVariables);
}

}  // namespace fp4lab::tools
