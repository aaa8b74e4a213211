#include "fp4lab/study/report/tables/cost_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/svg.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/train/model/product_widths.h"

namespace fp4lab::study {
namespace {

// nullopt for a recipe that this version does not read, in a file of another version.
std::optional<ProductWidths> WidthsOf(const Results& results, const std::string& name) {
  const Json& arm = results.study.at("arms").at(name);
  try {
    return ProductWidthsOf(ReadRecipe(arm.at("recipe"), name),
                           ReadModelConfig(results.ModelOf(name), name));
  } catch (const Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

// The tokens that an arm needs to match the reference, as a multiple.
struct Multiple {
  double value = NAN;
  std::string text = "-";
};
Multiple MultipleOf(const Analysis& analysis, const std::string& arm, const std::string& reference,
                    std::int64_t tokens) {
  if (arm == reference) return {1.0, "1"};
  const TokenRatio* ratio = ShownRatio(analysis, {arm, reference}, tokens);
  if (ratio == nullptr || !ratio->identified) return {};
  return {ratio->ratio, Fixed(ratio->ratio, 2) + (ratio->form == Form::kShrink ? " r'" : "")};
}

// Speeds of a whole step in NVFP4 over FP8, as NVIDIA measured them: Llama 3 8B on GB300 and GB200,
// 405B on GB200 and GB300.
// https://developer.nvidia.com/blog/train-models-faster-with-jax-and-maxtext-using-nvfp4-on-nvidia-blackwell/
constexpr double kMeasuredSpeedups[] = {1.31, 1.35, 1.44, 1.73};

// The tokens that an arm needs over those of the 8-bit arm `eight`, both to one loss of the
// reference's curve: the speed of a step over the 8-bit arm's above which the arm pays. In the form
// that both have, extend before shrink, by the differences of ln r of each seed.
struct BreakEven {
  double value = NAN;
  std::optional<Interval> interval;
  Form form = Form::kExtend;
};
BreakEven BreakEvenOf(const Analysis& analysis, const std::string& arm, const std::string& eight,
                      const std::string& reference, std::int64_t tokens, double confidence) {
  for (const Form form : kForms) {
    const auto find = [&](const std::string& format) {
      return analysis.FindRatio(format, reference, tokens, Precision::kTraining,
                                Estimator::kCrossing, form);
    };
    const TokenRatio *own = arm == reference ? nullptr : find(arm),
                     *base = eight == reference ? nullptr : find(eight);
    if ((own == nullptr && arm != reference) || (base == nullptr && eight != reference)) continue;
    const std::size_t seeds = own != nullptr    ? own->per_seed.size()
                              : base != nullptr ? base->per_seed.size()
                                                : 0;
    std::vector<double> differences;
    for (std::size_t s = 0; s < seeds; ++s) {
      double difference = 0;
      bool is_known = true;
      for (const auto& [ratio, sign] : {std::pair{own, 1.0}, {base, -1.0}}) {
        if (ratio == nullptr) continue;  // the reference: ln 1
        is_known = is_known && ratio->per_seed[s].status == LogRatio::Status::kIdentified;
        difference += sign * ratio->per_seed[s].value;
      }
      if (is_known) differences.push_back(difference);
    }
    if (differences.empty() || differences.size() < seeds) continue;
    const Summary summary = Summarize(differences);
    BreakEven found{std::exp(summary.mean), StudentInterval(summary, confidence), form};
    if (found.interval) {
      found.interval = Interval{std::exp(found.interval->low), std::exp(found.interval->high)};
    }
    return found;
  }
  return {};
}

std::string BreakEvenText(const BreakEven& s) {
  if (std::isnan(s.value)) return "-";
  return Fixed(s.value, 2) + (s.interval ? " " + IntervalText(*s.interval, 2) : "") +
         (s.form == Form::kShrink ? " r'" : "");
}

// "1.44: open, 1.73: yes": whether the arm pays at the measured speeds.
std::string PaysText(const BreakEven& s) {
  if (std::isnan(s.value)) return "-";
  std::string text;
  for (const double speed : kMeasuredSpeedups) {
    const bool is_open = !s.interval || s.interval->Contains(speed);
    text += (text.empty() ? "" : ", ") + Fixed(speed, 2) + ": " +
            (is_open           ? "open"
             : speed > s.value ? "yes"
                               : "no");
  }
  return text;
}

// The first arm whose products all have 8 bits; empty: none.
std::string EightBitArm(const Results& results, const std::map<std::string, ProductWidths>& known) {
  for (const std::string& arm : results.arms) {
    const auto widths = known.find(arm);
    if (widths != known.end() && widths->second.size() == 1 && widths->second.contains(8)) {
      return arm;
    }
  }
  return "";
}

std::string OneDecimalPercent(double share) { return Fixed(100 * share, 1) + " %"; }

}  // namespace

std::string CostTable(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  const std::string& reference = results.question.reference;
  const std::int64_t tokens = results.question.primary_tokens;
  std::map<std::string, ProductWidths> known;
  std::set<int> bits;
  for (const std::string& arm : results.arms) {
    if (const auto widths = WidthsOf(results, arm)) {
      for (const auto& [width, share] : *widths) bits.insert(width);
      known[arm] = *widths;
    }
  }
  const auto time_of = [&](const std::string& arm) {
    const auto widths = known.find(arm);
    return widths == known.end() ? NAN : ProductTime(widths->second).value_or(NAN);
  };
  HtmlTable table;
  table.caption =
      "Products of the blocks' linears, forward and backward, by the bits of the wider operand; "
      "their time, and the tokens to match " +
      reference + " at " + TokensText(static_cast<double>(tokens)) + " tokens.";
  table.head = {"arm"};
  for (const int width : bits) table.head.push_back(std::to_string(width) + " bits");
  table.head.insert(table.head.end(), {"time", "tokens", "time to equal loss"});
  // S* is of arms with 4-bit products against one of 8 bits; without both there is none.
  const bool any_four = std::any_of(known.begin(), known.end(),
                                    [](const auto& arm) { return arm.second.contains(4); });
  const std::string eight = any_four ? EightBitArm(results, known) : "";
  if (!eight.empty()) {
    table.head.insert(table.head.end(), {"S*", "pays at a step so much faster"});
  }
  const double unit = time_of(reference);
  for (const std::string& arm : results.arms) {
    std::vector<std::string> row = {EscapedMarkup(arm)};
    const auto widths = known.find(arm);
    for (const int width : bits) {
      const bool has = widths != known.end() && widths->second.contains(width);
      row.push_back(has ? OneDecimalPercent(widths->second.at(width)) : "");
    }
    const double time = time_of(arm) / unit;  // NaN is written "-"
    const Multiple multiple = MultipleOf(analysis, arm, reference, tokens);
    row.insert(row.end(),
               {Fixed(time, 2), multiple.text, "<b>" + Fixed(time * multiple.value, 2) + "</b>"});
    const bool four = widths != known.end() && widths->second.contains(4);
    if (!eight.empty()) {
      const BreakEven s =
          four ? BreakEvenOf(analysis, arm, eight, reference, tokens, results.question.confidence)
               : BreakEven{};
      row.insert(row.end(), {four ? BreakEvenText(s) : "", four ? PaysText(s) : ""});
    }
    table.rows.push_back(std::move(row));
  }
  std::string pays;
  if (!eight.empty()) {
    pays = "<p class=\"note\">S*: the tokens of an arm with 4-bit products over those of " +
           EscapedMarkup(eight) +
           " at equal loss, with its t interval over seeds. The arm pays if a step of it is more "
           "than S* times as fast. NVIDIA measured whole steps in NVFP4 at 1.31 and 1.35 (Llama 3 "
           "8B on GB300 and GB200), 1.44 and 1.73 times FP8's (405B on GB200 and GB300). S* is of "
           "this study's size and text, and grows with the text. Open: the interval holds this "
           "speed.</p>\n";
  }
  return table.Html() + "<p class=\"note\">Time: of a token's products, relative to " +
         EscapedMarkup(reference) +
         "'s, on tensor cores that multiply 8 and 6 bits twice and 4 bits four times as fast as "
         "BF16 (dense rates of NVIDIA's B200). Tokens: r; in shrink form (r') to the loss that the "
         "arm has there. The last column is time times tokens. Quantization, attention's own "
         "products and all else are not in it, so it does not decide between formats: that takes "
         "the measured speed of a step. The alternative to 4 bits on these tensor cores is FP8: "
         "a format pays if its step is faster than FP8's by more than its tokens over "
         "FP8's.</p>\n" +
         pays;
}

}  // namespace fp4lab::study
