// Whether the figures of a page show anything of a reader's own curves.
#pragma once

#include <span>
#include <vector>

#include "fp4lab/study/report/figures/overlay.h"
#include "fp4lab/study/report/study_report.h"

namespace fp4lab::study {

// Throws Error if no run of the studies has a training curve, and for an overlay of which no figure
// would show a point, with the range of tokens that they show. Nothing without overlays.
void CheckOverlays(const std::vector<Overlay>& overlays, std::span<const StudyReport> studies);

}  // namespace fp4lab::study
