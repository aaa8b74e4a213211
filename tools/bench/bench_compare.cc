// Makes cells of the table of `fp4lab bench` from times measured in turns.
#include <algorithm>
#include <utility>

#include "fp4lab/quantize/quantize.h"
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
              const std::vector<Rival>& rivals, const Limit& limit) {
  std::vector<measure::Work> works = {ours};
  for (const Rival& rival : rivals) works.push_back(rival.work);
  if (limit.work) works.push_back(limit.work);
  std::vector<std::vector<double>> seconds = Alternate(works, options);
  Times times{std::move(seconds[0]), {}, {}, {}};
  if (limit.work) times.limit = std::move(seconds.back());
  for (double& s : times.limit) s /= limit.times;
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
                  const std::vector<Rival>& rivals, const Limit& limit) {
  const Times times = TimesOf(options, ours, rivals, limit);
  Cell cell{
      .value = measure::RateOf(amount, times.ours), .limit_of = limit.name, .against = times.name};
  if (rivals.empty()) {
    if (limit.work) cell.limit = measure::RateOf(amount, times.limit);
    return cell;
  }
  if (limit.work) cell.limit = RatioOf(times.best, times.limit);
  cell.reference = measure::RateOf(amount, times.best);
  cell.ratio = RatioOf(times.best, times.ours);
  return cell;
}

Cell AgainstRate(Cell cell, double rate) {
  const auto over_rate = [rate](const measure::Summary& s) -> measure::Summary {
    return {s.median / rate, s.low / rate, s.high / rate, s.count};
  };
  cell.reference = measure::Summary{rate, rate, rate, 1};
  cell.ratio = over_rate(cell.value);
  if (cell.limit) cell.limit = over_rate(*cell.limit);
  return cell;
}

Cell CompareTimes(const AlternateOptions& options, double scale, const measure::Work& ours,
                  const std::vector<Rival>& rivals, const Limit& limit) {
  Times times = TimesOf(options, ours, rivals, limit);
  Cell cell{.limit_of = limit.name, .against = times.name};
  if (!rivals.empty()) cell.ratio = RatioOf(times.ours, times.best);
  if (!rivals.empty() && limit.work) cell.limit = RatioOf(times.limit, times.best);
  for (double& s : times.ours) s *= scale;
  for (double& s : times.best) s *= scale;
  cell.value = Summarize(times.ours);
  if (!rivals.empty()) cell.reference = Summarize(times.best);
  return cell;
}

std::optional<measure::VectorInstructions> InstructionsOf(
    const std::function<measure::Work(std::size_t rows)>& make, std::size_t rows) {
  const auto count = [&](std::size_t n) {
    const measure::Work work = make(n);
    work();  // allocates
    return measure::CountVectorInstructions(work);
  };
  const auto once = count(rows), twice = count(2 * rows);
  if (!once || !twice) return std::nullopt;
  return measure::VectorInstructions{twice->wide - once->wide, twice->narrow - once->narrow};
}

Limit OwnInstructions(const std::function<measure::Work(MatrixView<const float>)>& make,
                      MatrixView<const float> x, std::size_t rows) {
  const std::size_t few = std::min(x.rows / 2, rows);
  const auto count =
      InstructionsOf([&](std::size_t n) { return make(x.Block(0, 0, n, x.cols)); }, few);
  if (!count) return {[x] { TensorAmax(x); }, "reading the input"};
  const double counted = static_cast<double>(few * x.cols);
  return InstructionLimit(*count, counted, static_cast<double>(x.size()), 16, "elements");
}

Limit InstructionLimit(const measure::VectorInstructions& count, double counted, double all,
                       int per, const std::string& things) {
  const double times = all / counted, of_per = (count.wide + count.narrow) / counted * per;
  return {[n = count, times] {
            measure::SpendVectorInstructions({n.wide * times, n.narrow * times});
          },
          "its " + measure::NumberText(of_per) + " vector instructions / " + std::to_string(per) +
              " " + things};
}

Cell Missing(std::string why) { return {.missing = std::move(why)}; }

}  // namespace fp4lab::tools
