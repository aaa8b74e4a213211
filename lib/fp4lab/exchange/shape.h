// Shapes of arrays as text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// Parses "128x256" or "4x128x256". Throws Error(where, ...) for any other text; `where` names the
// option, as in "--shape 12x".
std::vector<std::size_t> ParseShape(std::string_view text, std::string_view where);
std::string ShapeText(const std::vector<std::size_t>& shape);

}  // namespace fp4lab
