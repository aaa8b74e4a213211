// The launches of the kernels of block-scaled products; block_scaled_gemm.cc checks and chooses.
#pragma once

#include "fp4lab/cuda/block_scaled_gemm.h"

namespace fp4lab::cuda {

// Rows and columns of d that a thread block makes, elements of k that it loads at a time.
inline constexpr unsigned kGemmTile = 128, kGemmTileK = 128;

// kMmaSync and kMmaSyncSoftware: whether the driver chose machine code with the instruction in it
// for this device.
bool HasWarpGemm(MmaForm form);
// m and n not 0.
void LaunchWarpGemm(const BlockScaledProblem& problem, MmaForm form, StreamHandle stream);

// kTcgen05 and kTcgen05Software; k not 0 either.
bool HasTensorGemm(MmaForm form);
void LaunchTensorGemm(const BlockScaledProblem& problem, MmaForm form, StreamHandle stream);

}  // namespace fp4lab::cuda
