// The table of optimizers that the GPU has.
#pragma once

#include <string>

#include "fp4lab/gpu/optimizer/optimizer.cuh"

namespace fp4lab::gpu {

// Throws Error at `where` for an optimizer that the GPU lacks.
const DeviceOptimizerRow& DeviceOptimizerOf(const OptimizerConfig& config,
                                            const std::string& where);

}  // namespace fp4lab::gpu
