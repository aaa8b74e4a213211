#include "fp4lab/exchange/shape.h"

#include <charconv>

#include "fp4lab/base/error.h"

namespace fp4lab {

std::vector<std::size_t> ParseShape(std::string_view text, std::string_view where) {
  std::vector<std::size_t> shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::size_t n = 0;
    const auto [next, status] = std::from_chars(at, end, n);
    if (status != std::errc{}) break;
    shape.push_back(n);
    if (next == end) return shape;
    if (*next != 'x') break;
    at = next + 1;
  }
  throw Error(where, "\"" + std::string(text) + "\" is not a shape; give it as in 128x256");
}

std::string ShapeText(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t n : shape) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text;
}

}  // namespace fp4lab
