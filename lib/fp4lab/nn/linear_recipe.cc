#include "fp4lab/nn/linear_recipe.h"

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {

std::string_view OperandName(LinearOperand operand) {
  constexpr std::array<std::string_view, kLinearOperands> kNames = {
      "fprop.input", "fprop.weight", "dgrad.grad", "dgrad.weight", "wgrad.grad", "wgrad.input"};
  return kNames[operand];
}

Dialect DialectOfWindows(const Dialect& format) {
  const IeeeArithmetic ieee;
  Dialect d = format;
  d.row_scaled = true;
  return Canonical(d);
}

HadamardTransform TransformOf(const OperandRecipe& recipe, const LinearCall& call) {
  const IeeeArithmetic ieee;
  constexpr std::uint32_t kSigns = 0x20000000;  // a RandomStream::tensor that no rounding uses
  const RandomStream seeded{.seed = call.random.seed, .step = 0, .tensor = kSigns};
  switch (recipe.signs) {
    case HadamardSignSource::kTransformerEngine:
      return {recipe.hadamard, TeHadamardSigns()};
    case HadamardSignSource::kNone:
      return {recipe.hadamard, NoHadamardSigns()};
    case HadamardSignSource::kSeeded:
      return {recipe.hadamard, RandomHadamardSigns(seeded)};
    case HadamardSignSource::kFresh: {
      RandomStream fresh = seeded;
      fresh.step = call.random.step;
      ++fresh.tensor;
      return {recipe.hadamard, RandomHadamardSigns(fresh)};
    }
  }
  return {};
}

}  // namespace fp4lab
