// Shared memory: addresses in it, and copies into it that go on while a thread works.
#pragma once

#include <cstdint>

namespace fp4lab::cuda {

// What instructions want for an address.
__device__ inline std::uint32_t SharedAddress(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// A number that is kept: the compiler would make it again at every use.
__device__ inline std::uint32_t Kept(std::uint32_t value) {
  std::uint32_t kept;
  asm volatile("mov.b32 %0, %1;" : "=r"(kept) : "r"(value));
  return kept;
}

// 16 bytes from global to shared memory, zeros where `valid` is false; part of the thread's next
// group.
__device__ inline void CopyChunk(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16u : 0u)
               : "memory");
}
// The copies since the last group are the next one.
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All of the thread's groups but the last kLeft have arrived.
template <int kLeft>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace fp4lab::cuda
