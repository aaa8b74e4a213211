// The least-squares fits of token_gap.h: the power law and the shared baseline.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <functional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/numbers/token_gap.h"

namespace fp4lab::study {
namespace {

Eigen::VectorXd ToVector(const std::vector<double>& values) {
  return Eigen::Map<const Eigen::VectorXd>(values.data(), static_cast<Eigen::Index>(values.size()));
}

bool AllFinite(const LossCurve& curve) {
  return std::all_of(curve.losses.begin(), curve.losses.end(),
                     [](double loss) { return std::isfinite(loss); });
}

// The x in [low, high] that minimizes f: the best of `count` evenly spaced points, then golden
// section search between its neighbours. A minimum at an edge returns that edge.
double Minimize(const std::function<double(double)>& f, double low, double high, int count) {
  const double step = (high - low) / (count - 1);
  int best = 0;
  double least = f(low);
  for (int i = 1; i < count; ++i) {
    const double value = f(low + i * step);
    if (value < least) {
      least = value;
      best = i;
    }
  }
  constexpr double kGolden = 0.6180339887498949;
  double a = low + std::max(best - 1, 0) * step, b = low + std::min(best + 1, count - 1) * step;
  double c = b - kGolden * (b - a), d = a + kGolden * (b - a);
  double fc = f(c), fd = f(d);
  for (int i = 0; i < 80 && b - a > 1e-9; ++i) {
    if (fc < fd) {
      b = d;
      d = c;
      fd = fc;
      c = b - kGolden * (b - a);
      fc = f(c);
    } else {
      a = c;
      c = d;
      fc = fd;
      d = a + kGolden * (b - a);
      fd = f(d);
    }
  }
  return a + (b - a) / 2;
}

struct Line {
  double floor, scale;
  Eigen::VectorXd residuals;
};

// losses ~ floor + scale * u by Huber's loss with threshold `delta`, iteratively reweighted. An
// infinite delta is plain least squares.
Line FitLine(const Eigen::VectorXd& u, const Eigen::VectorXd& losses, double delta) {
  const Eigen::Index n = u.size();
  Eigen::VectorXd weights = Eigen::VectorXd::Ones(n);
  Line line;
  for (int iteration = 0; iteration < 30; ++iteration) {
    Eigen::MatrixXd design(n, 2);
    design.col(0) = weights.cwiseSqrt();
    design.col(1) = weights.cwiseSqrt().cwiseProduct(u);
    const Eigen::Vector2d solution =
        design.colPivHouseholderQr().solve(weights.cwiseSqrt().cwiseProduct(losses));
    line.floor = solution[0], line.scale = solution[1];
    line.residuals = (losses.array() - (line.scale * u.array() + line.floor)).matrix();
    Eigen::VectorXd next = Eigen::VectorXd::Ones(n);
    for (Eigen::Index i = 0; i < n; ++i) {
      const double size = std::abs(line.residuals[i]);
      if (size > delta) next[i] = delta / size;
    }
    if ((next - weights).cwiseAbs().maxCoeff() < 1e-10) break;
    weights = next;
  }
  return line;
}

// The line of every curve at the trial exponent beta, with u = (D / D_1)^-beta.
std::vector<Line> FitLines(std::span<const LossCurve> curves, double beta, double delta) {
  std::vector<Line> lines;
  for (const LossCurve& curve : curves) {
    const Eigen::VectorXd x = ToVector(curve.log_tokens);
    const Eigen::VectorXd u = (-beta * (x.array() - x[0])).exp().matrix();
    lines.push_back(FitLine(u, ToVector(curve.losses), delta));
  }
  return lines;
}

double HuberSum(const std::vector<Line>& lines, double delta) {
  double sum = 0;
  for (const Line& line : lines) {
    for (const double r : line.residuals) {
      const double size = std::abs(r);
      sum += size <= delta ? size * size / 2 : delta * (size - delta / 2);
    }
  }
  return sum;
}

// Huber's usual threshold: 1.345 robust standard deviations of the least-squares residuals.
double HuberThreshold(const std::vector<Line>& lines) {
  std::vector<double> sizes;
  for (const Line& line : lines) {
    for (const double r : line.residuals) sizes.push_back(std::abs(r));
  }
  return std::max(1.345 * 1.4826 * Quantile(sizes, 0.5), 1e-9);
}

// The gaps to the baseline: [seed][format], a vector over the budgets, empty where a run is missing
// or diverged.
struct GapRows {
  std::vector<std::vector<Eigen::VectorXd>> gaps;
  std::size_t count = 0;  // numbers in all vectors
};

GapRows Gaps(std::span<const LossCurve> baselines,
             std::span<const std::vector<LossCurve>> formats) {
  GapRows rows;
  for (std::size_t s = 0; s < baselines.size(); ++s) {
    rows.gaps.emplace_back();
    for (const LossCurve& curve : formats[s]) {
      const bool complete = AllFinite(curve) && AllFinite(baselines[s]);
      rows.gaps.back().push_back(complete ? ToVector(curve.losses) - ToVector(baselines[s].losses)
                                          : Eigen::VectorXd());
      rows.count += static_cast<std::size_t>(rows.gaps.back().back().size());
    }
  }
  return rows;
}

}  // namespace

double PowerLaw::At(std::size_t curve, double log_tokens) const {
  const IeeeArithmetic ieee;
  return floors[curve] + scales[curve] * std::exp(-beta * (log_tokens - log_origin));
}

PowerLawFit FitPowerLaw(std::span<const LossCurve> curves) {
  const IeeeArithmetic ieee;
  Expects(!curves.empty(), "FitPowerLaw: one curve at least");
  const std::vector<double>& grid = curves[0].log_tokens;
  if (grid.size() < kPowerLawBudgets) {
    return {{}, "needs 4 budgets, has " + std::to_string(grid.size())};
  }
  // A budget is a whole number of steps, so a factor of 8 may come out a little short.
  if (grid.back() - grid.front() < std::log(kPowerLawSpan) - 0.02) {
    return {{}, "needs budgets a factor of 8 apart"};
  }
  if (!std::all_of(curves.begin(), curves.end(), AllFinite)) {
    return {{}, "a run is missing or diverged"};
  }
  constexpr double kLeast = -5.0, kMost = 1.2;  // ln beta
  double delta = INFINITY;
  double log_beta = 0;
  for (int pass = 0; pass < 2; ++pass) {  // least squares, then Huber scaled by its residuals
    const auto objective = [&](double trial) {
      return HuberSum(FitLines(curves, std::exp(trial), delta), delta);
    };
    log_beta = Minimize(objective, kLeast, kMost, 32);
    if (pass == 0) delta = HuberThreshold(FitLines(curves, std::exp(log_beta), delta));
  }
  if (log_beta < kLeast + 1e-3) return {{}, "the losses fall as straight as ln D: no bend to fit"};
  if (log_beta > kMost - 1e-3) return {{}, "the losses bend more than a power law"};
  const std::vector<Line> lines = FitLines(curves, std::exp(log_beta), delta);
  PowerLaw law;
  law.beta = std::exp(log_beta);
  law.log_origin = grid.front();
  double squares = 0, count = 0;
  for (const Line& line : lines) {
    if (line.scale <= 0) return {{}, "a loss does not fall with the tokens"};
    law.floors.push_back(line.floor);
    law.scales.push_back(line.scale);
    squares += line.residuals.squaredNorm();
    count += static_cast<double>(line.residuals.size());
  }
  law.rms = std::sqrt(squares / count);
  return {law, ""};
}

std::optional<SharedBaseline> FitSharedBaseline(std::span<const LossCurve> baselines,
                                                std::span<const std::vector<LossCurve>> formats) {
  const IeeeArithmetic ieee;
  Expects(!baselines.empty() && baselines.size() == formats.size(),
          "FitSharedBaseline: one baseline per seed");
  if (baselines[0].log_tokens.size() < 2) return std::nullopt;
  const Eigen::VectorXd x = ToVector(baselines[0].log_tokens);
  const auto powers = [&](double gamma) {
    return Eigen::VectorXd((gamma * (x.array() - x[0])).exp().matrix());
  };
  const GapRows rows = Gaps(baselines, formats);
  // For a given gamma the best a_f is a projection; gamma minimizes the squares that remain.
  const auto left_over = [&](double gamma) {
    const Eigen::VectorXd p = powers(gamma).normalized();
    double sum = 0;
    for (const auto& seed : rows.gaps) {
      for (const Eigen::VectorXd& row : seed) {
        if (row.size() > 0) sum += (row - row.dot(p) * p).squaredNorm();
      }
    }
    return sum;
  };
  if (rows.count == 0) return std::nullopt;
  SharedBaseline fit;
  fit.gamma = Minimize(left_over, -2, 2, 41);
  const Eigen::VectorXd p = powers(fit.gamma);
  for (const auto& seed : rows.gaps) {
    fit.gaps.emplace_back();
    for (const Eigen::VectorXd& row : seed) {
      fit.gaps.back().push_back(row.size() == 0 ? NAN : row.dot(p) / p.squaredNorm());
    }
  }
  fit.rms = std::sqrt(left_over(fit.gamma) / static_cast<double>(rows.count));
  return fit;
}

}  // namespace fp4lab::study
