#include "fp4lab/study/several/seed_noise.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {

RecipeLosses DistinctLosses(const RecipeLosses& losses) {
  const IeeeArithmetic ieee;
  RecipeLosses distinct;
  for (const auto& own : losses) {
    const bool again = std::any_of(distinct.begin(), distinct.end(),
                                   [&](const auto& other) { return other.second == own.second; });
    if (!again) distinct.push_back(own);
  }
  return distinct;
}

NoisePool::NoisePool(const RecipeLosses& losses) : recipes(losses.size()) {
  const IeeeArithmetic ieee;
  Expects(losses.size() > 1, "NoisePool: two recipes or more");
  Eigen::Index count = 0;
  for (const auto& [name, of_seed] : losses) {
    for (const auto& [seed, loss] : of_seed) {
      ++runs[seed];
      ++count;
    }
  }
  std::map<std::uint64_t, Eigen::Index> column;
  for (const auto& [seed, n] : runs) {
    const auto next = static_cast<Eigen::Index>(losses.size() + column.size());
    column[seed] = next;
  }
  Eigen::MatrixXd places =
      Eigen::MatrixXd::Zero(count, static_cast<Eigen::Index>(losses.size() + column.size()));
  Eigen::VectorXd values(count);
  Eigen::Index row = 0;
  for (std::size_t r = 0; r < losses.size(); ++r) {
    for (const auto& [seed, loss] : losses[r].second) {
      places(row, static_cast<Eigen::Index>(r)) = 1;
      places(row, column[seed]) = 1;
      values[row++] = loss;
    }
  }
  const Eigen::CompleteOrthogonalDecomposition<Eigen::MatrixXd> fit(places);
  const Eigen::VectorXd solution = fit.solve(values);
  freedom = static_cast<double>(count - fit.rank());
  deviation = freedom > 0 ? (values - places * solution).norm() / std::sqrt(freedom) : 0;
  double mean = 0;
  for (const auto& [seed, at] : column) mean += solution[at] / static_cast<double>(column.size());
  for (const auto& [seed, at] : column) effects[seed] = solution[at] - mean;
}

SeedNoise::SeedNoise(const RecipeLosses& losses, const std::vector<std::string>& pools) {
  const IeeeArithmetic ieee;
  Expects(losses.size() == pools.size(), "SeedNoise: a pool for each recipe");
  std::map<std::string, RecipeLosses> members;
  for (const auto& own : DistinctLosses(losses)) {
    const auto at = std::find_if(losses.begin(), losses.end(),
                                 [&](const auto& other) { return other.first == own.first; });
    const std::string& pool = pools[static_cast<std::size_t>(at - losses.begin())];
    if (!pool.empty()) members[pool].push_back(own);
  }
  for (const auto& [name, own] : members) {
    if (own.size() < 2) continue;
    NoisePool pool(own);
    if (pool.freedom > 0) pools_.emplace(name, std::move(pool));
  }
}

Variance SeedNoise::Between(const NoisePool& a, const NoisePool& b) const {
  const IeeeArithmetic ieee;
  std::vector<double> differences;
  double noise = 0;
  for (const auto& [seed, effect] : a.effects) {
    const auto other = b.effects.find(seed);
    if (other == b.effects.end()) continue;
    differences.push_back(effect - other->second);
    noise += a.deviation * a.deviation / static_cast<double>(a.runs.at(seed)) +
             b.deviation * b.deviation / static_cast<double>(b.runs.at(seed));
  }
  if (differences.size() < 2) return {0, 1};
  const double observed = Summarize(differences).deviation;
  noise /= static_cast<double>(differences.size());
  return {std::max(0.0, observed * observed - noise), static_cast<double>(differences.size() - 1)};
}

Variance SeedNoise::OfOneSeed(const std::string& a, const std::string& b) const {
  const IeeeArithmetic ieee;
  const NoisePool &x = pools_.at(a), &y = pools_.at(b);
  std::vector<Variance> parts = {{2 * x.deviation * x.deviation, x.freedom}};
  if (a != b) {
    parts = {{x.deviation * x.deviation, x.freedom},
             {y.deviation * y.deviation, y.freedom},
             Between(x, y)};
  }
  double value = 0, squares = 0;
  for (const Variance& part : parts) {
    value += part.value;
    squares += part.value * part.value / part.freedom;
  }
  return {value, squares > 0 ? value * value / squares : parts[0].freedom};
}

std::optional<double> SeedNoise::HalfWidth(const std::string& a, const std::string& b,
                                           std::size_t seeds, double confidence) const {
  const IeeeArithmetic ieee;
  if (pools_.count(a) == 0 || pools_.count(b) == 0 || seeds == 0) return std::nullopt;
  const Variance one = OfOneSeed(a, b);
  return StudentQuantile(0.5 + confidence / 2, one.freedom) *
         std::sqrt(one.value / static_cast<double>(seeds));
}

}  // namespace fp4lab::study
