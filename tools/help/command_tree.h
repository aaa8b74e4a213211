// The commands as the parser knows them, as data: the completions of shells and the man page are
// made from it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fp4lab::tools {

struct OptionFacts {
  std::vector<std::string> names =
      {};                     // "-h", "--input", "--not-transposed"; or "path", positional
  std::string argument = {};  // what follows it: "FILE"; empty for a flag
  std::vector<std::string> choices = {};  // if only certain words may follow
  std::string text = {};
  std::string default_text = {};
  bool required = false, repeated = false;
};

struct OptionGroup {
  std::string name;
  std::vector<OptionFacts> options;
};

struct CommandFacts {
  std::string path = {};  // "fp4lab study run"
  std::string name = {};  // "run"
  std::string text = {}, footer = {};
  std::vector<OptionFacts> positionals = {};
  std::vector<OptionGroup> groups = {};  // hidden options are left out
  std::vector<CommandFacts> commands = {};
};

// The facts of the program or of a subcommand and of all below it.
CommandFacts FactsOf(const CLI::App& app, const std::string& parents = "");

// The command itself and all below it, parents first.
std::vector<const CommandFacts*> AllOf(const CommandFacts& root);

}  // namespace fp4lab::tools
