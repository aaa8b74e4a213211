// The token ratios of a loss cube by all three estimators, for the measured cube and for its
// bootstrap resamples alike.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/numbers/token_gap.h"
#include "fp4lab/study/results/loss_cube.h"

namespace fp4lab::study {

// One token ratio; arms and budget are indices into the cube.
struct RatioKey {
  std::size_t format = 0, reference = 0, budget = 0;
  Estimator estimator = Estimator::kCrossing;
  Form form = Form::kExtend;
};

// The fits that the ratios of a cube share.
struct CubeFits {
  std::size_t baseline = 0;             // the arm of the shared baseline
  std::vector<std::size_t> formats;     // the arms of both fits
  std::vector<PowerLawFit> power_laws;  // one a seed; empty: not requested
  std::optional<SharedBaseline> shared;
};

// Fits the shared baseline to all seeds and, if requested, one power law to each seed. `arms` are
// the arms of both fits, `baseline` among them.
CubeFits FitCube(const LossCube& cube, std::size_t baseline, const std::vector<std::size_t>& arms,
                 bool with_power_laws);

// The ratio of `key` for every seed of the cube.
std::vector<LogRatio> RatiosPerSeed(const LossCube& cube, const CubeFits& fits,
                                    const RatioKey& key);

// The mean of ln r over the seeds in `present`, which were run: +infinity or -infinity where seeds
// lie out of reach on one side, NaN where they do on both sides, where a seed's ratio is undefined,
// and without seeds.
double MeanLogRatio(const std::vector<LogRatio>& ratios, const std::vector<bool>& present);

}  // namespace fp4lab::study
