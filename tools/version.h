// The text of fp4lab --version, lines without the last one's end.
#pragma once

#include <string>

namespace fp4lab::tools {

std::string VersionText();

}  // namespace fp4lab::tools
