// A fingerprint of the numerics of a training run. It is measured, so that no version number has to
// be maintained by hand.
#pragma once

#include <string>

#include "fp4lab/train/config.h"

namespace fp4lab::study {

// The SHA-256 of the weights, moments and losses of a short run: four steps of a small model with
// the configuration's recipe in all linears, on its device. Runs of two builds are comparable if
// their fingerprints are equal: a change of any quantizer, GEMM, transform, optimizer or order of
// data that the recipe uses changes the fingerprint. The fingerprint does not depend on the number
// of threads and the SIMD target. Kinds of GPUs may have equal fingerprints and still add larger
// products in different orders; RunRecord::processors names them. It takes some 50 ms on a CPU and
// is measured once for each recipe in a process. `local`: World::local, which chooses the GPU.
// Throws Error at `where` as MakeEngine does.
std::string NumericsFingerprint(const TrainConfig& config, const std::string& where, int local = 0);

}  // namespace fp4lab::study
