#include "fp4lab/dialect/noise/noise_verdict.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/tail_bounds.h"

namespace fp4lab {
namespace {

constexpr std::size_t kEnoughElements = 512;
constexpr std::size_t kPeriod = 16;  // columns whose rates are tested apart

// The codes that noise can make of an element.
struct Noisy {
  NoisyCodes codes;
  double above = 0;  // the probability of a code above the likeliest one, as signed numbers
  std::uint8_t likeliest = 0;
  bool negative = false;

  bool IsAbove(std::size_t magnitude) const {
    return negative ? magnitude < likeliest : magnitude > likeliest;
  }
};

Noisy NoisyOf(const AddedNoise& noise, float v) {
  Noisy e{.codes = noise.codes(v)};
  const auto& p = e.codes.probability;
  e.likeliest = static_cast<std::uint8_t>(std::max_element(p.begin(), p.end()) - p.begin());
  e.negative = std::bit_cast<std::uint32_t>(v) >> 31 != 0;
  for (std::size_t code = 0; code < p.size(); ++code) e.above += e.IsAbove(code) ? p[code] : 0;
  return e;
}

bool IsOpen(double p) { return p > 0.0 && p < 1.0; }

// A family of tests that share an error rate.
class Family {
 public:
  explicit Family(std::string_view name) { statistic_.name = name; }
  void Test(const DrawSum& sum, const std::string& what) {
    if (sum.Trials() == 0) return;
    ++statistic_.tests;
    const double p = sum.PValue();
    if (!statistic_.what.empty() && p >= least_) return;
    least_ = p;
    char seen[80];
    std::snprintf(seen, sizeof seen, ": %llu of %llu, expected %.1f",
                  static_cast<unsigned long long>(sum.Yes()),
                  static_cast<unsigned long long>(sum.Trials()), sum.Mean());
    statistic_.what = what + seen;
  }
  StochasticStatistic Result() {
    const auto tests = static_cast<double>(statistic_.tests);
    statistic_.p_value = statistic_.tests == 0 ? 1.0 : std::min(1.0, least_ * tests);
    return statistic_;
  }

 private:
  StochasticStatistic statistic_;
  double least_ = 1.0;
};

class Judge {
 public:
  Judge(const AddedNoise& noise, const StochasticSample& sample) : sample_(sample) {
    elements_.reserve(sample.scaled.size());
    for (const float v : sample.scaled) elements_.push_back(NoisyOf(noise, v));
  }

  std::size_t FreeElements() const {
    return static_cast<std::size_t>(
        std::count_if(elements_.begin(), elements_.end(),
                      [](const Noisy& e) { return e.codes.probability[e.likeliest] < 1.0; }));
  }

  StochasticStatistic Codes() const {
    StochasticStatistic s;
    s.name = "codes";
    std::size_t wrong = 0;
    for (const auto& output : sample_.outputs) {
      for (std::size_t i = 0; i < output.size(); ++i) {
        ++s.tests;
        const bool sign = (output[i] & 8u) == (elements_[i].negative ? 8u : 0u);
        if (sign && elements_[i].codes.reached[output[i] & 7u]) continue;
        if (wrong++ > 0) continue;
        s.what = "element (" + std::to_string(i / sample_.cols) + ", " +
                 std::to_string(i % sample_.cols) + ") has the code " + std::to_string(output[i]) +
                 ", which the noise does not reach";
      }
    }
    if (wrong == 0) return s;
    s.p_value = 0.0;
    s.what = std::to_string(wrong) + " of " + std::to_string(s.tests) +
             " codes cannot be reached; " + s.what;
    return s;
  }

  StochasticStatistic Rates() const {
    Family family("rates");
    for (std::uint8_t code = 0; code < 8; ++code) {
      DrawSum sum;
      for (std::size_t i = 0; i < elements_.size(); ++i) {
        const double p = elements_[i].codes.probability[code];
        if (IsOpen(p))
          sum.Add(p, sample_.outputs.size(), Count(i, [&](auto c) { return c == code; }));
      }
      family.Test(sum, "elements of the magnitude code " + std::to_string(code));
    }
    std::vector<DrawSum> columns(kPeriod);
    DrawSum all;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const double p = elements_[i].above;
      if (!IsOpen(p)) continue;
      const std::uint64_t above = Count(i, [&](auto c) { return elements_[i].IsAbove(c); });
      all.Add(p, sample_.outputs.size(), above);
      columns[i % sample_.cols % kPeriod].Add(p, sample_.outputs.size(), above);
    }
    family.Test(all, "elements above their likeliest code");
    for (std::size_t c = 0; c < kPeriod; ++c) {
      family.Test(columns[c], "such elements in columns " + std::to_string(c) + " mod 16");
    }
    return family.Result();
  }

  StochasticStatistic Neighbours() const {
    Family family("neighbours");
    DrawSum sum;
    for (std::size_t r = 0; r < sample_.rows; ++r) {
      for (std::size_t c = 0; c + 1 < sample_.cols; c += 2) {
        const std::size_t i = r * sample_.cols + c;
        const double p = elements_[i].above * elements_[i + 1].above;
        if (!IsOpen(p)) continue;
        std::uint64_t both = 0;
        for (const auto& output : sample_.outputs)
          both += IsAbove(output, i) && IsAbove(output, i + 1);
        sum.Add(p, sample_.outputs.size(), both);
      }
    }
    family.Test(sum, "pairs of columns that are both above their likeliest codes");
    return family.Result();
  }

  StochasticStatistic Repetitions() const {
    Family family("repetitions");
    DrawSum sum;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const double p = elements_[i].above * elements_[i].above;
      if (!IsOpen(p)) continue;
      std::uint64_t pairs = 0, both = 0;
      for (std::size_t n = 0; n + 1 < sample_.outputs.size(); n += 2) {
        ++pairs;
        both += IsAbove(sample_.outputs[n], i) && IsAbove(sample_.outputs[n + 1], i);
      }
      if (pairs > 0) sum.Add(p, pairs, both);
    }
    family.Test(sum, "elements above their likeliest code in two successive runs");
    return family.Result();
  }

 private:
  bool IsAbove(std::span<const std::uint8_t> output, std::size_t i) const {
    return elements_[i].IsAbove(output[i] & 7u);
  }
  template <class Is>
  std::uint64_t Count(std::size_t i, Is is) const {
    std::uint64_t count = 0;
    for (const auto& output : sample_.outputs) count += is(output[i] & 7u) ? 1 : 0;
    return count;
  }

  const StochasticSample& sample_;
  std::vector<Noisy> elements_;
};

}  // namespace

StochasticVerdict JudgeAddedNoise(const AddedNoise& noise, const StochasticSample& sample,
                                  double error_rate) {
  const IeeeArithmetic ieee;
  Expects(sample.element == FormatId::kE2M1, "codes of E2M1");
  Expects(sample.scaled.size() == sample.rows * sample.cols, "one scaled value per element");
  Expects(!sample.outputs.empty(), "at least one output");
  for (const auto& output : sample.outputs) {
    Expects(output.size() == sample.scaled.size(), "one code per element in each output");
  }
  Expects(error_rate > 0.0 && error_rate < 1.0, "an error rate between 0 and 1");
  const Judge judge(noise, sample);
  StochasticVerdict verdict;
  verdict.repetitions = sample.outputs.size();
  verdict.free_elements = judge.FreeElements();
  verdict.statistics = {judge.Codes(), judge.Rates(), judge.Neighbours(), judge.Repetitions()};
  const double level = error_rate / 3;  // the statistics that are not certain
  for (const StochasticStatistic& s : verdict.statistics) {
    if (s.p_value >= level) continue;
    if (verdict.answer == StochasticAnswer::kRefused) {
      verdict.reason += "; so do " + std::string(s.name);
      continue;
    }
    verdict.answer = StochasticAnswer::kRefused;
    char p_value[40];
    std::snprintf(p_value, sizeof p_value, " (p = %.2g)", s.p_value);
    verdict.reason = std::string(s.name) + ": " + s.what + p_value;
  }
  if (verdict.answer == StochasticAnswer::kRefused) return verdict;
  if (verdict.free_elements * verdict.repetitions >= kEnoughElements) {
    verdict.answer = StochasticAnswer::kAccepted;
  } else {
    verdict.reason = "too few elements with two codes (" + std::to_string(verdict.free_elements) +
                     " in " + std::to_string(verdict.repetitions) + " repetitions)";
  }
  return verdict;
}

}  // namespace fp4lab
