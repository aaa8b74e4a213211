// The values of RandomStream::tensor for each use, so that no two uses share random bits.
#pragma once

#include <cstdint>

namespace fp4lab {

// The operands of linears count from 0 in training (micro-batch by micro-batch) and from
// kEvaluationTensors in evaluation (batch by batch). `step` is the number of steps done.
inline constexpr std::uint32_t kEvaluationTensors = 0x80000000;
// Initial weights: step = the index of the parameter slice.
inline constexpr std::uint32_t kInitialWeights = 0xFFFFFFFF;
// Data order: step = the epoch.
inline constexpr std::uint32_t kWindowOrder = 0xFFFFFFFE;
inline constexpr std::uint32_t kWindowOffset = 0xFFFFFFFD;

}  // namespace fp4lab
