#include "fp4lab/formats/stochastic_verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/tail_bounds.h"

namespace fp4lab {
namespace {

// The data of an element that the statistics share.
struct Element {
  double p = 0.0;           // probability of rounding up; 0: the value is on the grid
  std::uint32_t count = 0;  // p * 2^bits
  std::uint32_t low = 0, high = 0;
  bool negative = false;
};

// The sample as yes-or-no draws: did an element round up?
struct Draws {
  const StochasticSample& sample;
  std::vector<Element> elements;              // (rows, cols)
  std::vector<std::vector<std::uint8_t>> up;  // n times (rows, cols): 1 if it rounded up

  const Element& At(std::size_t r, std::size_t c) const { return elements[r * sample.cols + c]; }
  bool Up(std::size_t n, std::size_t r, std::size_t c) const {
    return up[n][r * sample.cols + c] != 0;
  }
  std::uint64_t Ups(std::size_t r, std::size_t c) const {
    std::uint64_t ups = 0;
    for (std::size_t n = 0; n < up.size(); ++n) ups += Up(n, r, c);
    return ups;
  }
};

// Collects the tests of one family; the family's p-value is the least one times the number of
// tests.
class Family {
 public:
  explicit Family(std::string_view name) { statistic_.name = name; }

  void Test(double p_value, const std::string& what) {
    ++statistic_.tests;
    if (statistic_.what.empty() || p_value < least_) {
      least_ = p_value;
      statistic_.what = what;
    }
  }
  void Test(const DrawSum& sum, double p_value, const std::string& what) {
    if (sum.Trials() == 0) return;
    char seen[120];
    std::snprintf(seen, sizeof seen, ": %llu of %llu, expected %.1f",
                  static_cast<unsigned long long>(sum.Yes()),
                  static_cast<unsigned long long>(sum.Trials()), sum.Mean());
    Test(p_value, what + seen);
  }
  StochasticStatistic Result() {
    const double tests = static_cast<double>(statistic_.tests);
    statistic_.p_value = statistic_.tests == 0 ? 1.0 : std::min(1.0, least_ * tests);
    return statistic_;
  }

 private:
  StochasticStatistic statistic_;
  double least_ = 1.0;
};

std::string PlaceText(std::size_t row, std::size_t col) {
  return "row " + std::to_string(row) + ", column " + std::to_string(col);
}

Element ElementOf(const StochasticSample& sample, float v) {
  const std::uint32_t last = (1u << BitsAField(sample.form)) - 1;
  Element e;
  e.low = EncodeWithField(sample.element, sample.form, v, 0);
  e.high = EncodeWithField(sample.element, sample.form, v, last);
  e.count = UpCount(sample.element, sample.form, v);
  e.p = static_cast<double>(e.count) / (last + 1.0);
  e.negative = std::signbit(v);
  return e;
}

// Checks that every code is one of the two neighbours of its value; fills draws->up. Elements with
// another code are left out of the other statistics: they become elements that never round up.
StochasticStatistic Codes(Draws* draws) {
  const StochasticSample& sample = draws->sample;
  std::vector<bool> left_out(draws->elements.size(), false);
  std::size_t impossible = 0;
  std::string first;
  for (std::size_t n = 0; n < sample.outputs.size(); ++n) {
    for (std::size_t i = 0; i < draws->elements.size(); ++i) {
      const Element& e = draws->elements[i];
      const std::uint32_t code = sample.outputs[n][i];
      draws->up[n][i] = code == e.high && e.count > 0;
      if (code == e.low || code == e.high) continue;
      left_out[i] = true;
      if (impossible++ > 0) continue;
      char text[160];
      std::snprintf(
          text, sizeof text,
          ": code 0x%X in repetition %zu, but the scaled value %.9g has codes 0x%X and 0x%X", code,
          n, static_cast<double>(sample.scaled[i]), e.low, e.high);
      first = PlaceText(i / sample.cols, i % sample.cols) + text;
    }
  }
  Family family("codes");
  if (impossible == 0) {
    family.Test(1.0, "every code is a neighbour of its value");
    return family.Result();
  }
  for (std::size_t i = 0; i < left_out.size(); ++i) {
    if (left_out[i]) draws->elements[i].p = 0.0, draws->elements[i].count = 0;
  }
  const std::size_t all = sample.outputs.size() * draws->elements.size();
  family.Test(0.0, first + "; impossible: " + std::to_string(impossible) + " of " +
                       std::to_string(all) + " codes, left out below");
  return family.Result();
}

StochasticStatistic ElementRates(const Draws& draws) {
  Family family("elements");
  const std::size_t n = draws.up.size();
  for (std::size_t r = 0; r < draws.sample.rows && n > 1; ++r) {
    for (std::size_t c = 0; c < draws.sample.cols; ++c) {
      const double p = draws.At(r, c).p;
      if (p == 0.0) continue;
      DrawSum sum;
      sum.Add(p, n, draws.Ups(r, c));
      family.Test(sum, sum.PValue(), "ups at " + PlaceText(r, c));
    }
  }
  return family.Result();
}

// A partition of the elements for the statistic `rates`: classes, each divided further into even
// and odd columns.
struct RateKind {
  std::string name;
  std::size_t classes;
  std::size_t (*class_of)(const Element& e, std::size_t col, int bits);
};

const std::array<RateKind, 5>& RateKinds() {
  static const std::array<RateKind, 5> kinds = {
      RateKind{"", 1, [](const Element&, std::size_t, int) { return std::size_t{0}; }},
      RateKind{", of one sign", 2,
               [](const Element& e, std::size_t, int) { return std::size_t{e.negative}; }},
      RateKind{", of one half of a step", 2,
               [](const Element& e, std::size_t, int bits) {
                 return std::size_t{e.count >> (bits - 1)};
               }},
      RateKind{", of one sixteenth of a step and sign", 32,
               [](const Element& e, std::size_t, int bits) {
                 return std::size_t{e.count >> (bits - 4)} + (e.negative ? 16 : 0);
               }},
      RateKind{", at one place of 16 columns", 16,
               [](const Element&, std::size_t col, int) { return col % 16; }}};
  return kinds;
}

// Calls body(number of ups in a class, name of the class) for every class of every kind.
template <class Body>
void ForRates(const Draws& draws, Body body) {
  const int bits = BitsAField(draws.sample.form);
  for (const RateKind& kind : RateKinds()) {
    std::vector<DrawSum> sums(2 * kind.classes);
    for (std::size_t r = 0; r < draws.sample.rows; ++r) {
      for (std::size_t c = 0; c < draws.sample.cols; ++c) {
        const Element& e = draws.At(r, c);
        if (e.count == 0) continue;
        sums[2 * kind.class_of(e, c, bits) + c % 2].Add(e.p, draws.up.size(), draws.Ups(r, c));
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::string index = kind.classes > 1 ? " (number " + std::to_string(i / 2) + ")" : "";
      body(sums[i], std::string(i % 2 == 0 ? "even" : "odd") + " columns" + kind.name + index);
    }
  }
}

StochasticStatistic Rates(const Draws& draws) {
  Family family("rates");
  ForRates(draws, [&](const DrawSum& sum, const std::string& name) {
    family.Test(sum, sum.PValue(), "ups in " + name);
  });
  return family.Result();
}

// The number of tests of the statistic `rates`, and the least p-value that a kernel which never
// rounds up could give it.
struct RateTests {
  std::size_t count = 0;
  double least = 1.0;
  // Whether the statistic would refuse a kernel that never rounds up.
  bool CanDecide(double level) const {
    return count > 0 && least * static_cast<double>(count) < level;
  }
};
RateTests RateTestsOf(const Draws& draws) {
  RateTests tests;
  ForRates(draws, [&](const DrawSum& sum, const std::string&) {
    if (sum.Trials() == 0) return;
    tests.least = std::min(tests.least, sum.PValueOf(0));
    ++tests.count;
  });
  return tests;
}

StochasticPower PowerOf(const Draws& draws, double level) {
  const int bits = BitsAField(draws.sample.form);
  const DrawsByCount none(std::size_t{1} << bits, 0.0);
  std::array<DrawsByCount, 2> by_count = {none, none};  // of even and odd columns
  for (std::size_t r = 0; r < draws.sample.rows; ++r) {
    for (std::size_t c = 0; c < draws.sample.cols; ++c) {
      by_count[c % 2][draws.At(r, c).count] += static_cast<double>(draws.up.size());
    }
  }
  return PowerOfRates(by_count, bits, level);
}

double AlikeIndependent(const Element& a, const Element& b) {
  return a.p * b.p + (1.0 - a.p) * (1.0 - b.p);
}

// The probability that the two elements of a cvt.rs pair round alike if one element reads the field
// of the other in reverse bit order.
double AlikeReversed(const Element& a, const Element& b) {
  const double both = BothUpReversed(a.count, b.count) / 65536.0;
  return 1.0 - a.p - b.p + 2.0 * both;
}

// Tests the pairs of elements `down` rows and `right` columns apart whose first element (r, c)
// satisfies taken(r, c).
template <class Taken>
void TestPairs(const Draws& draws, std::size_t down, std::size_t right, bool may_be_reversed,
               const std::string& what, Taken taken, Family* family) {
  const std::size_t rows = draws.sample.rows, cols = draws.sample.cols, n = draws.up.size();
  DrawSum independent, reversed;
  for (std::size_t r = 0; r + down < rows; ++r) {
    for (std::size_t c = 0; c + right < cols; ++c) {
      const Element &a = draws.At(r, c), &b = draws.At(r + down, c + right);
      if (!taken(r, c) || a.p == 0.0 || b.p == 0.0) continue;
      std::uint64_t alike = 0;
      for (std::size_t i = 0; i < n; ++i) {
        alike += draws.Up(i, r, c) == draws.Up(i, r + down, c + right);
      }
      independent.Add(AlikeIndependent(a, b), n, alike);
      if (!may_be_reversed) continue;
      const double q = AlikeReversed(a, b);
      reversed.Add(std::clamp(q, 0x1p-17, 1.0 - 0x1p-17), n, alike);
    }
  }
  double p_value = independent.PValue();
  if (may_be_reversed) p_value = std::max(p_value, reversed.PValue());
  family->Test(independent, p_value, what + " round alike");
}

StochasticStatistic Neighbours(const Draws& draws) {
  Family family("neighbours");
  const bool is_cvt = draws.sample.form == RandomForm::kCvtRs;
  for (std::size_t i = 0; i < 4; ++i) {  // within groups of four
    for (std::size_t j = i + 1; j < 4; ++j) {
      const std::string what = "elements " + std::to_string(i) + " and " + std::to_string(j) +
                               " of groups of four columns";
      TestPairs(
          draws, 0, j - i, is_cvt && i % 2 == 0 && j == i + 1, what,
          [i](std::size_t, std::size_t c) { return c % 4 == i; }, &family);
    }
  }
  for (std::size_t lag = 4; lag < draws.sample.cols; lag *= 2) {
    TestPairs(
        draws, 0, lag, false, "elements " + std::to_string(lag) + " columns apart",
        [lag](std::size_t, std::size_t c) { return c % 2 == 0 && c / lag % 2 == 0; }, &family);
  }
  for (std::size_t lag = 1; lag < draws.sample.rows; lag *= 2) {
    TestPairs(
        draws, lag, 0, false, "elements " + std::to_string(lag) + " rows apart",
        [lag](std::size_t r, std::size_t c) { return c % 2 == 0 && r / lag % 2 == 0; }, &family);
  }
  return family.Result();
}

StochasticStatistic Repetitions(const Draws& draws) {
  Family family("repetitions");
  const std::size_t n = draws.up.size();
  for (std::size_t lag = 1; lag < n; lag *= 2) {
    std::array<DrawSum, 2> sums;  // even and odd columns
    for (std::size_t r = 0; r < draws.sample.rows; ++r) {
      for (std::size_t c = 0; c < draws.sample.cols; ++c) {
        const Element& e = draws.At(r, c);
        if (e.p == 0.0) continue;
        std::uint64_t pairs = 0, alike = 0;
        for (std::size_t i = 0; i + lag < n; ++i) {
          if (i / lag % 2 != 0) continue;
          ++pairs;
          alike += draws.Up(i, r, c) == draws.Up(i + lag, r, c);
        }
        sums[c % 2].Add(AlikeIndependent(e, e), pairs, alike);
      }
    }
    for (const DrawSum& sum : sums) {
      family.Test(sum, sum.PValue(),
                  "elements that round alike in repetitions " + std::to_string(lag) + " apart");
    }
  }
  return family.Result();
}

void CheckSample(const StochasticSample& sample, double error_rate) {
  Expects(FormatOf(sample.element).bits <= 8 && TakesForm(sample.element, sample.form),
          "random bits in a form that the element format of at most 8 bits takes");
  Expects(sample.scaled.size() == sample.rows * sample.cols, "one scaled value per element");
  Expects(!sample.outputs.empty(), "at least one output");
  for (const auto& output : sample.outputs) {
    Expects(output.size() == sample.scaled.size(), "one code per element in each output");
  }
  Expects(error_rate > 0.0 && error_rate < 1.0, "an error rate between 0 and 1");
}

}  // namespace

StochasticVerdict JudgeStochastic(const StochasticSample& sample, double error_rate) {
  const IeeeArithmetic ieee;
  CheckSample(sample, error_rate);
  Draws draws{sample, {}, {}};
  draws.elements.reserve(sample.scaled.size());
  for (const float v : sample.scaled) draws.elements.push_back(ElementOf(sample, v));
  draws.up.assign(sample.outputs.size(), std::vector<std::uint8_t>(sample.scaled.size()));

  StochasticVerdict verdict;
  verdict.repetitions = sample.outputs.size();
  for (const Element& e : draws.elements) verdict.free_elements += e.count > 0;
  const double level = error_rate / 4;
  const auto judge = [&](StochasticStatistic statistic) {
    verdict.statistics.push_back(std::move(statistic));
    const StochasticStatistic& s = verdict.statistics.back();
    if (s.p_value >= level) return;
    if (verdict.answer == StochasticAnswer::kRefused) {
      verdict.reason += "; so do " + std::string(s.name);
      return;
    }
    verdict.answer = StochasticAnswer::kRefused;
    char p_value[40];
    std::snprintf(p_value, sizeof p_value, " (p = %.2g)", s.p_value);
    verdict.reason = std::string(s.name) + ": " + s.what + p_value;
  };
  judge(Codes(&draws));
  judge(ElementRates(draws));
  judge(Rates(draws));
  judge(Neighbours(draws));
  judge(Repetitions(draws));
  const RateTests tests = RateTestsOf(draws);
  if (tests.count > 0) verdict.power = PowerOf(draws, level / static_cast<double>(tests.count));
  if (verdict.answer == StochasticAnswer::kRefused) return verdict;
  if (tests.CanDecide(level)) {
    verdict.answer = StochasticAnswer::kAccepted;
  } else {
    verdict.reason = "too few elements between two codes (" +
                     std::to_string(verdict.free_elements) + " in " +
                     std::to_string(verdict.repetitions) +
                     " repetitions) to tell stochastic rounding from truncation";
  }
  return verdict;
}

}  // namespace fp4lab
