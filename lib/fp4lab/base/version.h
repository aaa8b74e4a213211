// The version of fp4lab: stands in every result file.
#pragma once

#include <string_view>

namespace fp4lab {

inline constexpr std::string_view kVersion = "0.1.0";  // as in CMakeLists.txt, which compares

}  // namespace fp4lab
