// The table of parts that the GPU has.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fp4lab/gpu/parts/device_part.cuh"

namespace fp4lab::gpu {

// Throws Error at `where` for a part that the GPU lacks.
const DevicePartRow& DevicePartNamed(std::string_view name, const std::string& where);

template <class T>
std::unique_ptr<DevicePart<T>> MakeDevicePart(std::string_view name, const ModelConfig& config,
                                              bool tensor_cores, cudaStream_t stream) {
  const DevicePartRow& row = DevicePartNamed(name, "model/parts");
  if constexpr (std::is_same_v<T, float>) {
    return row.make_float(config, stream);
  } else {
    return row.make_bf16(config, tensor_cores, stream);
  }
}

}  // namespace fp4lab::gpu
