// The names of studies and arms, which go into paths, tables, lines of CSV and JSON pointers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace fp4lab::study {

inline constexpr std::size_t kLongestName = 64;

// Whether `name` has 1 to kLongestName letters, digits and - _ . +, and does not begin with a dot.
inline bool IsPlainName(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.+").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kLongestName && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

}  // namespace fp4lab::study
