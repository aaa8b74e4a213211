// Launches of the kernels of block-scaled products; block_scaled_gemm.cc checks arguments and
// chooses.
#pragma once

#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/gemm/block_scaled_problem.h"

namespace fp4lab::cuda {

// kGemmTile: rows and columns of d for each thread block. kGemmTileK: elements of k that it loads
// at a time.
inline constexpr unsigned kGemmTile = 128, kGemmTileK = 128;

// For kMmaSync and kMmaSyncSoftware: whether the machine code that the driver chose for this device
// contains the form.
bool HasWarpGemm(MmaForm form);
// Needs m > 0 and n > 0.
void LaunchWarpGemm(const BlockScaledProblem& problem, MmaForm form, StreamHandle stream);

// The same for kTcgen05 and kTcgen05Software; the launch needs k > 0, too.
bool HasTensorGemm(MmaForm form);
void LaunchTensorGemm(const BlockScaledProblem& problem, MmaForm form, StreamHandle stream);

}  // namespace fp4lab::cuda
