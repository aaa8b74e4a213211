// Makes cells of the table of `fp4lab bench` from times measured in turns.
#include <algorithm>
#include <utility>

#include "fp4lab/base/parallel.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {
namespace {

using measure::AlternateOptions;
using measure::Cell;
using measure::RatioOf;
using measure::Summarize;

struct Times {
  std::vector<double> ours, best;  // seconds; best: of the rival with the smallest median
  std::string name;                // name of that rival
  std::vector<double> limit;       // of the limit; empty: none
};

Times TimesOf(const AlternateOptions& options, const measure::Work& ours,
              const std::vector<Rival>& rivals, const measure::Work& limit) {
  std::vector<measure::Work> works = {ours};
  for (const Rival& rival : rivals) works.push_back(rival.work);
  if (limit) works.push_back(limit);
  std::vector<std::vector<double>> seconds = Alternate(works, options);
  Times times{std::move(seconds[0]), {}, {}, {}};
  if (limit) times.limit = std::move(seconds.back());
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    std::vector<double>& s = seconds[i + 1];
    if (!times.best.empty() && Summarize(s).median >= Summarize(times.best).median) continue;
    times.best = std::move(s);
    times.name = rivals[i].name;
  }
  return times;
}

}  // namespace

AlternateOptions BenchContext::AllThreads() const {
  return {.slice_seconds = quick ? 1e-3 : 4e-3,
          .budget_seconds = quick ? 0.2 : 1.0,
          .least_rounds = quick ? 3u : 7u,
          .most_rounds = 101,
          .clock = measure::WallSeconds,
          .budget = measure::WallSeconds,
          .stop = stop};
}

AlternateOptions BenchContext::OneThread() const {
  AlternateOptions options = AllThreads();
  options.clock = measure::ThreadSeconds;
  return options;
}

Cell CompareRates(const AlternateOptions& options, double amount, const measure::Work& ours,
                  const std::vector<Rival>& rivals, const measure::Work& limit) {
  const Times times = TimesOf(options, ours, rivals, limit);
  Cell cell{.value = measure::RateOf(amount, times.ours), .against = times.name};
  if (rivals.empty()) return cell;
  if (limit) cell.limit = RatioOf(times.best, times.limit);
  cell.reference = measure::RateOf(amount, times.best);
  cell.ratio = RatioOf(times.best, times.ours);
  return cell;
}

Cell CompareTimes(const AlternateOptions& options, double scale, const measure::Work& ours,
                  const std::vector<Rival>& rivals, const measure::Work& limit) {
  Times times = TimesOf(options, ours, rivals, limit);
  Cell cell{.against = times.name};
  if (!rivals.empty()) cell.ratio = RatioOf(times.ours, times.best);
  if (!rivals.empty() && limit) cell.limit = RatioOf(times.limit, times.best);
  for (double& s : times.ours) s *= scale;
  for (double& s : times.best) s *= scale;
  cell.value = Summarize(times.ours);
  if (!rivals.empty()) cell.reference = Summarize(times.best);
  return cell;
}

Cell Missing(std::string why) { return {.missing = std::move(why)}; }

}  // namespace fp4lab::tools
