// Yardsticks: the peak rates of this machine, measured beside the work that is compared with them.
#pragma once

#include <cstddef>
#include <span>

namespace fp4lab::measure {

// Does nothing but independent FP32 fused multiply-adds (2 FLOP each) on the active SIMD target,
// `flop` FLOP in all, on Threads() threads: what a product of that many FLOP must do at least.
void SpendFlop(double flop);

// Runs for `cycles` cycles of the core's clock: a chain of 64-bit multiplications, each of which
// waits for the one before. A multiplication's latency is 3 cycles on Intel cores since Nehalem and
// on AMD cores since Zen (instruction tables of agner.org and uops.info). The time of the chain
// thus gives the length of a cycle without a cycle counter, which a virtual machine may hide.
void SpendCycles(std::size_t cycles);

// Memory bandwidth probes: CopyBytes copies with memcpy, WriteBytes writes with memset, both on
// Threads() threads in pieces of 1 MiB.
void CopyBytes(std::span<const std::byte> from, std::span<std::byte> to);
void WriteBytes(std::span<std::byte> to);

// Reads all of `from` and writes all of `to`, which may be of another size, on Threads() threads:
// what any kernel from the one to the other must do at least.
void MoveBytes(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace fp4lab::measure
