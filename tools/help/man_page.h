// The manual page: `fp4lab man`.
#pragma once

#include <string>

#include "tools/help/command_tree.h"

namespace fp4lab::tools {

// The page in roff, every command with every option.
std::string ManPage(const CommandFacts& root);

}  // namespace fp4lab::tools
