// The numerics of a training run as a number that is measured, so that nobody has to maintain it.
#pragma once

#include <string>

#include "fp4lab/train/config.h"

namespace fp4lab::study {

// SHA-256 of weights, moments and losses that a short run leaves: four steps of a small model with
// the configuration's recipe in all linears, on its device. Runs of two builds, or on two chips,
// can be compared where their fingerprints are equal; a change of any quantizer, GEMM, transform,
// optimizer or order of data that the recipe uses changes it. Equal for any number of threads and
// on every SIMD target. Some 50 ms on a CPU; made once for a recipe. Error, as MakeEngine, at
// `where`.
std::string NumericsFingerprint(const TrainConfig& config, const std::string& where);

}  // namespace fp4lab::study
