#include "fp4lab/base/text/text.h"
#include "fp4lab/base/version.h"
#include "tools/help/completion.h"
#include "tools/help/words.h"

namespace fp4lab::tools {
namespace {

std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "'";
}

// "-s h -l help"
std::string FishNames(const OptionFacts& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  return names;
}

// " -r" where any text or file may follow, " -x -a 'words'" where certain words may.
std::string FishArgument(const OptionFacts& option) {
  if (option.argument.empty()) return "";
  const std::vector<std::string> words = WordsFor(option);
  return words.empty() ? " -r" : " -x -a " + FishQuoted(Joined(words, " "));
}

std::string FishLines(const CommandFacts& command) {
  const std::string start =
      "complete -c fp4lab -n " + FishQuoted("__fp4lab_at \"" + command.path + "\"");
  std::string text;
  for (const CommandFacts& below : command.commands) {
    text += start + " -f -a " + below.name + " -d " + FishQuoted(below.text) + "\n";
  }
  for (const OptionFacts& positional : command.positionals) {
    const std::vector<std::string> words = WordsFor(positional);
    if (!words.empty()) text += start + " -a " + FishQuoted(Joined(words, " ")) + "\n";
  }
  for (const OptionGroup& group : command.groups) {
    for (const OptionFacts& option : group.options) {
      text += start + FishNames(option) + FishArgument(option) + " -d " + FishQuoted(option.text) +
              "\n";
    }
  }
  return text;
}

}  // namespace

std::string FishCompletion(const CommandFacts& root) {
  const std::vector<const CommandFacts*> commands = AllOf(root);
  std::string text = "# Completion of fp4lab " + std::string(kVersion) +
                     " in fish, made by `fp4lab completion fish`.\n\n"
                     "function __fp4lab_at --description 'Whether this command is typed'\n"
                     "  set -l command fp4lab\n"
                     "  for word in (commandline -opc)[2..]\n"
                     "    switch \"$command $word\"\n      case";
  for (const CommandFacts* command : commands) {
    if (command != &root) text += " " + FishQuoted(command->path);
  }
  text +=
      "\n        set command \"$command $word\"\n    end\n  end\n"
      "  test \"$command\" = \"$argv[1]\"\nend\n\n";
  for (const CommandFacts* command : commands) text += FishLines(*command);
  return text;
}

}  // namespace fp4lab::tools
