#include "fp4lab/train/optimizer/optimizers.h"

#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"

namespace fp4lab {

// Each row stands in the file of its name.
extern const Optimizer kAdamW, kMuon;

namespace {

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
  for (const ParameterGroup& group : groups) optimizer.update(config, step, group, numbers);
}

}  // namespace fp4lab
