#include "fp4lab/base/version.h"
#include "tools/help/completion.h"
#include "tools/help/completion_parts.h"

namespace fp4lab::tools {
namespace {

constexpr const char* kBashFunction = R"(
_fp4lab() {
  local command=fp4lab current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} i words
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if _fp4lab_argument "$command ${COMP_WORDS[i]}" >/dev/null; then
      ((++i))
    elif _fp4lab_command "$command ${COMP_WORDS[i]}"; then
      command+=" ${COMP_WORDS[i]}"
    fi
  done
  # bash takes --option=word for three words.
  if [ "$current" = = ]; then
    current=
  elif [ "$previous" = = ]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ! words=$(_fp4lab_argument "$command $previous"); then
    case $current in
      -*) words=$(_fp4lab_options "$command") ;;
      *) words=$(_fp4lab_words "$command") ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o bashdefault -o default -F _fp4lab fp4lab
)";

std::string CaseLine(const std::string& pattern, const std::vector<std::string>& words) {
  return "    " + pattern + ") echo " + Quoted(Joined(words, " ")) + " ;;\n";
}

std::vector<std::string> OptionNames(const CommandFacts& command) {
  std::vector<std::string> names;
  for (const OptionGroup& group : command.groups) {
    for (const OptionFacts& option : group.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
  }
  return names;
}

}  // namespace

std::string BashCompletion(const CommandFacts& root) {
  const std::vector<const CommandFacts*> commands = AllOf(root);
  std::string text = "# Completion of fp4lab " + std::string(kVersion) +
                     " in bash, made by `fp4lab completion bash`.\n"
                     "\n# Whether a path, as in \"fp4lab study run\", is a command.\n"
                     "_fp4lab_command() {\n  case $1 in\n    " +
                     CommandPattern(commands) + ") return 0 ;;\n  esac\n  return 1\n}\n";
  text +=
      "\n# Whether an argument follows an option of a command, and the words that it may be; none: "
      "a "
      "file or any text.\n_fp4lab_argument() {\n  case $1 in\n";
  for (const auto& [words, pattern] : ArgumentPatterns(commands)) {
    text += "    " + pattern + ") echo " + Quoted(words) + " ;;\n";
  }
  text += "    *) return 1 ;;\n  esac\n}\n\n_fp4lab_options() {\n  case $1 in\n";
  for (const CommandFacts* command : commands) {
    text += CaseLine(Quoted(command->path), OptionNames(*command));
  }
  text += "  esac\n}\n\n_fp4lab_words() {\n  case $1 in\n";
  for (const CommandFacts* command : commands) {
    const std::vector<std::string> words = PlainWords(*command);
    if (!words.empty()) text += CaseLine(Quoted(command->path), words);
  }
  return text + "  esac\n}\n" + kBashFunction;
}

}  // namespace fp4lab::tools
