// Numbers as the tables and figures of a study write them.
#pragma once

#include <cstdint>
#include <string>

#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {

// "1.235" for (1.23456, 3); "-" for a value that is not finite; never "-0.000".
std::string Fixed(double x, int digits);
// Three significant digits: "1.23", "4.56e-05".
std::string SignificantText(double x);
// With its sign: "+0.051", "-0.004", "0.000".
std::string Signed(double x, int digits);
// "[1.13, 1.55]"; an end that is not finite is "open".
std::string IntervalText(const Interval& interval, int digits);
// Three significant digits and a unit: "512", "1.02M", "16.4M"; without trailing zeros where the
// digits are exact: "1.5B", "2M".
std::string TokensText(double tokens);
// One decimal below 9.95, else a whole number: "5.2", "21", "125".
std::string PerParameterText(double tokens_per_parameter);

}  // namespace fp4lab::study
