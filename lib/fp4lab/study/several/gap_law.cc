#include "fp4lab/study/several/gap_law.h"

#include <Eigen/Dense>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/several/effects.h"

namespace fp4lab::study {
namespace {

using Law = Eigen::Matrix<double, 5, 1>;  // E, ln A, alpha, ln B, beta

LossLaw FromVector(const Law& v) { return {v[0], v[1], v[2], v[3], v[4]}; }

// The sum of squares of ln(law / loss); with the normal equations of a step, if asked for.
double Squares(std::span<const LossPoint> points, const Law& v, Eigen::Matrix<double, 5, 5>* normal,
               Law* gradient) {
  if (normal != nullptr) normal->setZero(), gradient->setZero();
  double sum = 0;
  for (const LossPoint& p : points) {
    const double ln_n = std::log(p.parameters / 1e6), ln_d = std::log(p.bytes / 1e6);
    const double of_n = std::exp(v[1] - v[2] * ln_n), of_d = std::exp(v[3] - v[4] * ln_d);
    const double value = v[0] + of_n + of_d;
    if (!(value > 0)) return INFINITY;
    const double rest = std::log(value / p.loss);
    sum += rest * rest;
    if (normal == nullptr) continue;
    Law row;
    row << 1, of_n, -of_n * ln_n, of_d, -of_d * ln_d;
    row /= value;
    *normal += row * row.transpose();
    *gradient += rest * row;
  }
  return std::isfinite(sum) ? sum : INFINITY;
}

}  // namespace

double GapLaw::At(double parameters, double bytes_each) const {
  const IeeeArithmetic ieee;
  return std::exp(ln_c - a * std::log(parameters) + b * std::log(bytes_each));
}

std::optional<GapLaw> FitGapLaw(std::span<const GapPoint> points) {
  const IeeeArithmetic ieee;
  bool sizes = false;
  for (const GapPoint& p : points) {
    if (!(p.gap > 0)) return std::nullopt;
    sizes = sizes || p.parameters != points[0].parameters;
  }
  if (points.size() < 3 || !sizes) {
    throw Error("law", "needs three budgets or more, of two sizes at least");
  }
  const auto rows = static_cast<Eigen::Index>(points.size());
  Eigen::MatrixXd places(rows, 3);
  Eigen::VectorXd logs(rows);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const GapPoint& p = points[static_cast<std::size_t>(i)];
    places.row(i) << 1, std::log(p.parameters), std::log(p.bytes_each);
    logs[i] = std::log(p.gap);
  }
  const Eigen::VectorXd law = places.colPivHouseholderQr().solve(logs);
  return GapLaw{law[0], -law[1], law[2]};
}

double LossLaw::At(double parameters, double bytes) const {
  const IeeeArithmetic ieee;
  return e + std::exp(ln_a - alpha * std::log(parameters / 1e6)) +
         std::exp(ln_b - beta * std::log(bytes / 1e6));
}

LossLaw FitLossLaw(std::span<const LossPoint> points) {
  const IeeeArithmetic ieee;
  if (points.size() < 5) throw Error("law", "of the loss needs five budgets or more");
  Law v;
  v << 0.8, -1, 0.5, 0.5, 0.5;
  Eigen::Matrix<double, 5, 5> normal;
  Law gradient;
  double damping = 1e-3, least = Squares(points, v, &normal, &gradient);
  int small = 0;  // steps in a row that gained next to nothing
  for (int step = 0; step < 5000 && small < 5 && damping < 1e12; ++step) {
    Eigen::Matrix<double, 5, 5> damped = normal;
    damped.diagonal() += damping * normal.diagonal();
    const Law next = v - damped.ldlt().solve(gradient);
    const double squares = next.allFinite() ? Squares(points, next, nullptr, nullptr) : INFINITY;
    if (!(squares < least)) {
      damping *= 4;
      continue;
    }
    small = least - squares <= 1e-13 * least ? small + 1 : 0;
    v = next;
    damping = std::max(damping / 3, 1e-12);
    least = Squares(points, v, &normal, &gradient);
  }
  return FromVector(v);
}

std::optional<double> LogRatioOfLaws(const LossLaw& loss, const std::array<GapLaw, 2>& gaps,
                                     double parameters, double bytes_each,
                                     const std::array<double, 2>& effects) {
  const IeeeArithmetic ieee;
  const auto loss_of = [&](std::size_t format, double each) {
    return loss.At(parameters, each * parameters) +
           gaps[format].At(parameters, each) * effects[format];
  };
  const double level = loss_of(0, bytes_each), most = std::log(20.0);
  const auto above = [&](double u) { return loss_of(1, bytes_each * std::exp(u)) - level; };
  if (!(above(-most) > 0 && above(most) < 0)) return std::nullopt;
  return FallingZero(above, -most, most);
}

}  // namespace fp4lab::study
