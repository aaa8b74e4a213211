// The names of studies and arms, which go into paths, tables, lines of CSV and JSON pointers.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
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

// A learning rate with the digits it needs: "0.002".
inline std::string RateText(double learning_rate) {
  char text[400];  // as long as the longest double
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof text, learning_rate, std::chars_format::fixed);
  return {text, end.ptr};
}

// The name of the runs of an arm at one learning rate of a sweep: "nvfp4+lr0.002".
inline std::string ArmAtRate(std::string_view arm, double learning_rate) {
  return std::string(arm) + "+lr" + RateText(learning_rate);
}

}  // namespace fp4lab::study
