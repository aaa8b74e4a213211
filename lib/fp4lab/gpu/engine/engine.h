// The CUDA engine (train/engine.h), with a choice of attention's precision for tests.
#pragma once

#include <memory>
#include <string>

#include "fp4lab/train/engine.h"

namespace fp4lab::gpu {

enum class AttentionPrecision {
  kTensorCore,  // BF16 products on tensor cores, where the recipe rounds operands to BF16
  kFloat        // binary32 throughout, as on the CPU; slow
};

// fp4lab::MakeCudaEngine calls this function with kTensorCore. Models whose head size is not one of
// the tensor-core kernels' (16, 32, 64, 128) compute with kFloat.
std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& config, const std::string& where,
                                       const World& world, AttentionPrecision attention);

}  // namespace fp4lab::gpu
