// Which SIMD targets there are, and how to pin one from outside (FP4LAB_TARGET=avx2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// The Highway targets that this build holds and this CPU runs, best first, in lower case:
// "avx3_dl", "avx3", "avx2", "sse4", "ssse3", "sse2", "scalar" (or "emu128").
std::vector<std::string> SimdTargets();

// Those that this build holds, whatever the CPU runs.
std::vector<std::string> CompiledSimdTargets();

// The target that kernels use now.
std::string ActiveSimdTarget();

// Makes every kernel use `name` from now on; "best" goes back to the best. Throws Error for a name
// that SimdTargets() does not list. Process-wide: call it between runs, not during one.
void PinSimdTarget(std::string_view name);

// Applies the environment variable FP4LAB_TARGET if it is set. The program calls it once.
void PinSimdTargetFromEnvironment();

}  // namespace fp4lab
