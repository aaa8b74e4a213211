// Times several pieces of work in alternation, so that drift in the machine's speed affects all of
// them alike: only ratios of such times are meaningful.
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
  double budget_seconds = 1.0;   // no round starts after this much time
  std::size_t least_rounds = 5;  // rounds that run whatever the budget
  std::size_t most_rounds = 101;
  std::function<double()> clock = WallSeconds;   // clock of the timings, in seconds
  std::function<double()> budget = WallSeconds;  // clock of the budget, in seconds
  const std::atomic<bool>* stop = nullptr;       // the measurement ends once *stop is true
};

// Thrown by Alternate once *options.stop is true.
struct Stopped {};

// result[i][r]: seconds of one call of works[i] in round r. A round times every work once; each
// round starts with a different work. Before the first round every work is called once to warm up,
// then repeatedly to find the number of calls that fill a slice.
std::vector<std::vector<double>> Alternate(const std::vector<Work>& works,
                                           const AlternateOptions& options);

}  // namespace fp4lab::measure
