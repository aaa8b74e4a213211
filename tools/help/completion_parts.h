// Parts that the completions of bash and zsh share: patterns of `case`, made from the commands.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fp4lab/base/text/text.h"
#include "tools/help/command_tree.h"
#include "tools/help/words.h"

namespace fp4lab::tools {

inline std::string Quoted(const std::string& word) { return "'" + word + "'"; }

// "'fp4lab data'|'fp4lab data get'": all commands but the program itself.
inline std::string CommandPattern(const std::vector<const CommandFacts*>& commands) {
  std::vector<std::string> paths;
  for (const CommandFacts* command : commands) {
    if (command != commands.front()) paths.push_back(Quoted(command->path));
  }
  return Joined(paths, "|");
}

// {words: the pattern of all options whose argument is one of these words}; of no words: any text
// or a file may follow.
inline std::map<std::string, std::string> ArgumentPatterns(
    const std::vector<const CommandFacts*>& commands) {
  std::map<std::string, std::vector<std::string>> paths;
  for (const CommandFacts* command : commands) {
    for (const OptionGroup& group : command->groups) {
      for (const OptionFacts& option : group.options) {
        if (option.argument.empty()) continue;
        std::vector<std::string>& of = paths[Joined(WordsFor(option), " ")];
        for (const std::string& name : option.names)
          of.push_back(Quoted(command->path + " " + name));
      }
    }
  }
  std::map<std::string, std::string> patterns;
  for (const auto& [words, of] : paths) patterns[words] = Joined(of, "|");
  return patterns;
}

// Words that may stand where no option does: subcommands, and words for positional arguments.
inline std::vector<std::string> PlainWords(const CommandFacts& command) {
  std::vector<std::string> words;
  for (const CommandFacts& below : command.commands) words.push_back(below.name);
  for (const OptionFacts& positional : command.positionals) {
    for (const std::string& word : WordsFor(positional)) words.push_back(word);
  }
  return words;
}

}  // namespace fp4lab::tools
