// The GPU's engine (train/engine.h), with a choice that tests make.
#pragma once

#include <memory>
#include <string>

#include "fp4lab/train/engine.h"

namespace fp4lab::gpu {

enum class AttentionPrecision {
  kTensorCore,  // BF16 products on tensor cores, where the recipe rounds operands to BF16
  kFloat        // binary32 throughout, slow: as the CPU
};

// MakeCudaEngine is this with kTensorCore. A head size that the tensor-core kernels do not take
// (16, 32, 64, 128) computes with kFloat.
std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& config, const std::string& where,
                                       const World& world, AttentionPrecision attention);

}  // namespace fp4lab::gpu
