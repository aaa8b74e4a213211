// Completion of the command line by shells: `fp4lab completion bash`.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tools/help/command_tree.h"

namespace fp4lab::tools {

std::string BashCompletion(const CommandFacts& root);
std::string ZshCompletion(const CommandFacts& root);
std::string FishCompletion(const CommandFacts& root);

struct Shell {
  std::string_view name;
  std::string (*completion)(const CommandFacts& root);
};

inline constexpr std::array<Shell, 3> kShells = {
    {{"bash", BashCompletion}, {"zsh", ZshCompletion}, {"fish", FishCompletion}}};

}  // namespace fp4lab::tools
