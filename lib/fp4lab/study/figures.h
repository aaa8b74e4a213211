// The figures of a report, as SVG drawings.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/study/analysis.h"
#include "fp4lab/study/results_file.h"

namespace fp4lab::study {

struct Figure {
  std::string file;  // "loss.svg"
  std::string title;
  std::string caption;     // plain text: what is drawn and how to read it
  std::string standalone;  // a document for a file
  std::string embedded;    // the same for an HTML page
};

// Loss, gap, token ratio, SQNR per tensor and training curves; a figure without data is left out.
std::vector<Figure> DrawFigures(const Results& results, const Analysis& analysis);

Figure DrawLoss(const Results& results, const Analysis& analysis);
Figure DrawGap(const Results& results, const Analysis& analysis);
Figure DrawTokenRatio(const Results& results, const Analysis& analysis);
Figure DrawSqnr(const Results& results);
Figure DrawTraining(const Results& results);

// The colour and marker of each arm, in the order of Results::arms: 0 for the reference, and the
// same for a format in every study (fp8 1, nvfp4 2, mxfp4 3).
std::vector<std::size_t> SeriesOf(const Results& results);

// The ratio that figures and summary show at a budget: the crossing estimator's extend form, the
// shrink form where that is not identified, else the extend form with its bound.
const TokenRatio* ShownRatio(const Analysis& analysis, const ArmPair& pair, std::int64_t tokens);

}  // namespace fp4lab::study
