#include "fp4lab/train/optimizer/optimizers.h"

#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"

namespace fp4lab {

// Each row stands in the file of its name.
extern const Optimizer kAdamW, kMuon;

namespace {

// Moves biases of routers against the sign of their gradient (ParameterKind::kBalance).
void Balance(const ParameterGroup& group, const OptimizerNumbers& numbers) {
  for (std::size_t i = group.first; i < group.first + group.size; ++i) {
    const float more = numbers.gradients[i];
    if (more > 0.0f) numbers.parameters[i] -= group.balance_rate;
    if (more < 0.0f) numbers.parameters[i] += group.balance_rate;
  }
}

constexpr const Optimizer* kOptimizers[] = {&kAdamW, &kMuon};

}  // namespace

std::span<const Optimizer* const> Optimizers() { return kOptimizers; }

const Optimizer& OptimizerNamed(std::string_view name, const std::string& where) {
  std::vector<std::string> names;
  for (const Optimizer* optimizer : kOptimizers) {
    if (optimizer->name == name) return *optimizer;
    names.emplace_back(optimizer->name);
  }
  throw Error(where, "unknown optimizer \"" + std::string(name) + "\"; " + DidYouMean(name, names));
}

const Optimizer& OptimizerOf(const OptimizerConfig& config) {
  return OptimizerNamed(config.name, "optimizer");
}

void UpdateParameters(const OptimizerConfig& config, const UpdateStep& step,
                      std::span<const ParameterGroup> groups, const OptimizerNumbers& numbers) {
  const IeeeArithmetic ieee;
  const Optimizer& optimizer = OptimizerOf(config);
  Expects(numbers.states.size() == optimizer.states, "UpdateParameters: the optimizer's states");
  for (const ParameterGroup& group : groups) {
    if (group.kind == ParameterKind::kBalance) {
      Balance(group, numbers);
    } else {
      optimizer.update(config, step, group, numbers);
    }
  }
}

}  // namespace fp4lab
