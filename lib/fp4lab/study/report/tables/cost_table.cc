#include "fp4lab/study/report/tables/cost_table.h"

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
    table.rows.push_back(std::move(row));
  }
  return table.Html() + "<p class=\"note\">Time: of a token's products, relative to " +
         EscapedMarkup(reference) +
         "'s, on tensor cores that multiply 8 and 6 bits twice and 4 bits four times as fast as "
         "BF16 (dense rates of NVIDIA's B200). Tokens: r; in shrink form (r') to the loss that the "
         "arm has there. The last column is time times tokens. Quantization, attention's own "
         "products and all else are not in it, so it does not decide between formats: that takes "
         "the measured speed of a step. The alternative to 4 bits on these tensor cores is FP8: "
         "a format pays if its step is faster than FP8's by more than its tokens over FP8's.</p>\n";
}

}  // namespace fp4lab::study
