// Counts the vector instructions that a piece of work executes, one instruction at a time: the
// processor traps after each one (the trap flag of x86-64), so that no performance counter is
// needed, which a virtual machine may hide. Work that executes them cannot take less time than as
// many of the cheapest vector instructions.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

namespace fp4lab::measure {

// Instructions that compute on vector registers, by the width of their registers. Moves, loads,
// stores and instructions on mask registers are not among them: they may need no arithmetic unit.
struct VectorInstructions {
  double wide = 0;    // 64 bytes
  double narrow = 0;  // 16 or 32 bytes; of AVX and later, not of SSE
};

// The width in bytes of the vector instruction of x86-64 that begins at `code` (at least 16 bytes
// are readable): 64, 32 or 16; 0 if it is no vector instruction, or one that is not counted.
int VectorInstructionBytes(const unsigned char* code);

// Runs `work` once on this thread and counts what this thread executes, at about a microsecond an
// instruction. nullopt where instructions cannot be counted: not on x86-64 Linux, or no trap came.
// `work` may throw; it must not wait for another thread that waits for this one's signals.
std::optional<VectorInstructions> CountVectorInstructions(const std::function<void()>& work);

// Executes as many additions and exclusive ors of integers, independent of one another, on
// registers of 64 and of 32 bytes: each arithmetic unit can run them, so that no kernel runs its
// vector instructions in less time.
void SpendVectorInstructions(const VectorInstructions& count);

}  // namespace fp4lab::measure
