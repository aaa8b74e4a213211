// The nudge of a null arm: TrainConfig::nudge_ulps.
#pragma once

#include <span>

namespace fp4lab {

struct ParameterLayout;

// Moves the first gain of the parameters (layout.total) upwards by so many ulps of FP32.
void NudgeFirstGain(const ParameterLayout& layout, int ulps, std::span<float> parameters);

}  // namespace fp4lab
