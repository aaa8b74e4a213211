#include "fp4lab/study/report/figures/figure_parts.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/study/numbers/number_text.h"

namespace fp4lab::study {
namespace {

constexpr double kTextLeft = 18;  // px; Svg::Document cuts this margin off on a page

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

double RoomForNames(const std::vector<std::string>& names) {
  constexpr double kWider = 1.25;
  double widest = 60;
  for (const std::string& name : names) widest = std::max(widest, TextWidth(name, 13) * kWider);
  return widest + 26;
}

Axis BudgetAxis(const Results& results, double share, double last) {
  const auto first = static_cast<double>(results.budgets.front());
  const double range = last > first ? std::log(last / first) : 1;
  const double margin = std::exp(share * range);
  Axis axis{first / margin,
            last * margin,
            true,
            "training tokens D, and D per block parameter (D/N)",
            {}};
  for (const std::int64_t tokens : results.budgets) {
    const auto d = static_cast<double>(tokens);
    if (d > axis.high) break;
    axis.ticks.push_back(
        {d, TokensText(d),
         "D/N " + PerParameterText(d / static_cast<double>(results.block_parameters))});
  }
  return axis;
}

std::string AtTokens(const Results& results, std::int64_t tokens) {
  const double ratio = static_cast<double>(tokens) / static_cast<double>(results.block_parameters);
  return " at " + std::to_string(tokens) + " tokens (D/N " + PerParameterText(ratio) + ")";
}

std::string ArmAndSeed(const std::string& arm, std::uint64_t seed) {
  return arm + ", seed " + std::to_string(seed);
}

std::vector<std::size_t> SeriesOf(const Results& results) {
  std::vector<std::size_t> series(results.arms.size(), 99);
  std::vector<bool> used(8, false);
  used[0] = used[4] = true;  // reserved: the reference, and the contrast's token ratio
  const std::pair<const char*, std::size_t> kOwn[] = {{"fp8", 1}, {"nvfp4", 2}, {"mxfp4", 3}};
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    if (results.arms[arm] == results.question.reference) series[arm] = 0;
    for (const auto& [name, own] : kOwn) {
      if (series[arm] == 99 && !used[own] && results.arms[arm].find(name) != std::string::npos) {
        series[arm] = own;
        used[own] = true;
      }
    }
  }
  for (std::size_t& s : series) {
    if (s != 99) continue;
    const auto free = std::find(used.begin(), used.end(), false);
    s = free == used.end() ? 5 : static_cast<std::size_t>(free - used.begin());
    used[s] = true;
  }
  return series;
}

const TokenRatio* ShownRatio(const Analysis& analysis, const ArmPair& pair, std::int64_t tokens) {
  const auto find = [&](Form form) {
    return analysis.FindRatio(pair.format, pair.reference, tokens, Precision::kTraining,
                              Estimator::kCrossing, form);
  };
  const TokenRatio* extend = find(Form::kExtend);
  const TokenRatio* shrink = find(Form::kShrink);
  return extend == nullptr || extend->identified || !shrink->identified ? extend : shrink;
}

double TokensOfReference(const TokenRatio& ratio, double value) {
  const auto tokens = static_cast<double>(ratio.tokens);
  return ratio.form == Form::kExtend ? tokens : tokens / value;
}

}  // namespace fp4lab::study
