// A time as people read it.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

namespace fp4lab::tools {

// "4:05", "1:02:33"
inline std::string Duration(double seconds) {
  const auto s = static_cast<long>(std::lround(std::fmax(seconds, 0.0)));
  char text[32];
  if (s >= 3600) {
    std::snprintf(text, sizeof(text), "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  } else {
    std::snprintf(text, sizeof(text), "%ld:%02ld", s / 60, s % 60);
  }
  return text;
}

}  // namespace fp4lab::tools
