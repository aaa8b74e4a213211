// Token ratios from annealed losses: how many times the tokens of a reference a format needs to
// reach the reference's loss. The three estimators are pure functions of the curves of one study.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/study/numbers/loss_curve.h"

namespace fp4lab::study {

// The two token ratios of a format f against a reference R at a budget D*. Above 1: f needs more.
enum class Form {
  kExtend,  // r  = D_f / D*, where L_f(D_f) = L_R(D*): f trains on to R's loss
  kShrink,  // r' = D* / D_R, where L_R(D_R) = L_f(D*): R stops early, at f's loss
};
inline constexpr Form kForms[] = {Form::kExtend, Form::kShrink};

// ln of a token ratio of one seed.
struct LogRatio {
  enum class Status {
    kIdentified,  // `value` is the ratio
    kAbove,       // the ratio lies above `value`, out of the reach of the budgets that were run
    kBelow,       // the ratio lies below `value`, likewise
    kUndefined,   // a run is missing or diverged, or a curve has too few points
  };
  Status status = Status::kUndefined;
  double value = 0;
  bool extrapolated = false;  // identified, but beyond the smallest or largest budget
};

// Estimator 1, "crossing" (the headline): both curves are SmoothCurves. On a doubling grid its bias
// on power laws is below 0.1 percent, where a chord in ln D, which lies above a convex curve, makes
// r 1 to 5 percent too large and r' too small by as much.
LogRatio CrossingRatio(const LossCurve& format, const LossCurve& reference, std::size_t budget,
                       Form form);

// Estimator 2, "power_law": L_f(D) = E_f + B_f (D / D_1)^-beta with one beta for all formats of a
// seed, where D_1 is the smallest budget. Huber loss; E_f and B_f by weighted least squares at each
// trial beta. With few points E_f and B_f trade against each other: never quote E_f alone.
struct PowerLaw {
  double beta = 0;
  std::vector<double> floors, scales;  // E_f and B_f, in the order of the curves
  double log_origin = 0;               // ln D_1
  double rms = 0;                      // root mean square of the residuals, nats

  double At(std::size_t curve, double log_tokens) const;
};
struct PowerLawFit {
  std::optional<PowerLaw> law;
  std::string reason;  // why there is no law
};
inline constexpr std::size_t kPowerLawBudgets = 4;  // least number of budgets of a fit
inline constexpr double kPowerLawSpan = 8;          // least ratio of largest to smallest budget
inline constexpr double kPowerLawReach = 2;         // extrapolation: a factor beyond the budgets
PowerLawFit FitPowerLaw(std::span<const LossCurve> curves);
// `format` and `reference` are indices of the fitted curves; `grid` is any curve with their
// budgets.
LogRatio PowerLawRatio(const PowerLaw& law, std::size_t format, std::size_t reference,
                       const LossCurve& grid, std::size_t budget, Form form);

// Estimator 3, "shared_baseline": L_f(D) = L_ref(D) + a_f (D / D_1)^gamma with gamma shared by all
// formats and seeds, L_ref the SmoothCurve of the reference arm. This
// estimator is the best conditioned of the three and extrapolates as far as estimator 1.
struct SharedBaseline {
  double gamma = 0;
  std::vector<std::vector<double>> gaps;  // a_f: [seed][format]
  double rms = 0;
};
// baselines[seed], formats[seed][format]. nullopt with fewer than 2 budgets, and where no format
// has a complete curve beside a complete baseline.
std::optional<SharedBaseline> FitSharedBaseline(std::span<const LossCurve> baselines,
                                                std::span<const std::vector<LossCurve>> formats);
// `format_gap` and `reference_gap` are a_f and a_R of the seed (0 for the baseline arm itself).
LogRatio SharedBaselineRatio(const LossCurve& baseline, double gamma, double format_gap,
                             double reference_gap, std::size_t budget, Form form);

}  // namespace fp4lab::study
