// Parts that the figures of a report share: titles, legends, axes, colours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/report/figures/plot.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

struct Figure {
  std::string file;  // "loss.svg"
  std::string title;
  std::string caption;     // plain text: what is drawn and how to read it
  std::string standalone;  // the SVG document for a file
  std::string embedded;    // the same drawing for an HTML page
};

// Draws the title and, below it, the name of the study, its model size, corpus and seeds.
void DrawTitle(Svg* svg, const std::string& title, const Results& results);

// Draws a legend below the title. Returns the y in px at which the panels may begin.
double DrawLegend(Svg* svg, double width, const std::vector<LegendEntry>& entries);
// The y that DrawLegend returns, without drawing.
double LegendBottom(double width, const std::vector<LegendEntry>& entries);

// The px that names at the ends of lines take on the right of a panel, in bold fonts wider than
// Helvetica, too.
double RoomForNames(const std::vector<std::string>& names);

// A logarithmic axis with a tick at each budget, and tokens per block parameter under it; `share`
// of the axis stays free before the first budget and behind `last` tokens, the last budget or less.
Axis BudgetAxis(const Results& results, double share, double last);
inline Axis BudgetAxis(const Results& results, double share) {
  return BudgetAxis(results, share, static_cast<double>(results.budgets.back()));
}

// " at 1024000 tokens (D/N 5.2)", for the titles of marks.
std::string AtTokens(const Results& results, std::int64_t tokens);
// "nvfp4, seed 2".
std::string ArmAndSeed(const std::string& arm, std::uint64_t seed);

inline Axis Labelled(Axis axis, std::string label) {
  axis.label = std::move(label);
  return axis;
}

inline Figure Finished(Figure figure, const Svg& svg) {
  figure.standalone = svg.Document(true);
  figure.embedded = svg.Document(false);
  return figure;
}

// The colour and marker of each arm, in the order of Results::arms: 0 for the reference; a format
// has the same series in every study (arms with fp8, nvfp4 or mxfp4 in their names: 1, 2, 3).
std::vector<std::size_t> SeriesOf(const Results& results);

// The ratio that figures and summary show at a budget, by the crossing estimator: the extend form;
// if that is not identified, the shrink form; if neither is, the extend form with its bound.
// nullptr if the analysis has no ratio of the pair at that budget.
const TokenRatio* ShownRatio(const Analysis& analysis, const ArmPair& pair, std::int64_t tokens);

// The tokens of the second format of a pair at the loss of a ratio that has this value: in extend
// form the ratio's budget; in shrink form, where the budget is the first format's, that over the
// value. So both forms are points of one curve.
double TokensOfReference(const TokenRatio& ratio, double value);

}  // namespace fp4lab::study
