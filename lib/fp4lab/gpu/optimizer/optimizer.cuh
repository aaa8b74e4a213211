// train/optimizer on the device: the same table, by the same names.
#pragma once

#include <cstddef>
#include <memory>
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

// An optimizer of one run, with the memory that it needs for the moment.
class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;
  // Updates the parameters and states of one group, or of a process's share of it.
  virtual void Update(const UpdateStep& step, const ParameterGroup& group,
                      const DeviceOptimizerNumbers& numbers) = 0;
};

struct DeviceOptimizerRow {
  std::string_view name;  // of the row in train/optimizer
  // `groups`: all groups that Update will see.
  std::unique_ptr<DeviceOptimizer> (*make)(const OptimizerConfig& config,
                                           std::span<const ParameterGroup> groups,
                                           cudaStream_t stream) = nullptr;
};

}  // namespace fp4lab::gpu
