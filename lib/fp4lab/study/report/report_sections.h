// The sections of a report's page, as HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/overlay.h"
#include "fp4lab/study/report/study_report.h"

namespace fp4lab::study {

// "1.2M block parameters: bf16, nvfp4"
std::string ModelTitle(const Results& results);

// The figure with its caption; `study` begins the names of the files that the figure is saved as.
std::string FigureHtml(const Figure& figure, const std::string& study);

// How to read figures with the page's script; hidden without it.
std::string_view FigureHint();

// The findings of a study on each of its models.
std::string FindingsHtml(const std::vector<ModelReport>& models,
                         const std::vector<Overlay>& overlays);

// How the numbers are made, for any study.
std::string MethodHtml();

}  // namespace fp4lab::study
