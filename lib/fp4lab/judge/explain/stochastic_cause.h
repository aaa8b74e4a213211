// Whether a kernel's bytes are those of stochastic rounding with random bits that are not known.
#pragma once

#include <optional>

#include "fp4lab/formats/stochastic_verdict.h"
#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {

struct AddedNoise;  // dialect/noise/added_noise.h

// All scales and the tensor scale are the dialect's, and every code is one of the two neighbours
// of its value, or one that the dialect's noise reaches.
struct StochasticCause {
  const Dialect* dialect = nullptr;   // a stochastic row of the table; nullptr: the asked dialect
  const AddedNoise* noise = nullptr;  // of the row; nullptr: it adds none
  StochasticVerdict verdict;          // on the distribution of the codes
  bool Accepted() const { return verdict.answer == StochasticAnswer::kAccepted; }
};

// Tries the asked dialect with stochastic rounding, and the stochastic and noisy rows with its
// formats and blocks; one whose distribution is accepted comes before one whose codes are
// neighbours only. nullopt if none fits, or if the asked dialect rounds stochastically itself.
std::optional<StochasticCause> FindStochasticCause(const Kernel& asked, ByteMatcher& matcher);

}  // namespace fp4lab
