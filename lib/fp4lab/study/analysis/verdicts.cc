#include "fp4lab/study/analysis/verdicts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"

namespace fp4lab::study {
namespace {

using Status = CriterionResult::Status;

// A verdict at one budget, and the numbers behind it.
struct Part {
  Status status;
  std::string numbers;
};

// The criterion fails if a part fails, and holds if all parts hold; otherwise it is not evaluable.
CriterionResult Together(const Criterion& criterion, std::string statement,
                         const std::vector<Part>& parts) {
  CriterionResult result{criterion.kind, std::move(statement), Status::kHeld, ""};
  for (const Part& part : parts) {
    if (part.status == Status::kFailed) result.status = Status::kFailed;
    if (part.status == Status::kNotEvaluable && result.status == Status::kHeld) {
      result.status = Status::kNotEvaluable;
    }
    result.numbers += (result.numbers.empty() ? "" : "; ") + part.numbers;
  }
  if (parts.empty()) {
    result.status = Status::kNotEvaluable;
    result.numbers = "no budget is that large";
  }
  return result;
}

Status Verdict(bool held) { return held ? Status::kHeld : Status::kFailed; }

std::string At(std::int64_t tokens) { return TokensText(static_cast<double>(tokens)) + ": "; }

std::vector<std::int64_t> Budgets(const Context& c, const Criterion& criterion) {
  if (criterion.tokens == "primary") return {c.results.question.primary_tokens};
  if (criterion.tokens == "largest") return {c.results.budgets.back()};
  return c.results.budgets;
}

std::vector<std::int64_t> BudgetsFrom(const Context& c, double minimum) {
  std::vector<std::int64_t> budgets;
  for (const std::int64_t tokens : c.results.budgets) {
    if (static_cast<double>(tokens) >= 0.95 * minimum) budgets.push_back(tokens);
  }
  return budgets;
}

std::size_t IndexOfBudget(const Context& c, std::int64_t tokens) {
  const std::vector<std::int64_t>& budgets = c.results.budgets;
  return static_cast<std::size_t>(std::find(budgets.begin(), budgets.end(), tokens) -
                                  budgets.begin());
}

std::string Where(const Criterion& criterion) {
  if (criterion.tokens == "primary") return " at the primary budget";
  return criterion.tokens == "largest" ? " at the largest budget" : " at every budget";
}

// Whether there is a gap over at least one seed and no run diverged (the reference has no gap).
bool Complete(const LossGap* gap) {
  return gap != nullptr && gap->summary.count > 0 && gap->diverged == 0;
}

// The ratio that token_ratio and token_ratio_grows judge at a budget; nullptr if none is
// identified.
const TokenRatio* Judged(const Context& c, const Criterion& criterion, std::int64_t tokens) {
  for (const Form form : kForms) {
    const TokenRatio* ratio =
        c.analysis.FindRatio(criterion.arms[0], criterion.arms[1], tokens, Precision::kTraining,
                             Estimator::kCrossing, form);
    if (ratio != nullptr && ratio->identified) return ratio;
  }
  return nullptr;
}

std::string RatioWithSpread(const TokenRatio& ratio) {
  return Fixed(ratio.ratio, 3) + (ratio.interval ? " " + IntervalText(*ratio.interval, 3) : "") +
         (ratio.form == Form::kShrink ? " (shrink form)" : "") +
         (ratio.extrapolated ? " (extrapolated)" : "");
}

// The values of both gaps for each seed that has both.
std::pair<std::vector<double>, std::vector<double>> PairsOf(const LossGap& a, const LossGap& b) {
  std::pair<std::vector<double>, std::vector<double>> pairs;
  for (std::size_t s = 0; s < a.per_seed.size(); ++s) {
    if (!a.per_seed[s] || !b.per_seed[s]) continue;
    pairs.first.push_back(*a.per_seed[s]);
    pairs.second.push_back(*b.per_seed[s]);
  }
  return pairs;
}

// The mean loss; infinite if a run diverged.
double MeanOf(const ArmLoss& loss) { return loss.diverged > 0 ? INFINITY : loss.summary.mean; }

// The verdict on a published order: it holds where the t interval of each neighbouring pair's
// paired difference lies above 0, fails where one lies below 0, and is not identified where seeds
// cannot tell the pair apart. A pair with diverged runs is judged by the means, as in `part`.
Part Resolved(const Context& c, const Criterion& criterion, std::int64_t tokens, Part part) {
  const LossCube& cube = c.losses;
  const std::size_t k = IndexOfBudget(c, tokens);
  bool failed = false, open = false;
  std::string differences;
  for (std::size_t i = 1; i < criterion.arms.size(); ++i) {
    const std::string &a = criterion.arms[i - 1], &b = criterion.arms[i];
    const double before = MeanOf(*c.analysis.FindLoss(a, tokens, Precision::kTraining));
    const double after = MeanOf(*c.analysis.FindLoss(b, tokens, Precision::kTraining));
    if (!std::isfinite(before) || !std::isfinite(after)) {
      failed |= !(before < after);
      continue;
    }
    std::vector<double> paired;
    for (std::size_t s = 0; s < cube.seeds; ++s) {
      const double difference =
          cube.At(s, IndexOf(c.results.arms, b), k) - cube.At(s, IndexOf(c.results.arms, a), k);
      if (std::isfinite(difference)) paired.push_back(difference);
    }
    const Summary summary = Summarize(paired);
    const std::optional<Interval> interval =
        StudentInterval(summary, c.results.question.confidence);
    failed |= interval && interval->high < 0;
    open |= !interval || interval->Contains(0);
    differences += (differences.empty() ? "" : ", ") + Signed(summary.mean, 4) +
                   (interval ? " " + IntervalText(*interval, 4) : " from too few seeds");
  }
  part.status = failed ? Status::kFailed : open ? Status::kNotEvaluable : Status::kHeld;
  if (!differences.empty()) part.numbers += " (differences " + differences + ")";
  return part;
}

std::string Parted(const TokenRatio& ratio) {
  return "not identified, " + RatioWithSpread(ratio) + " but " + ratio.disagreement;
}

}  // namespace

CriterionResult MeanOrder(const Context& c, const Criterion& criterion) {
  const IeeeArithmetic ieee;
  std::vector<Part> parts;
  for (const std::int64_t tokens : Budgets(c, criterion)) {
    Part part{Status::kHeld, At(tokens)};
    const ArmLoss* last = nullptr;
    for (const std::string& arm : criterion.arms) {
      const ArmLoss* loss = c.analysis.FindLoss(arm, tokens, Precision::kTraining);
      if (loss->diverged == 0 && loss->summary.count == 0) {
        part = {Status::kNotEvaluable, At(tokens) + arm + " was not run"};
        break;
      }
      if (last != nullptr) {
        const bool rises = MeanOf(*last) < MeanOf(*loss);
        part.numbers += rises ? " < " : " !< ";
        if (!rises) part.status = Status::kFailed;
      }
      part.numbers += loss->diverged > 0 ? "diverged" : Fixed(loss->summary.mean, 4);
      last = loss;
    }
    if (!criterion.source.empty() && part.status != Status::kNotEvaluable) {
      part = Resolved(c, criterion, tokens, std::move(part));
    }
    parts.push_back(std::move(part));
  }
  return Together(criterion,
                  "mean losses in the order " + Joined(criterion.arms, " < ") + Where(criterion),
                  parts);
}

CriterionResult SeedOrder(const Context& c, const Criterion& criterion) {
  const IeeeArithmetic ieee;
  const LossCube& cube = c.losses;
  std::vector<Part> parts;
  for (const std::int64_t tokens : Budgets(c, criterion)) {
    const std::size_t k = IndexOfBudget(c, tokens);
    std::size_t present = 0, ordered = 0;
    for (std::size_t s = 0; s < cube.seeds; ++s) {
      std::vector<double> losses;
      for (const std::string& arm : criterion.arms) {
        losses.push_back(cube.At(s, IndexOf(c.results.arms, arm), k));
      }
      if (std::any_of(losses.begin(), losses.end(), [](double x) { return std::isnan(x); })) {
        continue;
      }
      ++present;
      ordered += std::adjacent_find(losses.begin(), losses.end(),
                                    [](double a, double b) { return !(a < b); }) == losses.end();
    }
    const double needed = std::ceil(criterion.seed_share * static_cast<double>(present) - 1e-9);
    parts.push_back(
        {present == 0 ? Status::kNotEvaluable : Verdict(static_cast<double>(ordered) >= needed),
         At(tokens) + std::to_string(ordered) + " of " + std::to_string(present)});
  }
  return Together(criterion,
                  "losses in the order " + Joined(criterion.arms, " < ") + " in at least " +
                      Fixed(100 * criterion.seed_share, 0) + " % of the seeds" + Where(criterion),
                  parts);
}

CriterionResult GapRatio(const Context& c, const Criterion& criterion) {
  const IeeeArithmetic ieee;
  const std::string& reference = c.results.question.reference;
  std::vector<Part> parts;
  for (const std::int64_t tokens : Budgets(c, criterion)) {
    const LossGap* a =
        c.analysis.FindGap(criterion.arms[0], reference, tokens, Precision::kTraining);
    const LossGap* b =
        c.analysis.FindGap(criterion.arms[1], reference, tokens, Precision::kTraining);
    if (!Complete(a) || !Complete(b)) {
      parts.push_back({Status::kNotEvaluable, At(tokens) + "a run is missing or diverged"});
      continue;
    }
    const double ratio = a->summary.mean / b->summary.mean;
    const bool inside = b->summary.mean > 0 && ratio >= criterion.low && ratio <= criterion.high;
    Part part{Verdict(inside), At(tokens) + Signed(a->summary.mean, 4) + " / " +
                                   Signed(b->summary.mean, 4) + " = " + Fixed(ratio, 2)};
    const auto [numerators, denominators] = PairsOf(*a, *b);
    if (const auto interval =
            FiellerInterval(numerators, denominators, c.results.question.confidence)) {
      part.numbers += " " + IntervalText(*interval, 2);
    } else if (numerators.size() >= kLeastSeeds) {
      part = {Status::kNotEvaluable,
              part.numbers + ", not identified: the gap of " + criterion.arms[1] + " may be 0"};
    }
    parts.push_back(std::move(part));
  }
  return Together(criterion,
                  "gap of " + criterion.arms[0] + " over gap of " + criterion.arms[1] + " within " +
                      IntervalText({criterion.low, criterion.high}, 2) + Where(criterion),
                  parts);
}

CriterionResult RatioRange(const Context& c, const Criterion& criterion) {
  const IeeeArithmetic ieee;
  std::vector<Part> parts;
  for (const std::int64_t tokens : BudgetsFrom(c, criterion.minimum_tokens)) {
    const TokenRatio* ratio = Judged(c, criterion, tokens);
    if (ratio == nullptr) {
      parts.push_back({Status::kNotEvaluable, At(tokens) + "not identified"});
      continue;
    }
    if (!ratio->disagreement.empty()) {
      parts.push_back({Status::kNotEvaluable, At(tokens) + Parted(*ratio)});
      continue;
    }
    Status status = Verdict(ratio->ratio >= criterion.low && ratio->ratio <= criterion.high);
    std::string text = At(tokens) + RatioWithSpread(*ratio);
    if (criterion.excludes_one && status == Status::kHeld) {
      if (!ratio->interval) {
        status = Status::kNotEvaluable;
        text += ", no t interval from so few seeds";
      } else {
        status = Verdict(!ratio->interval->Contains(1));
      }
    }
    parts.push_back({status, text});
  }
  return Together(criterion,
                  "tokens " + criterion.arms[0] + " needs to match " + criterion.arms[1] +
                      ": ratio within " + IntervalText({criterion.low, criterion.high}, 2) +
                      (criterion.excludes_one ? ", its t interval excluding 1," : "") + " from " +
                      TokensText(criterion.minimum_tokens) + " tokens on",
                  parts);
}

// The verdict on the growth of the ratio from the smallest budget to `tokens`, in the first form
// that is identified at both.
Part GrowthPart(const Context& c, const Criterion& criterion, std::int64_t tokens) {
  const IeeeArithmetic ieee;
  const std::int64_t smallest = c.results.budgets.front();
  const auto find = [&](std::int64_t at, Form form) {
    const TokenRatio* ratio = c.analysis.FindRatio(
        criterion.arms[0], criterion.arms[1], at, Precision::kTraining, Estimator::kCrossing, form);
    return ratio != nullptr && ratio->identified ? ratio : nullptr;
  };
  for (const Form form : kForms) {
    const TokenRatio *start = find(smallest, form), *ratio = find(tokens, form);
    if (start == nullptr || ratio == nullptr) continue;
    for (const TokenRatio* r : {ratio, start}) {
      if (r->disagreement.empty()) continue;
      const std::string place =
          r == start ? "at " + TokensText(static_cast<double>(smallest)) + " " : "";
      return {Status::kNotEvaluable, At(tokens) + place + Parted(*r)};
    }
    const Growth& growth = *ratio->growth;
    const std::string text =
        At(tokens) + RatioWithSpread(*ratio) + " against " + RatioWithSpread(*start) + " at " +
        TokensText(static_cast<double>(smallest)) + ", a factor of " + Fixed(growth.factor, 3);
    if (!growth.interval) {
      return {Status::kNotEvaluable, text + ", no t interval from so few seeds"};
    }
    const Status status = growth.interval->low > 1    ? Status::kHeld
                          : growth.interval->high < 1 ? Status::kFailed
                                                      : Status::kNotEvaluable;
    return {status, text + " " + IntervalText(*growth.interval, 3) +
                        (status == Status::kNotEvaluable ? ", not identified" : "")};
  }
  return {Status::kNotEvaluable, At(tokens) + "not identified in one form at both budgets"};
}

CriterionResult RatioGrows(const Context& c, const Criterion& criterion) {
  const IeeeArithmetic ieee;
  std::vector<Part> parts;
  for (const std::int64_t tokens : BudgetsFrom(c, criterion.minimum_tokens)) {
    if (tokens != c.results.budgets.front()) parts.push_back(GrowthPart(c, criterion, tokens));
  }
  return Together(criterion,
                  "token ratio of " + criterion.arms[0] + " to " + criterion.arms[1] +
                      " larger from " + TokensText(criterion.minimum_tokens) +
                      " tokens on than at the smallest budget",
                  parts);
}

CriterionResult SmallGap(const Context& c, const Criterion& criterion) {
  const IeeeArithmetic ieee;
  const std::string& reference = c.results.question.reference;
  const std::int64_t tokens = c.results.budgets.back();
  const LossGap* a = c.analysis.FindGap(criterion.arms[0], reference, tokens, Precision::kTraining);
  const LossGap* b = c.analysis.FindGap(criterion.arms[1], reference, tokens, Precision::kTraining);
  const std::string statement = "gap of " + criterion.arms[0] + " at most " +
                                Fixed(criterion.share, 2) + " of that of " + criterion.arms[1] +
                                " and within " + Fixed(criterion.standard_errors, 1) +
                                " standard errors of 0, at the largest budget";
  if (!Complete(a) || !Complete(b) || a->summary.count < 2) {
    return Together(criterion, statement,
                    {{Status::kNotEvaluable, At(tokens) + "needs 2 finished seeds at least"}});
  }
  const double share = a->summary.mean / b->summary.mean;
  const double errors = std::abs(a->summary.mean) / a->summary.StandardError();
  const bool held =
      a->summary.mean <= criterion.share * b->summary.mean &&
      std::abs(a->summary.mean) <= criterion.standard_errors * a->summary.StandardError();
  return Together(criterion, statement,
                  {{Verdict(held), At(tokens) + Signed(a->summary.mean, 4) + " = " +
                                       Fixed(share, 2) + " of " + Signed(b->summary.mean, 4) +
                                       ", " + Fixed(errors, 1) + " standard errors"}});
}

}  // namespace fp4lab::study
