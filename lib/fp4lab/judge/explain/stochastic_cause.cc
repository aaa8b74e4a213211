#include "fp4lab/judge/explain/stochastic_cause.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "fp4lab/dialect/noise/added_noise.h"
#include "fp4lab/judge/verify/verify_stochastic.h"

namespace fp4lab {
namespace {

bool IsNearCode(std::uint8_t code, std::uint8_t truncated) {
  return (code & 8u) == (truncated & 8u) && std::abs((code & 7) - (truncated & 7)) <= 2;
}

// Whether all scales are the plan's and all codes are the plan's, which truncates, or one more;
// with noise up to two less or two more (codes of E2M1).
bool AreNeighbours(const KernelPlan& truncating, bool noise, ByteMatcher& matcher) {
  const Evaluator evaluator = matcher.MakeEvaluator(truncating);
  const Places places(truncating, evaluator.rows(), evaluator.cols());
  const StoredMatrix& got = matcher.got();
  const BlockGrid& grid = evaluator.grid();
  BlockBytes block;
  for (std::size_t i = 0; i < grid.rows; ++i) {
    for (std::size_t j = 0; j < grid.cols; ++j) {
      evaluator.Evaluate(i, j, &block);
      for (std::size_t copy = 0; grid.stores_scales && copy < places.Copies(i, j); ++copy) {
        const std::size_t place = places.ScalePlace(i, j, copy);
        if (!places.HasScale(got.scales.size(), place)) return false;
        if (places.ScaleAt(got.scales, place) != block.scale) return false;
      }
      for (std::size_t k = 0; k < block.codes.size(); ++k) {
        const std::size_t bit =
            places.CodeBit(block.row + k / block.cols, block.col + k % block.cols);
        if (!places.Fits(bit, got.codes.size())) return false;
        const std::uint8_t code = places.CodeAt(got.codes, bit);
        if (noise ? !IsNearCode(code, block.codes[k])
                  : code != block.codes[k] && code != block.codes[k] + 1) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

std::optional<StochasticCause> FindStochasticCause(const Kernel& asked, ByteMatcher& matcher) {
  const Dialect& d = asked.dialect;
  const bool nearest = !IsStochastic(d) && !IsApproximate(d) &&
                       d.rounding != ElementRounding::kClosest && d.adaptive == Adaptive::kNo;
  const StoredSizes sizes =
      SizesOf(ShapeOf(d, matcher.x().rows, matcher.x().cols, asked.layout), "layout");
  const StoredMatrix& got = matcher.got();
  const bool fits = got.codes.size() == sizes.codes && got.scales.size() == sizes.scales;
  if (!nearest || got.scales.empty() || !fits) return std::nullopt;
  std::vector<std::pair<const Dialect*, Dialect>> rows = {
      {nullptr, WithRounding(d, ElementRounding::kStochastic16)}};
  for (const Dialect& row : Dialects()) {
    const bool same_shape = row.element == d.element && row.scale == d.scale &&
                            row.block_rows == d.block_rows && row.block_cols == d.block_cols;
    const bool random = IsStochastic(row) || FindAddedNoise(row.name) != nullptr;
    if (same_shape && random) rows.emplace_back(&row, row);
  }
  Matrix<float> transformed;
  MatrixView<const float> x = matcher.x();
  if (asked.hadamard != 0) {
    transformed = InputOf(PlanOf(asked).input, x);
    x = transformed.View();
  }
  std::optional<StochasticCause> best;
  for (const auto& [row, dialect] : rows) {
    const AddedNoise* noise = FindAddedNoise(dialect.name);
    Kernel truncating = asked;
    truncating.dialect = WithRounding(dialect, ElementRounding::kTowardZero);
    const KernelPlan plan = PlanOf(truncating);
    if (!matcher.TensorScaleMatches(plan) || !AreNeighbours(plan, noise != nullptr, matcher)) {
      continue;
    }
    StoredMatrix run = ShapeOf(dialect, x.rows, x.cols, asked.layout);
    run.codes = got.codes;
    run.scales = got.scales;
    run.layout.tensor_scale = TensorScaleConvention::kNone;
    const StatisticalVerdict verdict = VerifyStatistically(
        dialect, x, {&run, 1}, "bytes", {.quantize = {.amax = matcher.options().amax}});
    const bool accepted = verdict.rounding.answer == StochasticAnswer::kAccepted;
    if (noise != nullptr && !accepted) continue;  // right scales alone say nothing
    if (!best || (accepted && !best->Accepted())) {
      best = StochasticCause{row, noise, verdict.rounding};
    }
  }
  return best;
}

}  // namespace fp4lab
