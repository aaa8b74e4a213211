// The words that may stand for an argument: names of the tables.
#pragma once

#include <string>
#include <vector>

#include "tools/help/command_tree.h"

namespace fp4lab::tools {

// The words to complete an option's argument from; none where any text or file may stand.
std::vector<std::string> WordsFor(const OptionFacts& option);

}  // namespace fp4lab::tools
