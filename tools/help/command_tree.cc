#include "tools/help/command_tree.h"

#include <string_view>

namespace fp4lab::tools {
namespace {

// CLI11 puts choices behind the type: "TEXT:{gpu,cpu}".
struct Argument {
  std::string label;
  std::vector<std::string> choices;
};

Argument ArgumentOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};  // a flag
  const std::string type = option.get_type_name();
  const std::size_t open = type.find(":{");
  if (open == std::string::npos || type.back() != '}') return {type, {}};
  return {type.substr(0, open),
          CLI::detail::split(type.substr(open + 2, type.size() - open - 3), ',')};
}

OptionFacts FactsOf(const CLI::Option& option) {
  OptionFacts facts;
  for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
  if (facts.names.empty()) facts.names = {option.get_name(true)};
  Argument argument = ArgumentOf(option);
  facts.argument = std::move(argument.label);
  facts.choices = std::move(argument.choices);
  facts.text = option.get_description();
  facts.default_text = option.get_default_str();
  facts.required = option.get_required();
  facts.repeated = option.get_expected_max() >= CLI::detail::expected_max_vector_size;
  return facts;
}

void AddAll(const CommandFacts& command, std::vector<const CommandFacts*>* all) {
  all->push_back(&command);
  for (const CommandFacts& below : command.commands) AddAll(below, all);
}

}  // namespace

CommandFacts FactsOf(const CLI::App& app, const std::string& parents) {
  CommandFacts facts;
  facts.name = parents.empty() ? "fp4lab" : app.get_name();
  facts.path = parents.empty() ? facts.name : parents + " " + facts.name;
  facts.text = app.get_description();
  facts.footer = app.get_footer();
  for (const std::string& group : app.get_groups()) {
    if (group.empty()) continue;  // hidden
    OptionGroup named{group, {}};
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() != group) continue;
      (option->nonpositional() ? named.options : facts.positionals).push_back(FactsOf(*option));
    }
    if (!named.options.empty()) facts.groups.push_back(std::move(named));
  }
  for (const CLI::App* below : app.get_subcommands({})) {
    facts.commands.push_back(FactsOf(*below, facts.path));
  }
  return facts;
}

std::vector<const CommandFacts*> AllOf(const CommandFacts& root) {
  std::vector<const CommandFacts*> all;
  AddAll(root, &all);
  return all;
}

}  // namespace fp4lab::tools
