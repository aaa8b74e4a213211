#include "fp4lab/nn/router.h"

#include <algorithm>
#include <limits>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/lanes/row_chunks.h"

namespace fp4lab {
namespace {

double Sigmoid(double z) { return 1.0 / (1.0 + Exp(-z)); }

void SoftmaxRow(std::span<const float> z, std::span<float> scores) {
  const double max = *std::max_element(z.begin(), z.end());
  double sum = 0.0;
  for (const float value : z) sum += Exp(value - max);
  for (std::size_t e = 0; e < z.size(); ++e) {
    scores[e] = static_cast<float>(Exp(z[e] - max) / sum);
  }
}

// The experts of the `chosen.size()` largest of score + bias. A NaN is never larger; where nothing
// is, the lowest number not chosen yet is taken.
void ChooseRow(std::span<const float> scores, std::span<const float> bias,
               std::span<std::uint32_t> chosen) {
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const auto before = chosen.first(k);
    std::size_t best = scores.size();
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t e = 0; e < scores.size(); ++e) {
      if (std::find(before.begin(), before.end(), e) != before.end()) continue;
      const double value = scores[e] + (bias.empty() ? 0.0 : double{bias[e]});
      if (best < scores.size() && !(value > most)) continue;
      best = e;
      most = value == value ? value : -std::numeric_limits<double>::infinity();
    }
    chosen[k] = static_cast<std::uint32_t>(best);
  }
}

double SumOfChosen(std::span<const float> scores, std::span<const std::uint32_t> chosen) {
  double sum = 0.0;
  for (const std::uint32_t e : chosen) sum += scores[e];
  return sum;
}

void WeighRow(const RouterOptions& o, std::span<const float> scores,
              std::span<const std::uint32_t> chosen, std::span<float> weights) {
  const double divisor = o.normalize ? SumOfChosen(scores, chosen) : 1.0;
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    weights[k] = static_cast<float>(double{o.scale} * scores[chosen[k]] / divisor);
  }
}

template <class T>
std::span<T> Row(MatrixView<T> x, std::size_t r) {
  return {x.data + r * x.row_stride, x.cols};
}

}  // namespace

void Route(const RouterOptions& options, MatrixView<const float> logits,
           std::span<const float> bias, Routing* routing) {
  const IeeeArithmetic ieee;
  const RouterOptions& o = options;
  const std::size_t rows = logits.rows, experts = logits.cols;
  Expects(logits.col_stride == 1 && o.top_k >= 1 && o.top_k <= experts &&
              (bias.empty() || bias.size() == experts),
          "Route: logits (R, E), bias (E) or none, 1 <= top_k <= E");
  routing->scores = Matrix<float>(rows, experts);
  routing->weights = Matrix<float>(rows, o.top_k);
  routing->chosen.assign(rows * o.top_k, 0);
  const MatrixView<float> scores = routing->scores.View(), weights = routing->weights.View();
  ParallelRowChunks(rows, experts, [&](std::size_t first, std::size_t count) {
    for (std::size_t r = first; r < first + count; ++r) {
      const std::span<const float> z = Row(logits, r);
      const std::span<float> s = Row(scores, r);
      const std::span<std::uint32_t> chosen(&routing->chosen[r * o.top_k], o.top_k);
      if (o.score == RouterScore::kSoftmax) {
        SoftmaxRow(z, s);
      } else {
        std::transform(z.begin(), z.end(), s.begin(),
                       [](float value) { return static_cast<float>(Sigmoid(value)); });
      }
      const bool nan = std::any_of(z.begin(), z.end(), [](float value) { return value != value; });
      if (nan) std::fill(s.begin(), s.end(), std::numeric_limits<float>::quiet_NaN());
      ChooseRow(s, bias, chosen);
      WeighRow(o, s, chosen, Row(weights, r));
    }
  });
  routing->counts.assign(experts, 0);
  for (const std::uint32_t e : routing->chosen) ++routing->counts[e];
}

void RouteBackward(const RouterOptions& options, const Routing& routing,
                   MatrixView<const float> d_weights, float loss_scale,
                   MatrixView<float> d_logits) {
  const IeeeArithmetic ieee;
  const RouterOptions& o = options;
  const std::size_t rows = routing.scores.rows, experts = routing.scores.cols;
  Expects(HasShape(d_weights, rows, o.top_k) && HasShape(d_logits, rows, experts),
          "RouteBackward: d_weights (R, top_k), d_logits (R, E)");
  const MatrixView<const float> scores = routing.scores.View();
  // The gradient of the balance loss with respect to p_e of each token.
  std::vector<double> balance(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    balance[e] = double{o.balance_loss} * static_cast<double>(experts) *
                 static_cast<double>(routing.counts[e]) / static_cast<double>(o.top_k * rows) *
                 loss_scale;
  }
  ParallelRowChunks(rows, experts, [&](std::size_t first, std::size_t count) {
    std::vector<double> d(experts);
    for (std::size_t r = first; r < first + count; ++r) {
      const std::span<const float> s = Row(scores, r);
      const std::span<const std::uint32_t> chosen(&routing.chosen[r * o.top_k], o.top_k);
      const bool softmax = o.score == RouterScore::kSoftmax;
      // p = s / total: the total of a softmax is 1.
      double total = 1.0, mean = 0.0;
      if (!softmax) {
        total = 0.0;
        for (const float value : s) total += value;
        for (std::size_t e = 0; e < experts; ++e) mean += balance[e] * s[e] / total;
      }
      for (std::size_t e = 0; e < experts; ++e) d[e] = (balance[e] - mean) / total;
      const double sum = o.normalize ? SumOfChosen(s, chosen) : 1.0;
      double shared = 0.0;
      if (o.normalize) {
        for (std::size_t k = 0; k < o.top_k; ++k) shared += d_weights(r, k) * (s[chosen[k]] / sum);
      }
      for (std::size_t k = 0; k < o.top_k; ++k) {
        d[chosen[k]] += double{o.scale} * (d_weights(r, k) - shared) / sum;
      }
      double dot = 0.0;
      if (softmax) {
        for (std::size_t e = 0; e < experts; ++e) dot += d[e] * s[e];
      }
      for (std::size_t e = 0; e < experts; ++e) {
        const double slope = softmax ? d[e] - dot : d[e] * (1.0 - double{s[e]});
        d_logits(r, e) = static_cast<float>(s[e] * slope);
      }
    }
  });
}

}  // namespace fp4lab
