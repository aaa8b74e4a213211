// The checkpoint file of an interrupted run of a study.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/study/run/run_plan.h"
#include "fp4lab/study/run/run_record.h"

namespace fp4lab::study {

struct Checkpoint {
  RunRecord record;
  Branch branch;                       // the branch being trained; total_steps 0: on the trunk
  std::vector<std::byte> state;        // the trainer's state at the current step
  std::vector<std::byte> trunk_state;  // its state where `branch` left the trunk, or empty
};

// The bytes of a checkpoint: "fp4lab.run/1\n", then three parts, each as a length (8 bytes, low
// byte first) and its bytes (JSON of record and branch, state, trunk_state), then the SHA-256 of
// all bytes before it, as 64 hex digits.
std::vector<std::byte> PackCheckpoint(const Checkpoint& checkpoint);
// Throws Error, with `where` as the place, for bytes that are cut short, damaged or no checkpoint.
Checkpoint UnpackCheckpoint(std::span<const std::byte> bytes, const std::string& where);

}  // namespace fp4lab::study
