// The SIMD targets of the kernels: listing them, and pinning one (FP4LAB_TARGET=avx2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// The Highway targets that this build holds and this CPU runs, best first, in lower case:
// "avx3_dl", "avx3", "avx2", "sse4", "ssse3", "sse2", "scalar" (or "emu128"); on Arm "neon",
// "scalar".
std::vector<std::string> SimdTargets();

// The targets that this build holds, whether or not this CPU runs them; best first.
std::vector<std::string> CompiledSimdTargets();

// The target that kernels use now.
std::string ActiveSimdTarget();

// Whether the active target has a fused multiply-add instruction. Without the instruction,
// fma-inl.h computes the same result in several steps, and training takes 7 (recipes of FP4) to 40
// times (bf16) as long.
bool HasFusedMultiplyAdd();

// Whether this is an Arm CPU with SDOT (FEAT_DotProd: Grace, Graviton 2 and newer, Apple). The FP4
// product takes SDOT there; its bits do not depend on it.
bool HasDotProduct();

// Whether this is an Arm CPU with SMMLA (FEAT_I8MM: Grace, Graviton 3 and newer, Apple M2), which
// the FP4 product takes before SDOT, for the same bits.
bool HasMatrixMultiply();

// Makes every kernel use the target `name` from now on; "best" selects the best target again.
// Throws Error for a name that SimdTargets() does not list. The setting is process-wide: call the
// function between runs, not during one.
void PinSimdTarget(std::string_view name);

// Applies the environment variable FP4LAB_TARGET if it is set. The program calls it once.
void PinSimdTargetFromEnvironment();

}  // namespace fp4lab
