#include "fp4lab/train/model/linear_plan.h"

namespace fp4lab {
namespace {

// No operand quantized or rounded.
const LinearRecipe kBinary32 = {false, {}, {}, {}};

}  // namespace

std::size_t AmaxHistoryFloats(const ModelConfig& config, const Recipe& recipe) {
  const LinearPlan plan(config, recipe);
  return plan.TensorsPerPass() * plan.HistoryStride();
}

LinearPlan::LinearPlan(const ModelConfig& config, const Recipe& recipe)
    : blocks_(config.layers), history_stride_(AmaxHistoryFloats(recipe)) {
  const ParameterLayout layout = MakeLayout(config);
  weights_ = layout.block_linears;
  block_of_linear_ = layout.block_of_linear;
  for (const ParameterSlice& slice : weights_) {
    names_.push_back(slice.name.substr(0, slice.name.rfind('.')));
  }
  weights_.push_back(layout.head);
  names_.emplace_back("head");  // a tied head's weight has the embedding's name
  UseRecipe(recipe);
}

void LinearPlan::UseRecipe(const Recipe& recipe) {
  recipe_ = recipe;
  recipes_.clear();
  for (std::size_t l = 0; l < Head(); ++l) {
    recipes_.push_back(IsRouter(l)
                           ? &kBinary32
                           : &fp4lab::RecipeOf(recipe_, names_[l], block_of_linear_[l], blocks_));
  }
  recipes_.push_back(&recipe_.rest);
}

std::vector<DelayedScaling> LinearPlan::Delayed() const {
  std::vector<DelayedScaling> delayed;
  for (const LinearRecipe* linear : recipes_) {
    for (const OperandRecipe* operand : OperandsOf(*linear)) delayed.push_back(operand->delayed);
  }
  return delayed;
}

LinearCall LinearPlan::CallOf(const Pass& pass, std::size_t linear, float* histories,
                              OperandObserver* observer) const {
  LinearCall call{.random = pass.random, .tensors_before = pass.tensors_before};
  call.random.tensor += static_cast<std::uint32_t>(linear) * kLinearOperands;
  if (history_stride_ > 0) {
    call.histories = {histories + linear * kLinearOperands * history_stride_, history_stride_,
                      pass.records};
  }
  if (pass.observer != nullptr) {
    *observer = [this, &pass, linear](const ObservedOperand& seen) {
      (*pass.observer)(names_[linear], seen);
    };
    call.observer = observer;
  }
  return call;
}

}  // namespace fp4lab
