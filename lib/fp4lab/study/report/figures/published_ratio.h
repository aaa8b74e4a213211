// The published token ratio that a figure may set beside its own.
#pragma once

#include <string>

#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// arXiv 2509.25149, figure 6b: an 8B model needed 1.36T tokens in MXFP4 to end where NVFP4 ended
// after 1T; one run each.
inline constexpr double kPublishedRatio = 1.36;

// Whether the pair is of the kind of the published one: every product of the first arm multiplies
// MXFP4 (E2M1 under E8M0 scales of 32 elements), every product of the second NVFP4 (E2M1 under E4M3
// scales of 16).
bool ComparesMxfp4WithNvfp4(const Results& results, const std::string& format,
                            const std::string& reference);

}  // namespace fp4lab::study
