#include "fp4lab/train/observe/what_if.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/observe/observe.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/processes/processes.h"

namespace fp4lab {
namespace {

// A tensor of a pass, as an inspector saw it.
struct SeenTensor {
  std::string name;
  std::vector<float> values;
};

struct Gradients {
  double loss = 0.0;
  FloatBuffer values;
  std::size_t trained = 0;  // ParameterLayout::trained: the others are no gradients
};

class StepMaker {
 public:
  explicit StepMaker(const StepState& state)
      : state_(state),
        layout_(MakeLayout(state.config.model)),
        micro_batch_(static_cast<std::size_t>(state.config.batch / state.config.micro_batches)),
        tokens_(micro_batch_ * static_cast<std::size_t>(state.config.model.sequence)),
        row_loss_(tokens_) {
    Expects(!state.inputs.empty() && state.inputs.size() % tokens_ == 0 &&
                state.targets.size() == state.inputs.size() &&
                state.parameters.size() == layout_.total,
            "StepState: parameters and whole micro-batches");
  }

  // With an observer or an inspector, only the first micro-batch is computed.
  Gradients Compute(const Recipe& recipe, Pass pass) {
    Model model(state_.config.model, recipe, state_.parameters, micro_batch_);
    Gradients result{0.0, FloatBuffer(layout_.total), layout_.trained};
    pass.random = {state_.config.seed, static_cast<std::uint32_t>(state_.step), 0};
    pass.teacher = state_.teacher.get();
    const bool looks = pass.observer != nullptr || pass.inspector != nullptr;
    const std::size_t count = looks ? 1 : state_.inputs.size() / tokens_;
    const LossScalingConfig& scaling = state_.config.optimizer.loss_scaling;
    const float loss_scale = scaling.kind == LossScalingKind::kNone ? 1.0f : scaling.scale;
    const float scale = loss_scale / static_cast<float>(count * tokens_);
    FloatBuffer own(count > 1 ? layout_.total : 0);  // of a micro-batch, as in the run's step
    for (std::size_t i = 0; i < count; ++i, pass.random.tensor += model.TensorsPerPass()) {
      const auto in = std::span(state_.inputs).subspan(i * tokens_, tokens_);
      model.Forward(pass, in);
      result.loss +=
          model.Backward(pass, in, std::span(state_.targets).subspan(i * tokens_, tokens_), scale,
                         row_loss_, own.empty() ? result.values : own);
      if (own.empty()) continue;
      AddTo(own, result.values);
      std::fill(own.begin(), own.end(), 0.0f);
    }
    result.loss /= static_cast<double>(count);
    for (float& gradient : result.values) gradient /= loss_scale;
    return result;
  }

  // The loss without quantization after the optimizer step with the gradients.
  double LossAfter(const Recipe& recipe, std::span<const float> gradients) {
    std::vector<float> parameters = state_.parameters;
    std::vector<std::vector<float>> memory = state_.states;
    const std::vector<std::span<float>> states(memory.begin(), memory.end());
    const OptimizerConfig& o = state_.config.optimizer;
    UpdateParameters(o,
                     {.learning_rate = static_cast<float>(state_.learning_rate),
                      .gradient_scale = ClipFactor(
                          std::sqrt(SumOfSquares(gradients.first(layout_.trained))), o.clip),
                      .step = state_.step + 1},
                     layout_.groups, {gradients, parameters, states});
    Model model(state_.config.model, recipe, parameters, micro_batch_);
    Pass pass;
    pass.high_precision = true;
    double sum = 0.0;
    for (std::size_t first = 0; first < state_.inputs.size(); first += tokens_) {
      model.Forward(pass, std::span(state_.inputs).subspan(first, tokens_));
      sum += model.Loss(std::span(state_.targets).subspan(first, tokens_), row_loss_);
    }
    return sum / static_cast<double>(state_.inputs.size() / tokens_);
  }

  // The tensors of the first micro-batch, in the order of computation.
  std::vector<SeenTensor> Tensors(const Recipe& recipe) {
    std::vector<SeenTensor> seen;
    const TensorInspector inspector = [&](const std::string& name, MatrixView<const float> x) {
      SeenTensor tensor{name, {}};
      tensor.values.reserve(x.size());
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) tensor.values.push_back(x(r, c));
      }
      seen.push_back(std::move(tensor));
    };
    Pass pass;
    pass.inspector = &inspector;
    Compute(recipe, pass);
    return seen;
  }

 private:
  const StepState& state_;
  ParameterLayout layout_;
  std::size_t micro_batch_, tokens_;
  std::vector<double> row_loss_;
};

GradientDifference DifferenceOf(std::string name, const VectorComparison& compared) {
  return {std::move(name), compared.Cosine(), compared.NormRatio(), compared.RelativeError()};
}

VectorComparison Compared(const Gradients& q, const Gradients& h) {
  VectorComparison compared;
  compared.Add(std::span(q.values).first(q.trained), std::span(h.values).first(h.trained));
  return compared;
}

std::optional<Parting> PartingOf(const std::vector<SeenTensor>& first,
                                 const std::vector<SeenTensor>& other) {
  for (std::size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
    const std::vector<float>&a = other[i].values, &b = first[i].values;
    const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end(),
                                 [&](float x, float y) { return bits(x) == bits(y); });
    if (same) continue;
    VectorComparison compared;
    compared.Add(a, b);
    Parting parting{first[i].name, compared.RelativeError(), 0.0};
    for (std::size_t k = 0; k < a.size(); ++k) {
      parting.largest = std::max(parting.largest, std::fabs(double{a[k]} - b[k]));
    }
    return parting;
  }
  return std::nullopt;
}

unsigned QuantizedOperands(const Recipe& recipe) {
  unsigned quantized = 0;
  for (const LinearRecipe* linear : LinearRecipesOf(recipe)) {
    unsigned bit = 1;
    for (const OperandRecipe* operand : OperandsOf(*linear)) {
      if (operand->format) quantized |= bit;
      bit <<= 1;
    }
  }
  return quantized;
}

std::vector<OperandShares> SharesOf(StepMaker* maker, const Recipe& recipe, const Gradients& plain,
                                    const std::function<void()>& advanced) {
  constexpr std::size_t kSubsets = std::size_t{1} << kLinearOperands;
  constexpr const char* kQuantities[] = {"loss", "gradient_error", "loss_after"};
  std::array<std::vector<double>, 3> values;
  for (auto& list : values) list.resize(kSubsets);
  const unsigned quantized = QuantizedOperands(recipe);
  for (unsigned subset = 0; subset < kSubsets; ++subset) {
    const unsigned effective = subset & quantized;  // others have no effect
    if (effective != subset) {
      for (auto& list : values) list[subset] = list[effective];
      continue;
    }
    const Recipe partly = WithQuantized(recipe, subset);
    const Gradients gradients = maker->Compute(partly, {});
    values[0][subset] = gradients.loss;
    values[1][subset] = Compared(gradients, plain).RelativeError();
    values[2][subset] = maker->LossAfter(partly, gradients.values);
    if (advanced) advanced();
  }
  std::vector<OperandShares> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    OperandShares shares{kQuantities[i], values[i].front(), values[i].back(), {}};
    const std::vector<double> shapley = ShapleyValues(values[i]);
    std::copy(shapley.begin(), shapley.end(), shares.shares.begin());
    result.push_back(std::move(shares));
  }
  return result;
}

}  // namespace

std::string WhyNotInWhatIf(const Recipe& recipe) {
  const IeeeArithmetic ieee;
  if (!recipe.then.empty()) {
    return "changes during the run (\"then\"); name the recipe of the step";
  }
  if (AmaxHistoryFloats(recipe) > 0) {
    return "has delayed scaling, whose amaxes are those of steps that were not made under it";
  }
  return "";
}

std::vector<double> ShapleyValues(std::span<const double> values) {
  const IeeeArithmetic ieee;
  Expects(std::has_single_bit(values.size()), "ShapleyValues: a value for each subset");
  const int players = std::countr_zero(values.size());
  // The share of the orders in which exactly the `size` others of a coalition come before a player:
  // size! (players - 1 - size)! / players!
  const auto factorial = [](int n) {
    double product = 1.0;
    for (int i = 2; i <= n; ++i) product *= i;
    return product;
  };
  std::vector<double> weights;
  for (int size = 0; size < players; ++size) {
    weights.push_back(factorial(size) * factorial(players - 1 - size) / factorial(players));
  }
  std::vector<double> shares(static_cast<std::size_t>(players));
  for (std::size_t subset = 0; subset < values.size(); ++subset) {
    for (std::size_t player = 0; player < shares.size(); ++player) {
      const std::size_t bit = std::size_t{1} << player;
      if ((subset & bit) != 0) continue;
      const auto size = static_cast<std::size_t>(std::popcount(subset));
      shares[player] += weights[size] * (values[subset | bit] - values[subset]);
    }
  }
  return shares;
}

WhatIf TryRecipes(const StepState& state, std::span<const Recipe> recipes, bool shares,
                  const std::function<void()>& advanced) {
  const IeeeArithmetic ieee;
  Expects(!recipes.empty(), "TryRecipes: a recipe");
  StepMaker maker(state);
  Pass high;
  high.high_precision = true;
  const Gradients plain = maker.Compute(recipes[0], high);
  WhatIf result{plain.loss, maker.LossAfter(recipes[0], plain.values), {}};
  const std::vector<SeenTensor> first = maker.Tensors(recipes[0]);
  for (const Recipe& recipe : recipes) {
    Expects(recipe.rest == recipes[0].rest, "TryRecipes: recipes with one Recipe::rest");
    StepOutcome outcome;
    const Gradients gradients = maker.Compute(recipe, {});
    outcome.loss = gradients.loss;
    outcome.loss_after = maker.LossAfter(recipe, gradients.values);
    outcome.gradient = DifferenceOf("", Compared(gradients, plain));
    const LinearPlan plan(state.config.model, recipe);
    for (std::size_t linear = 0; linear < plan.Count(); ++linear) {
      const ParameterSlice& slice = plan.Weight(linear);
      const auto part = [&](const Gradients& g) {
        return std::span(g.values).subspan(slice.offset, slice.size());
      };
      VectorComparison compared;
      compared.Add(part(gradients), part(plain));
      outcome.linears.push_back(DifferenceOf(plan.Name(linear), compared));
    }
    if (&recipe != recipes.data()) outcome.parting = PartingOf(first, maker.Tensors(recipe));
    if (shares) outcome.shares = SharesOf(&maker, recipe, plain, advanced);
    if (advanced) advanced();
    result.outcomes.push_back(std::move(outcome));
  }
  return result;
}

BlockErrors BlockErrorsOf(const StepState& state, const Recipe& recipe, const std::string& operand,
                          const std::string& where) {
  const IeeeArithmetic ieee;
  std::optional<BlockErrors> errors;
  std::vector<std::string> names;
  const LinearObserver observer = [&](const std::string& linear, const ObservedOperand& seen) {
    names.push_back(linear + "." + std::string(OperandName(seen.operand)));
    if (names.back() != operand) return;
    errors = MeasureBlockErrors(seen.dialect, seen.before, seen.quantized);
  };
  Pass pass;
  pass.observer = &observer;
  StepMaker(state).Compute(recipe, pass);
  if (errors) return *errors;
  if (names.empty()) throw Error(where, "the recipe quantizes no operand");
  throw Error(where,
              "no quantized operand is named \"" + operand + "\"; " + DidYouMean(operand, names));
}

}  // namespace fp4lab
