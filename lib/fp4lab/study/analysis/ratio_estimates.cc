#include "fp4lab/study/analysis/ratio_estimates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {
namespace {

// The place of `arm` in `arms`; arms.size() if it is not there.
std::size_t PlaceOf(const std::vector<std::size_t>& arms, std::size_t arm) {
  return static_cast<std::size_t>(std::find(arms.begin(), arms.end(), arm) - arms.begin());
}

LogRatio FromPowerLaw(const LossCube& cube, const CubeFits& fits, std::size_t seed,
                      const RatioKey& key) {
  if (seed >= fits.power_laws.size() || !fits.power_laws[seed].law) return {};
  const std::size_t f = PlaceOf(fits.formats, key.format);
  const std::size_t r = PlaceOf(fits.formats, key.reference);
  if (f == fits.formats.size() || r == fits.formats.size()) return {};
  return PowerLawRatio(*fits.power_laws[seed].law, f, r, cube.Curve(seed, key.format), key.budget,
                       key.form);
}

LogRatio FromSharedBaseline(const LossCube& cube, const CubeFits& fits, std::size_t seed,
                            const RatioKey& key) {
  if (!fits.shared) return {};
  const auto gap = [&](std::size_t arm) {
    if (arm == fits.baseline) return 0.0;
    const std::size_t place = PlaceOf(fits.formats, arm);
    return place == fits.formats.size() ? NAN : fits.shared->gaps[seed][place];
  };
  const double format_gap = gap(key.format), reference_gap = gap(key.reference);
  if (!std::isfinite(format_gap) || !std::isfinite(reference_gap)) return {};
  return SharedBaselineRatio(cube.Curve(seed, fits.baseline), fits.shared->gamma, format_gap,
                             reference_gap, key.budget, key.form);
}

}  // namespace

CubeFits FitCube(const LossCube& cube, std::size_t baseline, const std::vector<std::size_t>& arms,
                 bool with_power_laws) {
  const IeeeArithmetic ieee;
  CubeFits fits{baseline, arms, {}, {}};
  std::vector<LossCurve> baselines;
  std::vector<std::vector<LossCurve>> formats;
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    baselines.push_back(cube.Curve(s, baseline));
    formats.emplace_back();
    for (const std::size_t arm : arms) formats.back().push_back(cube.Curve(s, arm));
    if (with_power_laws) fits.power_laws.push_back(FitPowerLaw(formats.back()));
    // The fit must not use the baseline's gap to itself; it skips a curve of NaN.
    const std::size_t own = PlaceOf(arms, baseline);
    if (own < arms.size()) formats.back()[own].losses.assign(cube.Budgets(), NAN);
  }
  fits.shared = FitSharedBaseline(baselines, formats);
  return fits;
}

std::vector<LogRatio> RatiosPerSeed(const LossCube& cube, const CubeFits& fits,
                                    const RatioKey& key) {
  const IeeeArithmetic ieee;
  std::vector<LogRatio> ratios;
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    switch (key.estimator) {
      case Estimator::kCrossing:
        ratios.push_back(CrossingRatio(cube.Curve(s, key.format), cube.Curve(s, key.reference),
                                       key.budget, key.form));
        break;
      case Estimator::kPowerLaw:
        ratios.push_back(FromPowerLaw(cube, fits, s, key));
        break;
      case Estimator::kSharedBaseline:
        ratios.push_back(FromSharedBaseline(cube, fits, s, key));
        break;
    }
  }
  return ratios;
}

double MeanLogRatio(const std::vector<LogRatio>& ratios, const std::vector<bool>& present) {
  const IeeeArithmetic ieee;
  double sum = 0, count = 0;
  for (std::size_t s = 0; s < ratios.size(); ++s) {
    if (!present[s]) continue;
    ++count;
    switch (ratios[s].status) {
      case LogRatio::Status::kIdentified:
        sum += ratios[s].value;
        break;
      case LogRatio::Status::kAbove:
        sum += INFINITY;
        break;
      case LogRatio::Status::kBelow:
        sum -= INFINITY;
        break;
      case LogRatio::Status::kUndefined:
        return NAN;
    }
  }
  return count > 0 ? sum / count : NAN;
}

}  // namespace fp4lab::study
