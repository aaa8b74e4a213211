// What the figures of a report have in common.
#pragma once

#include <string>

#include "fp4lab/study/figures.h"
#include "fp4lab/study/plot.h"
#include "fp4lab/study/results_file.h"

namespace fp4lab::study {

// Title and, under it, the study and its size.
void DrawTitle(Svg* svg, const std::string& title, const Results& results);

// A legend under the title; returns the height at which the drawing may begin.
double DrawLegend(Svg* svg, double width, const std::vector<LegendEntry>& entries);
// The same height without drawing.
double LegendBottom(double width, const std::vector<LegendEntry>& entries);

// A logarithmic axis with a tick at each budget, and tokens per block parameter under it; `share`
// of the axis stays free at either end.
Axis BudgetAxis(const Results& results, double share);

inline Axis Labelled(Axis axis, std::string label) {
  axis.label = std::move(label);
  return axis;
}

inline Figure Finished(Figure figure, const Svg& svg) {
  figure.standalone = svg.Document(true);
  figure.embedded = svg.Document(false);
  return figure;
}

}  // namespace fp4lab::study
