#include "fp4lab/study/analysis/bootstrap.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {
namespace {

constexpr Estimator kEstimators[] = {Estimator::kCrossing, Estimator::kSharedBaseline,
                                     Estimator::kPowerLaw};

// The pairs whose gaps are computed: PairsOf, and every null arm against the reference.
std::vector<ArmPair> GapPairsOf(const Results& results) {
  std::vector<ArmPair> pairs = PairsOf(results);
  for (const std::string& arm : results.question.null_arms) {
    if (arm != results.question.reference) pairs.push_back({arm, results.question.reference});
  }
  return pairs;
}

double MeanGap(const LossCube& cube, std::size_t arm, std::size_t reference, std::size_t budget,
               const std::vector<bool>& present) {
  double sum = 0, count = 0;
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    if (!present[s]) continue;
    sum += cube.At(s, arm, budget) - cube.At(s, reference, budget);
    ++count;
  }
  return count > 0 ? sum / count : NAN;
}

std::vector<bool> Drawn(const std::vector<bool>& present, const BootstrapDraw& draw) {
  std::vector<bool> drawn;
  for (const std::size_t s : draw.seeds) drawn.push_back(present[s]);
  return drawn;
}

}  // namespace

Work MakeWork(const Results& results, Precision precision) {
  Work work{results,
            precision,
            LossesOf(results, precision),
            ChunksOf(results, precision),
            IndexOf(results.arms, results.question.reference),
            {},
            {},
            GapPairsOf(results)};
  const auto& null_arms = results.question.null_arms;
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    const bool null = std::count(null_arms.begin(), null_arms.end(), results.arms[arm]) > 0;
    if (!null) work.arms.push_back(arm);
  }
  for (const ArmPair& pair : PairsOf(results)) {
    for (std::size_t k = 0; k < results.budgets.size(); ++k) {
      for (const Estimator estimator : kEstimators) {
        for (const Form form : kForms) {
          work.keys.push_back({IndexOf(results.arms, pair.format),
                               IndexOf(results.arms, pair.reference), k, estimator, form});
        }
      }
    }
  }
  return work;
}

BootstrapMeans Bootstrap(const Work& work, int draws) {
  const IeeeArithmetic ieee;
  const std::size_t budgets = work.cube.Budgets(), count = static_cast<std::size_t>(draws);
  BootstrapMeans means;
  means.log_ratios.assign(work.keys.size(), std::vector<double>(count));
  means.gaps.assign(work.gap_pairs.size() * budgets, std::vector<double>(count));
  std::vector<std::vector<bool>> key_present, gap_present;
  for (const RatioKey& key : work.keys) {
    key_present.push_back(work.Present(key.format, key.reference));
  }
  std::vector<std::pair<std::size_t, std::size_t>> gap_arms;
  for (const ArmPair& pair : work.gap_pairs) {
    gap_arms.emplace_back(IndexOf(work.results.arms, pair.format),
                          IndexOf(work.results.arms, pair.reference));
    gap_present.push_back(work.Present(gap_arms.back().first, gap_arms.back().second));
  }
  ParallelFor(count, [&](std::size_t d) {
    const BootstrapDraw draw = DrawBootstrap(work.cube.seeds, work.chunks.chunks, work.chunks.block,
                                             static_cast<std::uint32_t>(d));
    const LossCube cube = Resample(work.cube, work.chunks, draw);
    const CubeFits fits = FitCube(cube, work.baseline, work.arms, false);
    for (std::size_t i = 0; i < work.keys.size(); ++i) {
      if (work.keys[i].estimator == Estimator::kPowerLaw) continue;
      means.log_ratios[i][d] =
          MeanLogRatio(RatiosPerSeed(cube, fits, work.keys[i]), Drawn(key_present[i], draw));
    }
    for (std::size_t p = 0; p < gap_arms.size(); ++p) {
      for (std::size_t k = 0; k < budgets; ++k) {
        means.gaps[p * budgets + k][d] =
            MeanGap(cube, gap_arms[p].first, gap_arms[p].second, k, Drawn(gap_present[p], draw));
      }
    }
  });
  return means;
}

}  // namespace fp4lab::study
