// The version of fp4lab, which every result file contains.
#pragma once

#include <string_view>

namespace fp4lab {

inline constexpr std::string_view kVersion = "0.1.0";  // CMakeLists.txt checks the same version

}  // namespace fp4lab
