// nn/delayed_scaling.h on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/nn/delayed_scaling.h"

namespace fp4lab::gpu {

// On entry *amax holds the amax of this use's tensor as float bits; `history` (device memory) takes
// that amax in if `records`. On return *amax holds the amax to quantize the operand with.
void TakeDelayedAmax(float* history, bool records, std::uint32_t* amax, cudaStream_t stream);

// AdvanceAmaxHistory for every operand i, with scalings[i] and numbers + i * stride, both in device
// memory.
void AdvanceAmaxHistories(const DelayedScaling* scalings, std::size_t operands, float* numbers,
                          std::size_t stride, cudaStream_t stream);

}  // namespace fp4lab::gpu
