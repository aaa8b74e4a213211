// Verifies a stochastic kernel without its random bits: scales exactly, codes by distribution.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fp4lab/formats/stochastic_verdict.h"
#include "fp4lab/judge/verify/verify.h"

namespace fp4lab {

struct StatisticalVerdict {
  Verdict exact;  // scales and the tensor scale of all runs together; codes are not compared
  StochasticVerdict rounding;
  // Whether scales and the tensor scale are the dialect's in every run, and the codes are
  // distributed as its rounding says.
  bool Accepted() const;
};

// Verifies several runs of one kernel on one input, each with its own random bits, for a dialect
// with stochastic rounding or added noise (dialect/noise/added_noise.h; Expects). A correct kernel
// is refused with probability `error_rate` at most.
StatisticalVerdict VerifyStatistically(const Dialect& dialect, MatrixView<const float> x,
                                       std::span<const StoredMatrix> runs, std::string_view where,
                                       const VerifyOptions& options = {}, double error_rate = 1e-6);

// The row of the table with these formats and blocks that rounds stochastically: the one that adds
// noise to the elements of `dialect`, else the one with the most similar name; nullptr if there is
// none. Its verdict is that of a kernel which differs from `dialect` by its rounding.
const Dialect* StochasticSibling(const Dialect& dialect);
// Throws Error(where, ...) for a dialect without stochastic rounding or noise; names its sibling.
void RequireStochastic(const Dialect& dialect, std::string_view where);

// The row of the table, other than `dialect`, whose scales an answer has and whose random rounding
// its codes are distributed by; nullptr if there is none, for a dialect that rounds stochastically
// itself, and for more than 2^20 elements, which `explain` judges.
const Dialect* RandomRowOf(const Dialect& dialect, MatrixView<const float> x,
                           const StoredMatrix& answer, std::string_view where,
                           const VerifyOptions& options = {});

std::string StatisticalText(const Dialect& dialect, const StatisticalVerdict& verdict);
Json StatisticalJson(const Dialect& dialect, const StatisticalVerdict& verdict);

}  // namespace fp4lab
