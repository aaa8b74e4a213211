#include "fp4lab/judge/verify/verify_stochastic.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/noise/noise_verdict.h"

namespace fp4lab {
namespace {

constexpr std::string_view kAnswers[] = {"accepted", "refused", "undecided"};  // StochasticAnswer's

// v of every element, the input of its rounding.
std::vector<float> Scaled(const Dialect& dialect, MatrixView<const float> x,
                          const DialectOptions& options) {
  std::vector<float> scaled(x.rows * x.cols);
  ParallelFor(x.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      scaled[r * x.cols + c] = TraceAs(dialect, x, r, c, options).scaled;
    }
  });
  return scaled;
}

void Add(const PartVerdict& run, std::size_t keep, PartVerdict* all) {
  all->total += run.total;
  all->different += run.different;
  all->same_value += run.same_value;
  for (const Difference& d : run.first) {
    if (all->first.size() < keep) all->first.push_back(d);
  }
}

std::string Rate(double p) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", p);
  return buffer;
}

// "A probability off by 0.012 everywhere ...": what the sample shows, and what it may miss.
std::string PowerText(const Dialect& dialect, const StochasticVerdict& v) {
  const int bits = dialect.rounding == ElementRounding::kStochastic8 ? 8 : 16;
  std::string text = "power   ";
  if (v.power.bits < 0) return text + "not even truncation would be noticed\n";
  text += "99 of 100 kernels with probabilities off by " + Rate(v.power.bias) +
          " everywhere are refused, or with " +
          (v.power.bits == 0 ? std::string("truncation")
                             : std::to_string(v.power.bits) + " random bits or fewer") +
          " where " + std::to_string(bits) + " are due;\n";
  text += v.power.bits + 1 < bits
              ? "        " + std::to_string(v.power.bits + 1) +
                    " random bits or a smaller bias can pass: judge more runs or elements\n"
              : "        a smaller bias can pass: judge more runs or elements\n";
  return text;
}

std::size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(differ.first - a.begin());
}

}  // namespace

const Dialect* StochasticSibling(const Dialect& dialect) {
  for (const AddedNoise& noise : kAddedNoises) {
    if (noise.dialect.starts_with(dialect.name)) return FindDialect(noise.dialect);
  }
  const Dialect* sibling = nullptr;
  for (const Dialect& d : Dialects()) {
    const bool same_shape = d.element == dialect.element && d.scale == dialect.scale &&
                            d.block_rows == dialect.block_rows &&
                            d.block_cols == dialect.block_cols;
    if (!same_shape || !IsStochastic(d)) continue;
    if (sibling == nullptr ||
        CommonPrefix(d.name, dialect.name) > CommonPrefix(sibling->name, dialect.name)) {
      sibling = &d;
    }
  }
  return sibling;
}

void RequireStochastic(const Dialect& dialect, std::string_view where) {
  if (IsStochastic(dialect) || FindAddedNoise(dialect.name) != nullptr) return;
  const Dialect* sibling = StochasticSibling(dialect);
  throw Error(std::string(where),
              std::string(dialect.name) + " does not round stochastically, so one run decides; " +
                  (sibling != nullptr
                       ? "for a kernel that does, give the dialect " + std::string(sibling->name)
                       : "no dialect of this format rounds stochastically"));
}

bool StatisticalVerdict::Accepted() const {
  return exact.scales.different == 0 && exact.tensor_scale.different == 0 &&
         rounding.answer == StochasticAnswer::kAccepted;
}

StatisticalVerdict VerifyStatistically(const Dialect& dialect, MatrixView<const float> x,
                                       std::span<const StoredMatrix> runs, std::string_view where,
                                       const VerifyOptions& options, double error_rate) {
  const IeeeArithmetic ieee;
  const AddedNoise* noise = FindAddedNoise(dialect.name);
  Expects((IsStochastic(dialect) || noise != nullptr) && !runs.empty(),
          "runs of a stochastic dialect");
  const std::vector<std::uint16_t> zeros(x.rows * x.cols, 0);
  DialectOptions known{.amax = options.quantize.amax};
  if (noise == nullptr) known.random = zeros;
  const Quantized right = QuantizeAs(dialect, x, known);
  known.amax = right.amax;
  const std::vector<float> scaled = Scaled(dialect, x, known);

  StatisticalVerdict verdict;
  std::vector<Quantized> loaded;
  for (const StoredMatrix& run : runs) {
    const Verdict one = CompareQuantized(dialect, right, run, where, options);
    Add(one.scales, options.first, &verdict.exact.scales);
    Add(one.tensor_scale, options.first, &verdict.exact.tensor_scale);
    verdict.exact.has_tensor_scale = one.has_tensor_scale;
    loaded.push_back(Load(dialect, run, where));
  }
  StochasticSample sample{.element = dialect.element,
                          .form = dialect.rounding == ElementRounding::kStochastic8
                                      ? RandomForm::kTe8
                                      : RandomForm::kCvtRs,
                          .rows = x.rows,
                          .cols = x.cols,
                          .scaled = scaled,
                          .outputs = {}};
  for (const Quantized& q : loaded) sample.outputs.push_back(q.codes);
  verdict.rounding = noise != nullptr ? JudgeAddedNoise(*noise, sample, error_rate)
                                      : JudgeStochastic(sample, error_rate);
  return verdict;
}

const Dialect* RandomRowOf(const Dialect& dialect, MatrixView<const float> x,
                           const StoredMatrix& answer, std::string_view where,
                           const VerifyOptions& options) {
  const IeeeArithmetic ieee;
  constexpr std::size_t kMost = std::size_t{1} << 20;
  if (IsStochastic(dialect) || x.rows * x.cols > kMost) return nullptr;
  for (const Dialect& row : Dialects()) {
    const bool random = IsStochastic(row) || FindAddedNoise(row.name) != nullptr;
    const bool same_shape =
        row.element == dialect.element && row.scale == dialect.scale &&
        row.block_rows == dialect.block_rows && row.block_cols == dialect.block_cols &&
        HasTensorScale(row) == HasTensorScale(dialect) && row.row_scaled == dialect.row_scaled;
    if (!random || !same_shape || row.name == dialect.name) continue;
    const VerifyOptions own{.quantize = {.amax = options.quantize.amax}, .first = 0};
    if (VerifyStatistically(row, x, {&answer, 1}, where, own).Accepted()) return &row;
  }
  return nullptr;
}

std::string StatisticalText(const Dialect& dialect, const StatisticalVerdict& verdict) {
  const IeeeArithmetic ieee;
  const StochasticVerdict& v = verdict.rounding;
  const AddedNoise* noise = FindAddedNoise(dialect.name);
  std::string text =
      std::string(dialect.name) + (noise != nullptr ? " with " + std::string(noise->name) : "") +
      ", " + std::to_string(v.repetitions) + " runs, " + std::to_string(v.free_elements) +
      " elements between two codes: " + std::string(kAnswers[static_cast<std::size_t>(v.answer)]) +
      "\n";
  const auto part = [&](const char* name, const PartVerdict& p) {
    text += std::string(name) + (p.different == 0 ? "equal (" + std::to_string(p.total) + ")\n"
                                                  : std::to_string(p.different) + " of " +
                                                        std::to_string(p.total) + " differ\n");
  };
  part("scales  ", verdict.exact.scales);
  if (verdict.exact.has_tensor_scale) part("tensor scale ", verdict.exact.tensor_scale);
  if (!v.reason.empty()) text += "codes   " + v.reason + "\n";
  for (const StochasticStatistic& s : v.statistics) {
    text += "  " + std::string(s.name) + ": " + std::to_string(s.tests) +
            " tests, p >= " + Rate(s.p_value) + (s.what.empty() ? "" : "; " + s.what) + "\n";
  }
  return FindAddedNoise(dialect.name) != nullptr ? text : text + PowerText(dialect, v);
}

Json StatisticalJson(const Dialect& dialect, const StatisticalVerdict& verdict) {
  const IeeeArithmetic ieee;
  const StochasticVerdict& v = verdict.rounding;
  Json statistics = Json::array();
  for (const StochasticStatistic& s : v.statistics) {
    statistics.push_back(
        {{"name", s.name}, {"tests", s.tests}, {"p_value", s.p_value}, {"what", s.what}});
  }
  return {{"dialect", dialect.name},
          {"accepted", verdict.Accepted()},
          {"rounding", kAnswers[static_cast<std::size_t>(v.answer)]},
          {"reason", v.reason},
          {"runs", v.repetitions},
          {"free_elements", v.free_elements},
          {"scales_different", verdict.exact.scales.different},
          {"tensor_scale_different", verdict.exact.tensor_scale.different},
          {"power", FindAddedNoise(dialect.name) != nullptr
                        ? Json()
                        : Json({{"bias", v.power.bias}, {"random_bits", v.power.bits}})},
          {"statistics", std::move(statistics)}};
}

}  // namespace fp4lab
