// The rotary angles of an attention part, on the device.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/nn/attention/rope.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab::gpu {

class DeviceRope {
 public:
  // Angles of all positions for heads of which `columns` columns are rotated.
  DeviceRope(const ModelConfig& config, std::size_t columns, cudaStream_t stream)
      : config_(config) {
    const RopeTable rope =
        MakeRopeTable(static_cast<std::size_t>(config.sequence), columns, config.rope_theta);
    cos_ = DeviceArray<float>(rope.cos.values.size());
    sin_ = DeviceArray<float>(rope.sin.values.size());
    cos_.CopyFrom(rope.cos.values, stream);
    sin_.CopyFrom(rope.sin.values, stream);
    Check(cudaStreamSynchronize(stream), "making the model");
  }

  struct Angles {
    const float *cos = nullptr, *sin = nullptr;  // null: no rotary positions
  };
  Angles Of(std::size_t block) const {
    if (HasNoRope(config_, static_cast<int>(block))) return {};
    return {cos_.data(), sin_.data()};
  }

 private:
  ModelConfig config_;
  DeviceArray<float> cos_, sin_;
};

}  // namespace fp4lab::gpu
