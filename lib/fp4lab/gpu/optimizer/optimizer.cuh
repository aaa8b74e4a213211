// train/optimizer on the device: the same table, by the same names.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/train/optimizer/optimizer.h"

namespace fp4lab::gpu {

// OptimizerNumbers in device memory.
struct DeviceOptimizerNumbers {
  const float* gradients = nullptr;
  float* parameters = nullptr;
  std::span<const DeviceArray<float>> states;
};

struct DeviceOptimizer {
  std::string_view name;  // of the row in train/optimizer, whose bits it gives
  void (*update)(const OptimizerConfig& config, const UpdateStep& step, const ParameterGroup& group,
                 const DeviceOptimizerNumbers& numbers, cudaStream_t stream) = nullptr;
};

}  // namespace fp4lab::gpu
