// The bytes of an interrupted run.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/study/run_plan.h"
#include "fp4lab/study/run_record.h"

namespace fp4lab::study {

struct Checkpoint {
  RunRecord record;
  Branch branch;                       // total_steps 0: on the trunk
  std::vector<std::byte> state;        // the trainer's, where the run stands
  std::vector<std::byte> trunk_state;  // the trainer's, where `branch` left the trunk; else empty
};

// "fp4lab.run/1\n", then three parts, each as a length (8 bytes, low byte first) and its bytes:
// JSON of record and branch, state, trunk_state; then the SHA-256 of all that, as 64 hex digits.
std::vector<std::byte> PackCheckpoint(const Checkpoint& checkpoint);
// Throws Error for bytes that are cut short, damaged or no checkpoint.
Checkpoint UnpackCheckpoint(std::span<const std::byte> bytes, const std::string& where);

}  // namespace fp4lab::study
