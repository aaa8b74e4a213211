#include "fp4lab/judge/kernels/kernel_plan.h"

namespace fp4lab {

KernelPlan PlanOf(const Kernel& kernel, std::span<const Deviation* const> deviations,
                  std::size_t* applied, const DeviationValue* value) {
  KernelPlan plan;
  plan.kernel = kernel;
  // A deviation of a formula does not change the type of the scales.
  plan.kernel.layout.scale_type = ScaleTypeOf(kernel.dialect, kernel.layout);
  plan.input.hadamard = kernel.hadamard;
  plan.input.sign_mask = kernel.sign_mask;
  plan.output.written = plan.kernel.layout;
  std::size_t count = 0;
  for (const Deviation* d : deviations) {
    const bool changed = d->kind == ValueKind::kNone
                             ? d->apply(plan)
                             : d->apply_value(plan, value != nullptr ? *value : d->value);
    count += changed ? 1 : 0;
  }
  if (applied != nullptr) *applied = count;
  return plan;
}

bool Applies(const Deviation& deviation, const Kernel& kernel) {
  const Deviation* const one[] = {&deviation};
  std::size_t applied = 0;
  PlanOf(kernel, one, &applied);
  return applied == 1;
}

}  // namespace fp4lab
