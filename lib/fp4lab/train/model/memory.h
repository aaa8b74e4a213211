// The memory that a run needs, estimated before the run allocates any.
#pragma once

#include <string>

#include "fp4lab/train/config.h"
#include "fp4lab/train/world.h"

namespace fp4lab {

// Bytes on the CPU. The type is double because a configuration may ask for sizes that no integer
// holds.
struct MemoryNeed {
  double weights = 0.0;      // parameters, gradients, states of the optimizer
  double operands = 0.0;     // weights as operands of GEMMs
  double activations = 0.0;  // of one micro-batch, and the tokens of a step
  double teacher = 0.0;      // start/teacher.h
  double observation = 0.0;  // the model that "diagnostics" observe (observe/observe.h)
  double state = 0.0;        // of a copy of the run's state, which is not part of Total

  double Total() const { return weights + operands + activations + teacher + observation; }
};
// Reads the header of a teacher's checkpoint; throws Error at "config" if there is none.
MemoryNeed EstimateMemory(const TrainConfig& config);

// Throws Error, at the member of `config` to make smaller, if `runs` such runs at a time need more
// than AvailableMemory(). `states`: how many copies of a checkpoint each run also holds at once.
// Does not check a GPU's memory, which the GPU's engine does.
void CheckMemory(const TrainConfig& config, const std::string& where, int runs = 1,
                 double states = 0.0);

// Why `on_host` processes of this run, of those of `world`, need more than SharedMemory(); "" if
// they do not. None of them may have allocated its memory.
std::string WhyNoMemory(const TrainConfig& config, const World& world, int on_host);

}  // namespace fp4lab
