#pragma once

#include <cstddef>

#include "fp4lab/gpu/optimizer/optimizer.cuh"
#include "fp4lab/nn/optimizer/optimizer.h"

namespace fp4lab::gpu {

// AdamW (nn/optimizer/optimizer.h) in device memory, exact.
void AdamWStep(const AdamW& options, std::size_t size, const float* gradient, float* weight,
               float* m, float* v, cudaStream_t stream);
// AdamW of one group of parameters, with the group's rate and decay.
void AdamWUpdate(const OptimizerConfig& config, const UpdateStep& step, const ParameterGroup& group,
                 const DeviceOptimizerNumbers& numbers, cudaStream_t stream);

}  // namespace fp4lab::gpu
