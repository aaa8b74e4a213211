#include "fp4lab/train/observe/observe.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/observe/diagnose.h"

namespace fp4lab {
namespace {

constexpr double kMostDecibel = 3000.0;  // an exact copy: JSON has no infinity

void Set(ObservedRow* row, const char* key, double value) {
  if (std::isfinite(value)) row->numbers[key] = Shortened(value);
}

ObservedRow RowOf(const std::string& linear, const ObservedOperand& operand) {
  const TensorStatistics statistics = MeasureOperand(linear, operand);
  ObservedRow row{statistics.name, statistics.format, {}, std::nullopt};
  std::size_t i = 0;
  for (const Diagnostic& diagnostic : Diagnostics()) {
    Set(&row, std::string(diagnostic.key).c_str(), statistics.values.numbers[i++]);
  }
  if (operand.quantized.scales.size() + operand.quantized.scale_values.size() > 1) {
    row.scales = MeasureScales(operand.dialect, operand.quantized);
    Set(&row, "scale_spread", row.scales->Spread());
    Set(&row, "zero_scale_percent", row.scales->ZeroPercent());
  }
  return row;
}

ObservedRow RowOf(const std::string& linear, const ObservedProduct& product) {
  VectorComparison compared;
  for (std::size_t r = 0; r < product.plain.rows; ++r) {
    const std::size_t cols = product.plain.cols;
    compared.Add({&product.quantized(r, 0), cols}, {&product.plain(r, 0), cols});
  }
  ObservedRow row{linear + "." + std::string(GemmName(product.gemm)), "", {}, std::nullopt};
  Set(&row, "cosine", compared.Cosine());
  Set(&row, "projection_percent", 100.0 * (compared.Projection() - 1.0));
  Set(&row, "product_sqnr_db", std::min(Decibel(compared.hh, compared.noise), kMostDecibel));
  return row;
}

struct PassResult {
  double loss = 0.0;
  FloatBuffer gradients;
};

}  // namespace

void VectorComparison::Add(std::span<const float> q, std::span<const float> h) {
  const IeeeArithmetic ieee;
  for (std::size_t i = 0; i < q.size(); ++i) {
    const double a = q[i], b = h[i];
    hh += b * b;
    qq += a * a;
    qh += a * b;
    noise += (a - b) * (a - b);
  }
}

void VectorComparison::Add(const VectorComparison& other) {
  const IeeeArithmetic ieee;
  hh += other.hh;
  qq += other.qq;
  qh += other.qh;
  noise += other.noise;
}

double VectorComparison::Cosine() const {
  const IeeeArithmetic ieee;
  if (hh == 0.0 && qq == 0.0) return 1.0;
  return hh == 0.0 || qq == 0.0 ? 0.0 : qh / (std::sqrt(hh) * std::sqrt(qq));
}
double VectorComparison::NormRatio() const {
  const IeeeArithmetic ieee;
  return std::sqrt(qq) / std::sqrt(hh);
}
double VectorComparison::Projection() const {
  const IeeeArithmetic ieee;
  return qh / hh;
}
double VectorComparison::NoiseRatio() const {
  const IeeeArithmetic ieee;
  return std::sqrt(hh) / std::sqrt(noise);
}
double VectorComparison::RelativeError() const {
  const IeeeArithmetic ieee;
  return std::sqrt(noise) / std::sqrt(hh);
}

Observation Observe(const TrainConfig& config, const Recipe& recipe, const TrainingNumbers& numbers,
                    std::int64_t step, std::span<const std::uint16_t> inputs,
                    std::span<const std::uint16_t> targets, WeightCodes* codes,
                    LogitSource* teacher) {
  const IeeeArithmetic ieee;
  const auto sequence = static_cast<std::size_t>(config.model.sequence);
  Expects(!inputs.empty() && inputs.size() % sequence == 0 && targets.size() == inputs.size(),
          "Observe: whole sequences");
  std::vector<float> histories(numbers.amax_histories.begin(), numbers.amax_histories.end());
  Model model(config.model, config.recipe, numbers.parameters, inputs.size() / sequence, histories);
  model.UseRecipe(recipe);
  std::vector<double> row_loss(inputs.size());
  const auto run = [&](Pass pass) {
    pass.random = {config.seed, static_cast<std::uint32_t>(step), 0};
    pass.teacher = teacher;
    const float scale = numbers.loss_scale;
    PassResult result{0.0, FloatBuffer(numbers.parameters.size())};
    model.Forward(pass, inputs);
    result.loss = model.Backward(pass, inputs, targets, scale / static_cast<float>(inputs.size()),
                                 row_loss, result.gradients);
    for (float& gradient : result.gradients) gradient /= scale;
    return result;
  };

  Observation seen{step, 0, static_cast<std::int64_t>(inputs.size()), {}};
  std::vector<ObservedRow> operands, products, weights;
  const LinearObserver operand_observer = [&](const std::string& linear,
                                              const ObservedOperand& operand) {
    operands.push_back(RowOf(linear, operand));
    if (operand.operand != kFpropWeight) return;
    const CodeChanges changes = codes->Observe(linear, operand);
    weights.push_back({linear + ".weight", "", {}, std::nullopt});
    Set(&weights.back(), "flips_percent", changes.flips_percent);
    Set(&weights.back(), "returns_percent", changes.returns_percent);
  };
  const ProductObserver product_observer = [&](const std::string& linear,
                                               const ObservedProduct& product) {
    products.push_back(RowOf(linear, product));
  };
  Pass pass;
  pass.observer = &operand_observer;
  model.ObserveProducts(&product_observer);
  const PassResult quantized = run(pass);
  model.ObserveProducts(nullptr);
  Pass high;
  high.high_precision = true;
  const PassResult plain = run(high);

  VectorComparison all;
  const LinearPlan plan(config.model, recipe);
  for (std::size_t linear = 0; linear < plan.Head(); ++linear) {
    if (plan.IsRouter(linear) || plan.RecipeOf({}, linear) == plan.Rest()) continue;
    const ParameterSlice& slice = plan.Weight(linear);
    const auto part = [&](const PassResult& p) {
      return std::span(p.gradients).subspan(slice.offset, slice.size());
    };
    VectorComparison one;
    one.Add(part(quantized), part(plain));
    all.Add(one);
    const std::string name = plan.Name(linear) + ".weight";
    auto row = std::find_if(weights.begin(), weights.end(),
                            [&](const ObservedRow& w) { return w.name == name; });
    if (row == weights.end()) {
      weights.push_back({name, "", {}, std::nullopt});
      row = weights.end() - 1;
    }
    Set(&*row, "weight_noise_ratio", one.NoiseRatio());
  }
  ObservedRow whole{"step", "", {}, std::nullopt};
  Set(&whole, "loss_increase", quantized.loss - plain.loss);
  if (all.hh > 0.0) {
    Set(&whole, "gradient_norm", std::sqrt(all.hh));
    Set(&whole, "noise_norm", std::sqrt(all.noise));
    Set(&whole, "noise_ratio", all.NoiseRatio());
    Set(&whole, "gradient_cosine", all.Cosine());
  }
  for (auto* rows : {&operands, &products, &weights}) {
    std::move(rows->begin(), rows->end(), std::back_inserter(seen.rows));
  }
  seen.rows.push_back(std::move(whole));
  return seen;
}

}  // namespace fp4lab
