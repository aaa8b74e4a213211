// The figures of a report, as SVG drawings.
#pragma once

#include <cstddef>
#include <vector>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/overlay.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// Loss, gap, token ratio, the diagnostics that have a figure, the diagnostics over the course
// of training, and training curves; a figure without
// data is left out. `overlays` are laid over the training curves.
std::vector<Figure> DrawFigures(const Results& results, const Analysis& analysis,
                                const std::vector<Overlay>& overlays = {});

Figure DrawLoss(const Results& results, const Analysis& analysis);
Figure DrawGap(const Results& results, const Analysis& analysis);
Figure DrawTokenRatio(const Results& results, const Analysis& analysis);
Figure DrawOperands(const Results& results, const Diagnostic& diagnostic);
// The diagnostics over the course of training: a panel each, for studies with observations.
Figure DrawCourse(const Results& results);
// The training tokens of the last point of the training curves; 0 without curves.
double LastCurveTokens(const Results& results);
// The number of points of an overlay that DrawTraining draws.
std::size_t DrawnPoints(const Results& results, const Overlay& overlay);
// Overlays are drawn as given, from a twentieth of the trunk to its end, where the curves of the
// study are shown.
Figure DrawTraining(const Results& results, const std::vector<Overlay>& overlays = {});

}  // namespace fp4lab::study
