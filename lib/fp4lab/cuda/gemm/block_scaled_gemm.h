// Products of E2M1 matrices with block scales by fp4lab's own kernels: by the chip's matrix
// instruction, or by its arithmetic in software.
//
//   d(m, n) = alpha * acc
//   acc     = the chain of instructions of 64 elements over k, ascending, from +0 or from d(m, n)
//
// Each output is one chain, so no other order of summation occurs.
//
// An instruction is modelled by "blackwell.mxf4.f32" of tensor/tensor_core.h: exact sums of 16
// products, aligned to 35 bits below the largest, truncated once to binary32. The software forms
// compute this model by definition. The two instructions were compiled and their machine code
// inspected, but never run; `fp4lab crosscheck` on a Blackwell chip tells whether they agree with
// the model. cuda/README.md lists what was run on which chip.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/gemm/block_scaled_problem.h"

namespace fp4lab::cuda {

// Whether this build has machine code of the form for the current device.
bool HasMmaForm(MmaForm form);

// Computes problem.d, in order with the stream's other work, without waiting. Throws Error, one
// line, if the device does not have the form.
void BlockScaledGemm(const BlockScaledProblem& problem, MmaForm form,
                     StreamHandle stream = nullptr);

}  // namespace fp4lab::cuda
