// Losses and gaps as laws over sizes and tokens. N: block parameters, D: bytes of text.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace fp4lab::study {

// gap = c N^-a (D/N)^b.
struct GapLaw {
  double ln_c = 0, a = 0, b = 0;
  double At(double parameters, double bytes_each) const;
};

// A mean gap of one size at one budget.
struct GapPoint {
  double parameters = 0, bytes_each = 0, gap = 0;
};

// Least squares on ln gap. nullopt if a gap is not above 0, for which there is no logarithm. Throws
// Error for fewer than three points, or points of a single size.
std::optional<GapLaw> FitGapLaw(std::span<const GapPoint> points);

// The reference's loss, E + A N^-alpha + B D^-beta, N and D in millions (Hoffmann et al., arXiv
// 2203.15556).
struct LossLaw {
  double e = 0, ln_a = 0, alpha = 0, ln_b = 0, beta = 0;
  double At(double parameters, double bytes) const;
};

struct LossPoint {
  double parameters = 0, bytes = 0, loss = 0;
};

// Least squares on ln loss, by Levenberg's and Marquardt's method from E = 0.8, ln A = -1 and
// exponents of 0.5. Throws Error for fewer than five points.
LossLaw FitLossLaw(std::span<const LossPoint> points);

// ln of the tokens with which the second format reaches the loss of the first one at `bytes_each`
// bytes per parameter, over the first one's. `effects` multiply the gaps of the formats. nullopt
// where it does not reach that loss with 20 times as many tokens.
std::optional<double> LogRatioOfLaws(const LossLaw& loss, const std::array<GapLaw, 2>& gaps,
                                     double parameters, double bytes_each,
                                     const std::array<double, 2>& effects = {1.0, 1.0});

}  // namespace fp4lab::study
