// AdamW (nn/optimizer/optimizer.h). Its states are the first and the second moment.
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/train/optimizer/optimizer.h"

namespace fp4lab {
namespace {

void Update(const OptimizerConfig& config, const UpdateStep& step, const ParameterGroup& group,
            const OptimizerNumbers& numbers) {
  const AdamW adam{.learning_rate = LearningRateOf(config, step.learning_rate, group),
                   .beta1 = config.beta1,
                   .beta2 = config.beta2,
                   .epsilon = config.epsilon,
                   .weight_decay = WeightDecayOf(config, group),
                   .gradient_scale = step.gradient_scale,
                   .step = step.step};
  const auto part = [&](auto all) { return all.subspan(group.first, group.size); };
  AdamWStep(adam, part(numbers.gradients), part(numbers.parameters), part(numbers.states[0]),
            part(numbers.states[1]));
}

}  // namespace

extern const Optimizer kAdamW;
const Optimizer kAdamW{"adamw", "AdamW", 2, true, false, Update};

}  // namespace fp4lab
