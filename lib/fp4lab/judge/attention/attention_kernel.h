// Wrong attention kernels as a table, and the causes of wrong answers.
#pragma once

#include <string_view>
#include <vector>

#include "fp4lab/judge/attention/attention.h"
#include "fp4lab/judge/products/gemm_cause.h"
#include "fp4lab/judge/products/scale_readings.h"

namespace fp4lab {

// A wrong kernel: a reading of the scale bytes of Q, K and V, or a change of the plan.
struct WrongAttention {
  std::string_view name;  // "mask-one-key-more"
  std::string_view what;  // "lets every query see one key more", the subject being the kernel
  const ScaleReading* reading = nullptr;
  bool (*change)(AttentionPlan&) = nullptr;
  // Changes a plan, and returns false if that changes nothing.
  bool Apply(AttentionPlan& plan) const;
};

// The readings of scale bytes, and then the table.
std::vector<WrongAttention> WrongAttentions();

// The wrong kernels that may give o (heads * queries, D), which the right one may not. Those that
// give all elements as `exact` rounded, if there are any, come alone.
std::vector<GemmCause> FindAttentionCauses(const AttentionPlan& plan, MatrixView<const float> o);

}  // namespace fp4lab
