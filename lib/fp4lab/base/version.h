// The version of fp4lab, which every result file contains. CMake, the Python package, the packages
// and `fp4lab --version` read it here.
#pragma once

#include <string_view>

namespace fp4lab {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace fp4lab
