#include "fp4lab/measure/alternate.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"

namespace fp4lab::measure {
namespace {

double SecondsOf(const Work& work, std::size_t calls, const AlternateOptions& options) {
  if (options.stop != nullptr && *options.stop) throw Stopped{};
  const double start = options.clock();
  for (std::size_t i = 0; i < calls; ++i) work();
  return (options.clock() - start) / static_cast<double>(calls);
}

// The number of calls that fill a slice: doubled until they do, then reduced to the number needed.
std::size_t CallsFor(const Work& work, const AlternateOptions& options) {
  constexpr std::size_t kMost = std::size_t{1} << 24;
  SecondsOf(work, 1, options);
  for (std::size_t calls = 1; calls < kMost; calls *= 2) {
    const double each = SecondsOf(work, calls, options);
    if (each * static_cast<double>(calls) < options.slice_seconds) continue;
    return std::max<std::size_t>(1,
                                 static_cast<std::size_t>(std::ceil(options.slice_seconds / each)));
  }
  return kMost;
}

}  // namespace

std::vector<std::vector<double>> Alternate(const std::vector<Work>& works,
                                           const AlternateOptions& options) {
  Expects(!works.empty() && options.least_rounds > 0, "Alternate: some work, some rounds");
  std::vector<std::size_t> calls;
  for (const Work& work : works) calls.push_back(CallsFor(work, options));
  std::vector<std::vector<double>> seconds(works.size());
  const double start = options.budget();
  for (std::size_t round = 0; round < options.most_rounds; ++round) {
    if (round >= options.least_rounds && options.budget() - start >= options.budget_seconds) break;
    for (std::size_t i = 0; i < works.size(); ++i) {
      const std::size_t which = (round + i) % works.size();
      seconds[which].push_back(SecondsOf(works[which], calls[which], options));
    }
  }
  return seconds;
}

}  // namespace fp4lab::measure
