// The tests that a verdict on random rounding makes of one kind.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "fp4lab/formats/stochastic_verdict.h"
#include "fp4lab/formats/tail_bounds.h"

namespace fp4lab {

// Collects the tests of one family; the family's p-value is the least one times the number of
// tests, at most 1.
class TestFamily {
 public:
  explicit TestFamily(std::string_view name) { statistic_.name = name; }

  void Test(double p_value, const std::string& what) {
    ++statistic_.tests;
    if (statistic_.what.empty() || p_value < least_) {
      least_ = p_value;
      statistic_.what = what;
    }
  }
  // Nothing without a draw.
  void Test(const DrawSum& sum, double p_value, const std::string& what) {
    if (sum.Trials() == 0) return;
    char seen[120];
    std::snprintf(seen, sizeof seen, ": %llu of %llu, expected %.1f",
                  static_cast<unsigned long long>(sum.Yes()),
                  static_cast<unsigned long long>(sum.Trials()), sum.Mean());
    Test(p_value, what + seen);
  }
  void Test(const DrawSum& sum, const std::string& what) { Test(sum, sum.PValue(), what); }
  StochasticStatistic Result() {
    const double tests = static_cast<double>(statistic_.tests);
    statistic_.p_value = statistic_.tests == 0 ? 1.0 : std::min(1.0, least_ * tests);
    return statistic_;
  }

 private:
  StochasticStatistic statistic_;
  double least_ = 1.0;
};

}  // namespace fp4lab
