// The program's version: the text of fp4lab --version, without a '\n' at its end.
#pragma once

#include <string>
#include <string_view>

namespace fp4lab::tools {

// The commit that the program was built from, "-changed" behind it where files differed from it;
// "unknown" outside of a checkout.
std::string_view BuildCommit();

std::string VersionText();

}  // namespace fp4lab::tools
