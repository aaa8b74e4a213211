// The token ratios of a loss cube by all three estimators: one statement for the data and for each
// of their bootstrap resamples.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/study/analysis.h"
#include "fp4lab/study/loss_cube.h"
#include "fp4lab/study/token_gap.h"

namespace fp4lab::study {

// Which ratio, by indices into the cube.
struct RatioKey {
  std::size_t format = 0, reference = 0, budget = 0;
  Estimator estimator = Estimator::kCrossing;
  Form form = Form::kExtend;
};

// The fits that the ratios of a cube share.
struct CubeFits {
  std::size_t baseline = 0;             // the arm of the shared baseline
  std::vector<std::size_t> formats;     // the arms of both fits
  std::vector<PowerLawFit> power_laws;  // a seed each; empty: not asked for
  std::optional<SharedBaseline> shared;
};

// `arms` are the arms that take part, the baseline among them.
CubeFits FitCube(const LossCube& cube, std::size_t baseline, const std::vector<std::size_t>& arms,
                 bool with_power_laws);

std::vector<LogRatio> RatiosPerSeed(const LossCube& cube, const CubeFits& fits,
                                    const RatioKey& key);

// The mean of ln r over seeds; +-infinity where a seed lies out of reach, NaN where one is
// undefined. Seeds that were not run are left out by `present`.
double MeanLogRatio(const std::vector<LogRatio>& ratios, const std::vector<bool>& present);

}  // namespace fp4lab::study
