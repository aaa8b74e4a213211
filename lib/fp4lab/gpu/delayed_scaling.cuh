// nn/delayed_scaling.h on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/gpu/memory.cuh"
#include "fp4lab/nn/delayed_scaling.h"

namespace fp4lab::gpu {

// *amax, float bits: this use's, which becomes part of `history` where `records`; then the amax
// that the operand is quantized with.
void TakeDelayedAmax(float* history, bool records, std::uint32_t* amax, cudaStream_t stream);

// AdvanceAmaxHistory of every operand: scalings[i] (device memory) with numbers + i * stride.
void AdvanceAmaxHistories(const DelayedScaling* scalings, std::size_t operands, float* numbers,
                          std::size_t stride, cudaStream_t stream);

}  // namespace fp4lab::gpu
