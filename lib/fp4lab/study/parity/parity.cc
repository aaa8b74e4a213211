#include "fp4lab/study/parity/parity.h"

#include <algorithm>
#include <array>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstdint>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/parity/step_error.h"

namespace fp4lab::study {
namespace {

using Series = std::vector<double>;
using Runs = std::vector<Series>;  // [run][step of the window]

constexpr std::size_t kCourse = 5;  // parts of the common steps
constexpr std::size_t kMostNeeded = 1000;

const std::map<double, double>& LossOf(const MetricLog& log) {
  return log.series.find(kLossKey)->second;
}

double MeanOf(const Series& x) { return Summarize(x).mean; }

Series MeanSeries(const Runs& runs) {
  Series mean(runs[0].size(), 0);
  for (const Series& run : runs) {
    for (std::size_t t = 0; t < mean.size(); ++t) {
      mean[t] += run[t] / static_cast<double>(runs.size());
    }
  }
  return mean;
}

// A part of a variance, with its degrees of freedom.
struct Part {
  double variance = 0, degrees = 0;
};

Part Sum(const Part& a, const Part& b) {
  const double all = a.variance + b.variance;
  if (!(all > 0)) return {0, std::max(a.degrees, b.degrees)};
  double below = 0;
  for (const Part& part : {a, b}) {
    const double share = part.variance / all;
    if (share > 0) below += share * share / part.degrees;
  }
  return {all, 1 / below};
}

// The scatter of the means of the runs, over their number.
Part OfSeeds(const Runs& runs, double weight) {
  Series means;
  for (const Series& run : runs) means.push_back(weight * MeanOf(run));
  const Summary summary = Summarize(means);
  return {summary.deviation * summary.deviation / static_cast<double>(runs.size()),
          static_cast<double>(runs.size()) - 1};
}

// The part of the steps' variance that the runs of an arm do not share.
double OwnSteps(const Runs& runs, double weight, std::size_t block) {
  if (runs.size() < 2) return 0;
  const Series mean = MeanSeries(runs);
  double sum = 0;
  for (const Series& run : runs) {
    Series rest;
    for (std::size_t t = 0; t < run.size(); ++t) rest.push_back(weight * (run[t] - mean[t]));
    sum += BlockVariance(rest, block);
  }
  const auto n = static_cast<double>(runs.size());
  return sum / n / (n - 1);
}

struct Estimate {
  double gap = 0;       // mean of the runs over the baseline's, less 1
  double baseline = 0;  // mean loss
  Part seeds, steps;    // variances of the gap; seeds.degrees 0: unknown
  Part all;
  StepBlocks blocks;
  double Error() const { return std::sqrt(all.variance); }
};

Runs Differences(const Runs& a, const Runs& b, double weight) {
  Runs differences;
  for (std::size_t r = 0; r < a.size(); ++r) {
    Series own;
    for (std::size_t t = 0; t < a[r].size(); ++t) own.push_back(a[r][t] - weight * b[r][t]);
    differences.push_back(std::move(own));
  }
  return differences;
}

// The variance of the gap by the delta method: that of mean(a) - (1 + gap) mean(b), over mean(b).
Estimate EstimateGap(const Runs& a, const Runs& b, bool paired) {
  Estimate e;
  e.baseline = MeanOf(MeanSeries(b));
  e.gap = MeanOf(MeanSeries(a)) / e.baseline - 1;
  const double weight = 1 + e.gap;
  const Series rest = Differences({MeanSeries(a)}, {MeanSeries(b)}, weight)[0];
  e.blocks = BlocksOf(rest);
  const double scale = 1 / (e.baseline * e.baseline);
  const double steps = BlockVariance(rest, e.blocks.length);
  e.steps = {steps, BlockDegrees(rest.size(), e.blocks.length)};
  double own = 0;
  if (paired && a.size() > 1) {
    const Runs differences = Differences(a, b, weight);
    e.seeds = OfSeeds(differences, 1);
    own = OwnSteps(differences, 1, e.blocks.length);
  } else if (a.size() > 1 || b.size() > 1) {
    Part of_a = OfSeeds(a, 1), of_b = OfSeeds(b, weight);
    own = OwnSteps(a, 1, e.blocks.length) + OwnSteps(b, weight, e.blocks.length);
    // An arm of one run has the scatter of the other one's.
    if (a.size() == 1 || b.size() == 1) {
      const Part known = a.size() == 1 ? of_b : of_a;
      const double each = known.variance * static_cast<double>(std::max(a.size(), b.size()));
      e.seeds = {known.variance + each, known.degrees};
    } else {
      e.seeds = Sum(of_a, of_b);
    }
  }
  if (e.seeds.degrees > 0) e.steps.variance = std::max(0.0, steps - own);
  e.seeds.variance *= scale;
  e.steps.variance *= scale;
  e.all = e.seeds.degrees > 0 ? Sum(e.seeds, e.steps) : e.steps;
  return e;
}

double Above(double t, double degrees) {
  if (std::isnan(t)) return 1;
  if (std::isinf(t)) return t > 0 ? 0 : 1;
  return boost::math::cdf(boost::math::complement(boost::math::students_t(degrees), t));
}

// The p of the two one-sided tests: of the larger one.
double EquivalenceP(const Estimate& e, double margin) {
  if (e.Error() == 0) return std::abs(e.gap) < margin ? 0 : 1;
  return std::max(Above((margin - e.gap) / e.Error(), e.all.degrees),
                  Above((margin + e.gap) / e.Error(), e.all.degrees));
}

double DifferenceP(const Estimate& e) {
  if (e.Error() == 0) return e.gap == 0 ? 1 : 0;
  return std::min(1.0, 2 * Above(std::abs(e.gap) / e.Error(), e.all.degrees));
}

std::string Percent(double share, int digits = 2) { return Signed(100 * share, digits) + " %"; }

std::string PlainPercent(double share) {
  std::string text = Fixed(100 * share, 3);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text + " %";
}

Json Ends(double middle, double half) { return {middle - half, middle + half}; }

Json NumberOrNull(double x) { return std::isfinite(x) ? Json(x) : Json(); }

class Parity {
 public:
  Parity(const ParityArms& arms, const ParityOptions& options)
      : arms_(arms), options_(options), paired_(options.paired) {
    Check();
    FindWindow();
  }

  Json Document() {
    Json json = {
        {"schema", "fp4lab.parity/1"},
        {"options",
         {{"margin", options_.margin}, {"confidence", options_.confidence}, {"paired", paired_}}},
        {"runs", Names(arms_.runs)},
        {"baseline", Names(arms_.baseline)}};
    json["window"] = {{"of", arms_.runs[0].by_tokens ? "tokens" : "steps"},
                      {"from", steps_.front()},
                      {"to", steps_.back()},
                      {"points", steps_.size()},
                      {"common_points", common_.size()}};
    json["metrics"] = Metrics();
    json["spikes"] = Spikes();
    json["course"] = Course();
    const Runs a = LossesAt(arms_.runs, steps_), b = LossesAt(arms_.baseline, steps_);
    const Estimate e = EstimateGap(a, b, paired_);
    if (!(e.baseline > 0) || !std::isfinite(e.gap) || !std::isfinite(e.all.variance)) {
      throw Error(arms_.baseline[0].name,
                  "a gap in percent needs losses whose mean is above 0 and which are not huge: "
                  "that of the baseline is " +
                      SignificantText(e.baseline) + "; name the loss by --loss");
    }
    Decide(e, a.size(), b.size(), &json);
    json["notes"] = notes_;
    return json;
  }

 private:
  void Check() {
    const auto& o = options_;
    if (arms_.runs.empty()) throw Error("parity", "has no runs; name one at least");
    if (arms_.baseline.empty()) throw Error("--baseline", "names no runs; name one at least");
    if (!(o.margin > 0 && o.margin < 1)) {
      throw Error("--margin", "must be between 0 and 100 percent, as 0.5");
    }
    if (!(o.confidence > 0.5 && o.confidence < 1)) {
      throw Error("--confidence", "must be between 0.5 and 1, as 0.95");
    }
    if (!(o.last > 0 && o.last <= 1)) throw Error("--last", "must be above 0 and at most 1");
    if (o.from && o.to && *o.from > *o.to) throw Error("--from", "must not be behind --to");
    if (o.paired && arms_.runs.size() != arms_.baseline.size()) {
      throw Error("--paired",
                  "needs as many runs as the baseline has: " + std::to_string(arms_.runs.size()) +
                      " against " + std::to_string(arms_.baseline.size()));
    }
    for (const auto* arm : {&arms_.runs, &arms_.baseline}) {
      for (const MetricLog& log : *arm) {
        Expects(log.series.contains(kLossKey), "ParityDocument: every log has a loss");
        notes_.insert(notes_.end(), log.notes.begin(), log.notes.end());
        if (log.by_tokens != arms_.runs[0].by_tokens) {
          throw Error(log.name, "has " + std::string(log.by_tokens ? "tokens" : "steps") +
                                    ", and " + arms_.runs[0].name + " has " +
                                    (log.by_tokens ? "steps" : "tokens") +
                                    "; give both the same, or --by tokens if both have them");
        }
      }
    }
    const auto seeds = [](const std::vector<MetricLog>& arm) {
      std::vector<std::optional<std::uint64_t>> found;
      for (const MetricLog& log : arm) found.push_back(log.seed);
      return found;
    };
    const auto own = seeds(arms_.runs);
    if (own[0] && own == seeds(arms_.baseline)) paired_ = true;
  }

  // The steps that all runs have: `common_` those at which all losses are finite, in a window
  // `steps_`.
  void FindWindow() {
    const auto& first = LossOf(arms_.baseline[0]);
    std::size_t broken = 0;
    double end = INFINITY, longest = 0;
    for (const auto* arm : {&arms_.runs, &arms_.baseline}) {
      for (const MetricLog& log : *arm) {
        const auto& loss = LossOf(log);
        longest = std::max(longest, loss.empty() ? 0.0 : loss.rbegin()->first);
        end = std::min(end, loss.empty() ? 0.0 : loss.rbegin()->first);
        const bool diverged = !loss.empty() && !std::isfinite(loss.rbegin()->second);
        if (diverged) diverged_.emplace_back(&log, arm == &arms_.baseline);
      }
    }
    for (const auto& [at, loss] : first) {
      bool all = true, finite = true;
      for (const auto* arm : {&arms_.runs, &arms_.baseline}) {
        for (const MetricLog& log : *arm) {
          const auto found = LossOf(log).find(at);
          all = all && found != LossOf(log).end();
          finite = finite && all && std::isfinite(found->second);
        }
      }
      if (all && finite) common_.push_back(at);
      if (all && !finite) ++broken;
    }
    const std::string unit = arms_.runs[0].by_tokens ? "token count" : "step";
    if (broken > 0) {
      notes_.push_back(CountText(broken, unit) + " left out, at which a loss is not finite");
    }
    if (longest > end) {
      notes_.push_back("the shortest run ends at " + std::string(unit) + " " +
                       SignificantText(end) + " and the longest at " + SignificantText(longest) +
                       "; what follows the shortest is left out");
    }
    const auto skip = static_cast<std::size_t>(
        std::floor(static_cast<double>(common_.size()) * (1 - options_.last)));
    for (std::size_t i = 0; i < common_.size(); ++i) {
      const bool given = options_.from || options_.to;
      if (given ? common_[i] >= options_.from.value_or(-INFINITY) &&
                      common_[i] <= options_.to.value_or(INFINITY)
                : i >= skip) {
        steps_.push_back(common_[i]);
      }
    }
    if (steps_.size() < kLeastSteps) {
      throw Error(arms_.runs[0].name,
                  "shares " + CountText(steps_.size(), unit) +
                      " with the other runs in the window" + " and " +
                      std::to_string(common_.size()) + " at all; " + std::to_string(kLeastSteps) +
                      " are needed: log losses at the same steps, or widen the window (--last 1)");
    }
  }

  static Runs LossesAt(const std::vector<MetricLog>& logs, const Series& steps) {
    Runs runs;
    for (const MetricLog& log : logs) {
      Series own;
      for (const double at : steps) own.push_back(LossOf(log).at(at));
      runs.push_back(std::move(own));
    }
    return runs;
  }

  static Json Names(const std::vector<MetricLog>& logs) {
    Json names = Json::array();
    for (const MetricLog& log : logs) {
      names.push_back({{"name", log.name},
                       {"loss", log.names.find(kLossKey)->second},
                       {"points", LossOf(log).size()},
                       {"seed", log.seed ? Json(*log.seed) : Json()}});
    }
    return names;
  }

  // The middle value of a metric in the window, of an arm: the mean over its runs, the most of
  // memory; nullopt if a run lacks it.
  std::optional<double> Middle(const std::vector<MetricLog>& logs, std::string_view key) const {
    double sum = 0;
    for (const MetricLog& log : logs) {
      const auto found = log.series.find(key);
      if (found == log.series.end()) return std::nullopt;
      Series values;
      for (const auto& [at, value] : found->second) {
        if (at >= steps_.front() && at <= steps_.back() && std::isfinite(value)) {
          values.push_back(value);
        }
      }
      if (values.empty()) return std::nullopt;
      sum += Quantile(values, key == "memory" ? 1.0 : 0.5);
    }
    return sum / static_cast<double>(logs.size());
  }

  Json Metrics() const {
    Json rows = Json::array();
    for (const Metric& metric : kMetrics) {
      const std::optional<double> a = Middle(arms_.runs, metric.key);
      const std::optional<double> b = Middle(arms_.baseline, metric.key);
      if (!a && !b) continue;
      rows.push_back({{"metric", metric.key},
                      {"statistic", metric.key == "memory" ? "maximum" : "median"},
                      {"runs", a ? Json(*a) : Json()},
                      {"baseline", b ? Json(*b) : Json()},
                      {"ratio", a && b && *b != 0 ? Json(*a / *b) : Json()}});
    }
    return rows;
  }

  // Spikes of loss and gradient norm over all common steps.
  Json Spikes() const {
    Json rows = Json::array();
    for (const std::string_view key : {kLossKey, kGradientNormKey}) {
      std::array<std::size_t, 2> counts{}, steps{};
      bool there = true;
      for (const int arm : {0, 1}) {
        for (const MetricLog& log : arm == 0 ? arms_.runs : arms_.baseline) {
          const auto found = log.series.find(key);
          there = there && found != log.series.end();
          if (!there) break;
          Series values;  // norms as logarithms: their scale falls over a run
          for (const auto& [at, value] : found->second) {
            values.push_back(key == kLossKey ? value : std::log(value));
          }
          counts[arm] += SpikesOf(values).size();
          steps[arm] += values.size();
        }
      }
      if (!there) continue;
      rows.push_back({{"metric", key},
                      {"runs", counts[0]},
                      {"runs_points", steps[0]},
                      {"baseline", counts[1]},
                      {"baseline_points", steps[1]},
                      {"p", SameRateP(counts[0], steps[0], counts[1], steps[1])}});
    }
    return rows;
  }

  // The gap in equal parts of the common steps.
  Json Course() const {
    Json rows = Json::array();
    const std::size_t parts = std::min(kCourse, common_.size() / 2);
    for (std::size_t p = 0; p < parts; ++p) {
      const auto begin = common_.begin() + static_cast<std::ptrdiff_t>(p * common_.size() / parts);
      const auto end =
          common_.begin() + static_cast<std::ptrdiff_t>((p + 1) * common_.size() / parts);
      const Series part(begin, end);
      const double a = MeanOf(MeanSeries(LossesAt(arms_.runs, part)));
      const double b = MeanOf(MeanSeries(LossesAt(arms_.baseline, part)));
      rows.push_back({{"from", part.front()},
                      {"to", part.back()},
                      {"runs", a},
                      {"baseline", b},
                      {"gap", NumberOrNull(a / b - 1)}});
    }
    return rows;
  }

  // The least number from `now` on, of seeds in each arm or of steps in the window, with which the
  // error is small enough; nullopt beyond kMostNeeded times as many.
  static std::optional<std::size_t> Needed(std::size_t now, double room, double p, double q,
                                           const auto& error_with) {
    if (!(room > 0)) return std::nullopt;
    for (std::size_t n = now; n <= now * kMostNeeded; n = std::max(n + 1, n + n / 64)) {
      const Part part = error_with(n);
      const double t = StudentQuantile(p, part.degrees) + StudentQuantile(q, part.degrees);
      if (t * std::sqrt(part.variance) <= room) return n;
    }
    return std::nullopt;
  }

  void Decide(const Estimate& e, std::size_t runs, std::size_t base, Json* json) {
    const double c = options_.confidence, margin = options_.margin;
    const double one_sided = StudentQuantile(c, e.all.degrees);
    const double two_sided = StudentQuantile(0.5 + c / 2, e.all.degrees);
    const double se = e.Error();
    const bool seeds_known = e.seeds.degrees > 0;
    // Steps of one run, correlated over a fifth of the window, give no sound interval.
    const bool sound = seeds_known || !e.blocks.capped;
    const double p_equal = EquivalenceP(e, margin), p_different = DifferenceP(e);
    (*json)["gap"] = {
        {"relative", e.gap},
        {"nats", e.gap * e.baseline},
        {"baseline_loss", e.baseline},
        {"standard_error", se},
        {"degrees_of_freedom", NumberOrNull(e.all.degrees)},
        {"interval", Ends(e.gap, two_sided * se)},
        {"interval_of_equivalence", Ends(e.gap, one_sided * se)},
        {"p_equivalent", p_equal},
        {"p_different", p_different},
        {"variance",
         {{"seeds", seeds_known ? Json(e.seeds.variance) : Json()}, {"steps", e.steps.variance}}},
        {"block_steps", e.blocks.length},
        {"blocks_capped", e.blocks.capped},
        {"seeds_known", seeds_known}};
    const double power = 0.5 + kPower / 2;  // the two tests share what may go wrong
    const double shown = (one_sided + StudentQuantile(power, e.all.degrees)) * se;
    const double seen = (two_sided + StudentQuantile(kPower, e.all.degrees)) * se;
    (*json)["power"] = {{"of", kPower},
                        {"smallest_margin", shown},
                        {"smallest_difference", seen},
                        {"seeds_needed", nullptr},
                        {"points_needed", nullptr}};
    std::string status(kNotTold);
    if (sound && p_equal <= 1 - c) {
      status = kEquivalent;
    } else if (sound && p_different <= 1 - c) {
      status = kDifferent;
    }
    const std::string measured = Percent(e.gap) + " [" + Signed(100 * (e.gap - two_sided * se), 2) +
                                 ", " + Signed(100 * (e.gap + two_sided * se), 2) + "]";
    std::string verdict;
    if (!diverged_.empty()) {
      const bool baseline =
          std::any_of(diverged_.begin(), diverged_.end(), [](const auto& d) { return d.second; });
      const auto found = std::find_if(diverged_.begin(), diverged_.end(),
                                      [&](const auto& d) { return d.second == baseline; });
      status = baseline ? kNotTold : kDifferent;
      verdict = status + ": the loss of " + (baseline ? "the baseline's " : "") +
                found->first->name + " ends not finite, at step " +
                SignificantText(LossOf(*found->first).rbegin()->first);
      next_.push_back("train the run that diverged again at a lower learning rate");
    } else if (status == kEquivalent) {
      verdict = "equivalent within " + PlainPercent(margin) + ": the loss differs by " + measured;
    } else if (status == kDifferent) {
      const double near = std::abs(e.gap) - two_sided * se;
      verdict = "different by " + measured + ", " + Signed(e.gap * e.baseline, 4) + " nats; " +
                (near > margin ? "more than " : "whether by more than ") + PlainPercent(margin) +
                (near > margin ? "" : " is open");
    } else {
      verdict = "not told apart: " + measured + "; " + Needs(e, runs, base, sound, json);
    }
    (*json)["status"] = status;
    (*json)["verdict"] = verdict;
    Advise(e, status, sound, shown, *json);
    (*json)["next"] = next_;
  }

  // What would decide: more seeds or more steps.
  std::string Needs(const Estimate& e, std::size_t runs, std::size_t base, bool sound, Json* json) {
    const double c = options_.confidence, distance = std::abs(e.gap);
    const bool to_equal = distance < options_.margin;
    const double room = to_equal ? options_.margin - distance : distance;
    const double p = to_equal ? c : 0.5 + c / 2, q = to_equal ? 0.5 + kPower / 2 : kPower;
    const std::string what = to_equal ? "to show equivalence" : "to show the difference";
    if (!sound) {
      return "the steps are correlated over a fifth of the window and more; needs a longer window "
             "or more seeds";
    }
    if (e.seeds.degrees > 0) {
      const std::size_t least = std::min(runs, base);
      const double each = e.seeds.variance * static_cast<double>(least);
      const auto found = Needed(least, room, p, q, [&](std::size_t n) {
        const double degrees = e.seeds.degrees * static_cast<double>(n - 1) /
                               static_cast<double>(std::max<std::size_t>(least - 1, 1));
        return Sum({each / static_cast<double>(n), std::max(degrees, e.seeds.degrees)}, e.steps);
      });
      if (found && *found > least) {
        (*json)["power"]["seeds_needed"] = *found;
        const std::string more = std::to_string(*found - least);
        next_.push_back("train " + more + " more seeds in each arm " + what);
        return "needs " + more + " more seeds in each arm " + what;
      }
    } else {
      const auto found = Needed(steps_.size(), room, p, q, [&](std::size_t n) {
        const double times = static_cast<double>(n) / static_cast<double>(steps_.size());
        return Part{e.steps.variance / times, e.steps.degrees * times};
      });
      if (found && *found > steps_.size()) {
        (*json)["power"]["points_needed"] = *found;
        const std::string more = std::to_string(*found - steps_.size());
        next_.push_back("compare over " + more + " more logged steps " + what);
        return "needs " + more + " more logged steps " + what;
      }
    }
    return "this gap lies so near the margin that no feasible number of runs decides; state a "
           "larger margin";
  }

  void Advise(const Estimate& e, const std::string& status, bool sound, double shown,
              const Json& json) {
    if (e.seeds.degrees == 0) {
      next_.push_back(
          "train a second seed in each arm: one run says nothing of what another seed would give, "
          "and this interval holds the error of the steps alone");
    }
    if (!sound) {
      next_.push_back("choose a later or longer window (--from, --last): the gap moves within it");
    }
    for (const Json& spikes : json["spikes"]) {
      if (spikes["p"] < 1 - options_.confidence && spikes["runs"] > spikes["baseline"]) {
        next_.push_back("look at the steps of the spikes: the runs have more of them in " +
                        spikes["metric"].get<std::string>() + " than the baseline");
      }
    }
    if (status == kDifferent && diverged_.empty() && e.gap > 0) {
      next_.push_back(
          "find the operand: train with one of fprop, dgrad and wgrad in BF16 at a time, or ask "
          "fp4lab what-if for the operands' shares at a checkpoint");
    }
    if (status == kEquivalent) {
      next_.push_back(
          "nothing for this margin; the smallest that such data show in 8 of 10 cases "
          "is " +
          PlainPercent(shown));
    }
  }

  const ParityArms& arms_;
  const ParityOptions& options_;
  bool paired_;
  Series common_, steps_;
  std::vector<std::pair<const MetricLog*, bool>> diverged_;  // whether it is the baseline's
  std::vector<std::string> notes_, next_;
};

}  // namespace

Json ParityDocument(const ParityArms& arms, const ParityOptions& options) {
  const IeeeArithmetic ieee;
  return Parity(arms, options).Document();
}

}  // namespace fp4lab::study
