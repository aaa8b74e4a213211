#include "fp4lab/study/results/loss_cube.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {
namespace {

const AnnealedPoint* PointOf(const RunResult* run, std::int64_t tokens) {
  if (run == nullptr) return nullptr;
  const auto found = std::find_if(run->points.begin(), run->points.end(),
                                  [&](const AnnealedPoint& p) { return p.tokens == tokens; });
  return found == run->points.end() ? nullptr : &*found;
}

// Calls body(run, point) for every entry of the cube, in the order of LossCube::losses. Run and
// point may be nullptr.
template <class Body>
void ForEachPlace(const Results& results, const Body& body) {
  for (const std::uint64_t seed : results.seeds) {
    for (const std::string& arm : results.arms) {
      const RunResult* run = results.Find(arm, seed);
      for (const std::int64_t tokens : results.budgets) body(run, PointOf(run, tokens));
    }
  }
}

std::size_t LongestBlock(const Results& results, const ChunkLosses& chunks) {
  const std::size_t arms = results.arms.size(), budgets = results.budgets.size();
  const auto series = [&](std::size_t seed, std::size_t arm) -> const std::vector<double>& {
    return chunks.series[(seed * arms + arm + 1) * budgets - 1];
  };
  const std::size_t reference = IndexOf(results.arms, results.question.reference);
  std::size_t longest = 1;
  for (std::size_t arm = 0; arm < arms; ++arm) {
    std::vector<double> gap(chunks.chunks);
    for (std::size_t seed = 0; arm != reference && seed < results.seeds.size(); ++seed) {
      const std::vector<double>&a = series(seed, arm), &b = series(seed, reference);
      for (std::size_t c = 0; c < std::min(a.size(), b.size()); ++c) gap[c] += a[c] - b[c];
    }
    longest = std::max(longest, BlockLength(gap));
  }
  return longest;
}

}  // namespace

std::size_t IndexOf(const std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  Expects(found != names.end(), "IndexOf: the name is in the list");
  return static_cast<std::size_t>(found - names.begin());
}

LossCurve LossCube::Curve(std::size_t seed, std::size_t arm) const {
  LossCurve curve{log_tokens, {}};
  for (std::size_t k = 0; k < Budgets(); ++k) curve.losses.push_back(At(seed, arm, k));
  return curve;
}

bool LossCube::Empty() const {
  const IeeeArithmetic ieee;
  return std::none_of(losses.begin(), losses.end(), [](double x) { return std::isfinite(x); });
}

LossCube LossesOf(const Results& results, Precision precision) {
  const IeeeArithmetic ieee;
  LossCube cube{results.seeds.size(), results.arms.size(), {}, {}};
  for (const std::int64_t tokens : results.budgets) {
    cube.log_tokens.push_back(std::log(static_cast<double>(tokens)));
  }
  ForEachPlace(results, [&](const RunResult* run, const AnnealedPoint* point) {
    double loss = std::numeric_limits<double>::quiet_NaN();
    if (point != nullptr) {
      loss = precision == Precision::kTraining ? point->loss : point->loss_high;
      if (precision == Precision::kTraining && std::isnan(loss)) loss = INFINITY;
    } else if (run != nullptr && run->diverged) {
      loss = INFINITY;
    }
    cube.losses.push_back(loss);
  });
  return cube;
}

ChunkLosses ChunksOf(const Results& results, Precision precision) {
  const IeeeArithmetic ieee;
  ChunkLosses chunks;
  bool equal = true;
  ForEachPlace(results, [&](const RunResult*, const AnnealedPoint* point) {
    chunks.series.emplace_back();
    if (point == nullptr) return;
    chunks.series.back() = precision == Precision::kTraining ? point->chunks : point->chunks_high;
    const std::size_t count = chunks.series.back().size();
    if (chunks.chunks == 0) chunks.chunks = count;
    equal = equal && count == chunks.chunks;
  });
  if (!equal || chunks.chunks < 2) chunks.chunks = 0;
  if (chunks.chunks > 0) chunks.block = LongestBlock(results, chunks);
  return chunks;
}

LossCube Resample(const LossCube& cube, const ChunkLosses& chunks, const BootstrapDraw& draw) {
  const IeeeArithmetic ieee;
  LossCube drawn = cube;
  const auto count = static_cast<double>(chunks.chunks);
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    const std::size_t from = draw.seeds[s];
    for (std::size_t place = 0; place < cube.arms * cube.Budgets(); ++place) {
      const std::size_t source = from * cube.arms * cube.Budgets() + place;
      double loss = cube.losses[source];
      if (chunks.chunks > 0 && std::isfinite(loss)) {
        const std::vector<double>& series = chunks.series[source];
        double shift = 0;
        for (std::size_t c = 0; c < series.size(); ++c) {
          shift += (static_cast<double>(draw.chunk_counts[c]) - 1) * series[c];
        }
        loss += shift / count;
      }
      drawn.losses[s * cube.arms * cube.Budgets() + place] = loss;
    }
  }
  return drawn;
}

}  // namespace fp4lab::study
