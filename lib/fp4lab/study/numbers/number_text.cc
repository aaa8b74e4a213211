#include "fp4lab/study/numbers/number_text.h"

#include <cmath>
#include <cstdio>

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {

std::string Fixed(double x, int digits) {
  const IeeeArithmetic ieee;
  if (!std::isfinite(x)) return "-";
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, x);
  const std::string value = text;
  const bool negative_zero = value[0] == '-' && value.find_first_not_of("-0.") == std::string::npos;
  return negative_zero ? value.substr(1) : value;
}

std::string SignificantText(double x) {
  const IeeeArithmetic ieee;
  char text[64];
  std::snprintf(text, sizeof(text), "%.3g", x);
  return text;
}

std::string Signed(double x, int digits) {
  const IeeeArithmetic ieee;
  const std::string text = Fixed(x, digits);
  const bool zero = text.find_first_not_of("0.") == std::string::npos;
  return zero || text[0] == '-' ? text : "+" + text;
}

std::string IntervalText(const Interval& interval, int digits) {
  const IeeeArithmetic ieee;
  const auto end = [&](double x) { return std::isfinite(x) ? Fixed(x, digits) : "open"; };
  return "[" + end(interval.low) + ", " + end(interval.high) + "]";
}

std::string TokensText(double tokens) {
  const IeeeArithmetic ieee;
  struct Unit {
    double size;
    const char* letter;
  };
  Unit unit{1, ""};
  for (const Unit u : {Unit{1e3, "k"}, Unit{1e6, "M"}, Unit{1e9, "B"}, Unit{1e12, "T"}}) {
    if (tokens >= 0.9995 * u.size) unit = u;
  }
  const double value = tokens / unit.size;
  if (unit.size == 1 || std::abs(value - std::round(value)) < 1e-9) {
    return Fixed(value, 0) + unit.letter;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::string text = Fixed(value, digits);
  const bool exact = std::abs(std::stod(text) - value) < 1e-9;
  while (exact && text.back() == '0') text.pop_back();
  return text + unit.letter;
}

std::string PerParameterText(double tokens_per_parameter) {
  const IeeeArithmetic ieee;
  return Fixed(tokens_per_parameter, tokens_per_parameter < 9.95 ? 1 : 0);
}

}  // namespace fp4lab::study
