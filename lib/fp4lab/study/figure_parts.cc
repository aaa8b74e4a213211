#include "fp4lab/study/figure_parts.h"

#include <cmath>

#include "fp4lab/study/number_text.h"

namespace fp4lab::study {

namespace {

constexpr double kTextLeft = 18;  // Svg::Document cuts this off on a page

}  // namespace

void DrawTitle(Svg* svg, const std::string& title, const Results& results) {
  svg->Text({kTextLeft, 24}, title, "t title");
  const std::size_t seeds = results.seeds.size();
  svg->Text({kTextLeft, 43},
            results.name + ": " + TokensText(static_cast<double>(results.block_parameters)) +
                " block parameters, " + results.corpus + ", " + std::to_string(seeds) +
                (seeds == 1 ? " seed" : " seeds"),
            "t small muted");
}

double DrawLegend(Svg* svg, double width, const std::vector<LegendEntry>& entries) {
  return 72 + Legend(svg, {kTextLeft, 70}, width - 2 * kTextLeft, entries);
}

double LegendBottom(double width, const std::vector<LegendEntry>& entries) {
  Svg nowhere(width, 0, "", "");
  return DrawLegend(&nowhere, width, entries);
}

Axis BudgetAxis(const Results& results, double share) {
  const auto first = static_cast<double>(results.budgets.front());
  const auto last = static_cast<double>(results.budgets.back());
  const double range = last > first ? std::log(last / first) : 1;
  const double margin = std::exp(share * range);
  Axis axis{first / margin,
            last * margin,
            true,
            "training tokens D, and D per block parameter (D/N)",
            {}};
  for (const std::int64_t tokens : results.budgets) {
    const auto d = static_cast<double>(tokens);
    axis.ticks.push_back(
        {d, TokensText(d),
         "D/N " + PerParameterText(d / static_cast<double>(results.block_parameters))});
  }
  return axis;
}

}  // namespace fp4lab::study
