// The error of decoded numbers beside the original ones, as sums.
#pragma once

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

namespace fp4lab {

// Sums of products of original numbers x and decoded numbers y.
struct ErrorSums {
  double xx = 0, xy = 0, yy = 0;

  void Add(double x, double y) {
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  void Add(const ErrorSums& o) {
    xx += o.xx;
    xy += o.xy;
    yy += o.yy;
  }
  // The SQNR in dB if y is multiplied by f: at most 150, -Inf where x is 0 or a sum is not finite.
  double Sqnr(double f) const {
    const double noise = xx - 2 * f * xy + f * f * yy;
    if (!(xx > 0) || !std::isfinite(noise)) return -std::numeric_limits<double>::infinity();
    return noise <= xx * 1e-15 ? 150 : 10 * std::log10(xx / noise);
  }
  // The factor of y with the least error; 0 where y is 0.
  double Best() const { return yy > 0 ? xy / yy : 0; }
};

// `number` in a format of printf.
inline std::string TextOf(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

}  // namespace fp4lab
