// How much memory a run takes, known before it takes any.
#pragma once

#include <string>

#include "fp4lab/train/config.h"

namespace fp4lab {

// Bytes on the CPU; doubles, as sizes may be asked for that no integer holds.
struct MemoryNeed {
  double weights = 0.0;      // parameters, gradients, both moments
  double operands = 0.0;     // weights as the GEMMs take them
  double activations = 0.0;  // of one micro-batch, and the tokens of a step

  double Total() const { return weights + operands + activations; }
};
MemoryNeed EstimateMemory(const TrainConfig& config);

// Error, at the member of `config` to make smaller, where `runs` such runs at a time need more than
// AvailableMemory(). `states` is how many copies of a checkpoint each of them also holds at once.
// Nothing is said of a GPU's memory: its engine does.
void CheckMemory(const TrainConfig& config, const std::string& where, int runs = 1,
                 double states = 0.0);

}  // namespace fp4lab
