// The linears of a decoder under a recipe: their names, weights, recipes, random bits and amax
// histories. The models on the CPU (model.h) and on the GPU (gpu/engine/model.cuh) follow one plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/nn/linear_recipe.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {

// Called with every tensor right after its computation, and the tensor's name
// ("blocks.2.mlp.down.output").
using TensorInspector = std::function<void(const std::string& name, MatrixView<const float>)>;
// Called with every operand that a linear quantizes, and the linear's name ("blocks.2.mlp.down").
using LinearObserver = std::function<void(const std::string& linear, const ObservedOperand&)>;

// A model whose logits a run's loss is pulled to (train/start/teacher.h).
class LogitSource {
 public:
  virtual ~LogitSource() = default;

  // The loss of whole sequences of tokens, with the model's logits of them and room for row_kl.
  // Valid until the next call.
  virtual TeacherLoss LossOf(std::span<const std::uint16_t> tokens) = 0;
};

// The options of one pass over a micro-batch.
struct Pass {
  bool high_precision = false;  // Recipe::rest everywhere
  // random.tensor is the number of the pass's first random tensor; a pass takes
  // LinearPlan::TensorsPerPass() of them.
  RandomStream random;
  // The random tensors of the step's micro-batches before this one. All micro-batches share the
  // operands of weights, which draw the random bits of the first.
  std::uint32_t tensors_before = 0;
  float loss_scale = 1.0f;  // gradients are those of the loss times this power of two
  bool records = false;     // delayed scaling: the pass's amaxes become part of the histories
  const TensorInspector* inspector = nullptr;
  const LinearObserver* observer = nullptr;
  // Whose loss the backward pass adds; null: none. A GPU's engine computes the logits itself.
  LogitSource* teacher = nullptr;
};

// The number of floats in the amax histories of all operands of all linears, for delayed scaling; 0
// if neither the recipe nor the recipe that it changes to has delayed scaling.
std::size_t AmaxHistoryFloats(const ModelConfig& config, const Recipe& recipe);

// The index of a linear counts the blocks' linears in the order of the forward pass, then the head.
// An operand of a linear has the place linear * kLinearOperands + LinearOperand among random
// tensors and among amax histories.
class LinearPlan {
 public:
  LinearPlan(const ModelConfig& config, const Recipe& recipe);
  LinearPlan(const LinearPlan&) = delete;
  LinearPlan& operator=(const LinearPlan&) = delete;

  // Changes to another recipe with the same Recipe::rest.
  void UseRecipe(const Recipe& recipe);

  std::size_t Count() const { return weights_.size(); }
  std::size_t Head() const { return weights_.size() - 1; }  // PlacedPart: the parts' linears

  // "blocks.0.attention.qkv" ..., "head".
  const std::string& Name(std::size_t linear) const { return names_[linear]; }
  // The slice of the weight (out, in) among the parameters.
  const ParameterSlice& Weight(std::size_t linear) const { return weights_[linear]; }
  const LinearRecipe& RecipeOf(const Pass& pass, std::size_t linear) const {
    return pass.high_precision && !IsRouter(linear) ? recipe_.rest : *recipes_[linear];
  }

  // Whether the linear multiplies in binary32 under every recipe.
  bool IsRouter(std::size_t linear) const {
    return weights_[linear].role == ParameterRole::kRouter;
  }

  const LinearRecipe& Rest() const { return recipe_.rest; }

  // The number of random tensors that one pass draws from.
  std::uint32_t TensorsPerPass() const {
    return static_cast<std::uint32_t>(Count()) * kLinearOperands;
  }

  // Delayed scaling: the rule of each operand, in the order of the operands' places, and the number
  // of floats of one operand's history.
  std::vector<DelayedScaling> Delayed() const;
  std::size_t HistoryStride() const { return history_stride_; }

  // The use of a linear in a pass. `histories`: AmaxHistoryFloats(config, recipe) floats in the
  // memory of the device that computes. *observer passes operands on to the pass's observer, if the
  // pass has one, and must outlive the call.
  LinearCall CallOf(const Pass& pass, std::size_t linear, float* histories,
                    OperandObserver* observer) const;

 private:
  int blocks_;
  Recipe recipe_;  // in use
  std::size_t history_stride_;
  std::vector<ParameterSlice> weights_;
  std::vector<int> block_of_linear_;
  std::vector<std::string> names_;
  std::vector<const LinearRecipe*> recipes_;  // one per linear: recipe_.linear or recipe_.rest
};

}  // namespace fp4lab
