// One optimizer step from the state of a run, under other recipes than the run's: what the step
// would have done, and which operands cause the difference to the step without quantization.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/quantize/diagnostics/block_statistics.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"

namespace fp4lab {

// The state of a run and the tokens of its next step. `config.recipe` is not used.
struct StepState {
  TrainConfig config;
  std::int64_t step = 0;                   // steps done
  std::vector<float> parameters;           // MakeLayout's order
  std::vector<std::vector<float>> states;  // of the optimizer, in the same order
  // Whole micro-batches of config.batch / config.micro_batches sequences.
  std::vector<std::uint16_t> inputs, targets;
  double learning_rate = 0.0;
  std::shared_ptr<LogitSource> teacher = {};  // of the run, whose loss gradients have; null: none
};

// A gradient against that of the step without quantization (Recipe::rest everywhere).
struct GradientDifference {
  std::string name;             // of the linear
  double cosine = 0.0;          // <q, h> / (|q| |h|)
  double norm_ratio = 0.0;      // |q| / |h|
  double relative_error = 0.0;  // |q - h| / |h|
};

// The first tensor, in the order of computation, that differs from the first recipe's.
struct Parting {
  std::string tensor;           // "blocks.0.attention.qkv.output"
  double relative_error = 0.0;  // |x - x1| / |x1|, x1 the first recipe's
  double largest = 0.0;         // max |x - x1|
};

// A quantity of the step, without quantization and under the recipe, and the shares of the six
// operands (LinearOperand) in the difference. The shares are Shapley values (Shapley 1953) of the
// game whose players are the operands, the same one in all linears: the mean, over all orders in
// which operands may become quantized, of what the operand adds. They sum to the difference.
struct OperandShares {
  std::string quantity;  // "loss", "gradient_error" or "loss_after"
  double without = 0.0, with = 0.0;
  std::array<double, kLinearOperands> shares = {};
};

struct StepOutcome {
  double loss = 0.0;            // of the step's tokens, nats per token; a teacher's loss apart
  double loss_after = 0.0;      // of the same tokens after the step, without quantization
  GradientDifference gradient;  // of all parameters
  std::vector<GradientDifference> linears;
  std::optional<Parting> parting;     // none: every tensor is the first recipe's, bit for bit
  std::vector<OperandShares> shares;  // empty if they were not asked for
};

struct WhatIf {
  double loss = 0.0, loss_after = 0.0;  // of the step without quantization
  std::vector<StepOutcome> outcomes;    // one for each recipe
};

// Why a step from a state cannot be made under the recipe, as a message; empty if it can:
// delayed scaling lacks its history, and a recipe that changes is two.
std::string WhyNotInWhatIf(const Recipe& recipe);

// Recipes must have the same Recipe::rest and pass WhyNotInWhatIf. With `shares` each recipe takes
// up to 64 steps. `advanced` is called after each step that was computed. Computed on the CPU; the
// result does not depend on threads or SIMD target.
WhatIf TryRecipes(const StepState& state, std::span<const Recipe> recipes, bool shares,
                  const std::function<void()>& advanced = {});

// Shapley values: values[S] is the value of the coalition whose bits are set in S; its size is a
// power of two. They sum to values.back() - values.front().
std::vector<double> ShapleyValues(std::span<const double> values);

// The errors of the blocks of an operand ("blocks.0.mlp.up.fprop.input") in the step's first
// micro-batch. Throws Error at `where` for a name that no quantized operand has.
BlockErrors BlockErrorsOf(const StepState& state, const Recipe& recipe, const std::string& operand,
                          const std::string& where);

}  // namespace fp4lab
