// The launches of the kernels of block-scaled products; block_scaled_gemm.cc checks and chooses.
#pragma once

#include "fp4lab/cuda/block_scaled_gemm.h"

namespace fp4lab::cuda {

// Rows and columns of d that a thread block makes, elements of k that it loads at a time.
inline constexpr unsigned kGemmTile = 128, kGemmTileK = 128;

// Whether the driver chose machine code with the instruction in it for this device.
bool HasWarpGemm(MmaForm form);
// kSoftware or kMmaSync; m and n not 0.
void LaunchWarpGemm(const BlockScaledProblem& problem, MmaForm form, StreamHandle stream);

// The same for kTcgen05; k not 0 either.
bool HasTensorGemm();
void LaunchTensorGemm(const BlockScaledProblem& problem, StreamHandle stream);

}  // namespace fp4lab::cuda
