#include "fp4lab/base/version.h"
#include "tools/help/completion.h"
#include "tools/help/completion_parts.h"

namespace fp4lab::tools {
namespace {

constexpr const char* kZshEnd = R"(  esac
}

# Autoloaded from $fpath, or read by `source <(fp4lab completion zsh)`.
if [ "$funcstack[1]" = _fp4lab ]; then
  _fp4lab "$@"
else
  compdef _fp4lab fp4lab
fi
)";

// A word with its description, for _describe.
std::string Described(const std::string& word, const std::string& text) {
  std::string quoted = word + ":";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c == '\n' ? ' ' : c;
    }
  }
  return "      " + Quoted(quoted) + "\n";
}

std::string CaseOf(const CommandFacts& command) {
  std::string text = "    (" + Quoted(command.path) + ")\n";
  if (!command.commands.empty()) {
    text += "      described=(\n";
    for (const CommandFacts& below : command.commands) text += Described(below.name, below.text);
    text += "      )\n      _describe command described\n";
  }
  text += "      described=(\n";
  for (const OptionGroup& group : command.groups) {
    for (const OptionFacts& option : group.options) {
      for (const std::string& name : option.names) text += Described(name, option.text);
    }
  }
  text += "      )\n      _describe -o option described\n";
  for (const OptionFacts& positional : command.positionals) {
    const std::vector<std::string> words = WordsFor(positional);
    text += words.empty() ? "      _files\n" : "      compadd -- " + Joined(words, " ") + "\n";
  }
  return text + "      ;;\n";
}

}  // namespace

std::string ZshCompletion(const CommandFacts& root) {
  const std::vector<const CommandFacts*> commands = AllOf(root);
  std::string text = "#compdef fp4lab\n# Completion of fp4lab " + std::string(kVersion) +
                     " in zsh, made by `fp4lab completion zsh`.\n\n_fp4lab() {\n"
                     "  local command=fp4lab i\n  local -a described\n"
                     "  for ((i = 2; i < CURRENT; ++i)); do\n    case \"$command $words[i]\" in\n"
                     "      (" +
                     CommandPattern(commands) +
                     ") command+=\" $words[i]\" ;;\n    esac\n  done\n"
                     "  case \"$command $words[CURRENT-1]\" in  # the argument of an option\n";
  for (const auto& [words, pattern] : ArgumentPatterns(commands)) {
    text += "    (" + pattern + ") " + (words.empty() ? "_files" : "compadd -- " + words) +
            "; return ;;\n";
  }
  text += "  esac\n  case $command in\n";
  for (const CommandFacts* command : commands) text += CaseOf(*command);
  return text + kZshEnd;
}

}  // namespace fp4lab::tools
