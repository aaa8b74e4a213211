// The power of a test of stochastic rounding: the smallest errors that a number of draws shows.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace fp4lab {

// The smallest errors that the statistic `rates` refuses in at least 99 of 100 samples of this
// size; smaller errors may pass.
struct StochasticPower {
  // Every probability of rounding up is off by `bias` (clamped to 0..1); 1: not even that is seen.
  double bias = 1.0;
  // Only the `bits` highest random bits are drawn and the others are 0; 0: truncation, -1: not even
  // truncation is seen.
  int bits = -1;
};

// Draws by the number of fields that round up, out of 2^bits: draws[m] draws of probability
// m / 2^bits. draws[0] is ignored, because the element never rounds up.
using DrawsByCount = std::vector<double>;

// The power of two sums (the draws of even and of odd columns), each tested at p < `level`.
StochasticPower PowerOfRates(const std::array<DrawsByCount, 2>& draws, int bits, double level);

}  // namespace fp4lab
