// Times of several pieces of work that take turns, so that a machine whose speed drifts favours
// none: only ratios of such times mean anything.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "fp4lab/measure/clock.h"

namespace fp4lab::measure {

using Work = std::function<void()>;

struct AlternateOptions {
  double slice_seconds = 2e-3;   // calls are grouped so that one timing takes at least this long
  double budget_seconds = 1.0;   // rounds start until this much time has passed
  std::size_t least_rounds = 5;  // whatever the budget
  std::size_t most_rounds = 101;
  std::function<double()> clock = WallSeconds;   // what a timing is read from
  std::function<double()> budget = WallSeconds;  // what the budget is read from
  const std::atomic<bool>* stop = nullptr;       // ends the measurement once this is true
};

// Thrown out of Alternate when options.stop became true.
struct Stopped {};

// result[i][r]: seconds of one call of works[i] in round r. A round times each once, starting with
// another one each time. Every work is called once before, untimed, and again to count how many
// calls fill a slice.
std::vector<std::vector<double>> Alternate(const std::vector<Work>& works,
                                           const AlternateOptions& options);

}  // namespace fp4lab::measure
