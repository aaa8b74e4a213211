// Shared memory: its size, its addresses for instructions, and asynchronous copies into it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/cuda/device/check.cuh"

namespace fp4lab::cuda {

// The bytes of shared memory that a thread block of the current device can have.
inline std::size_t MostSharedMemory() {
  int device = 0, bytes = 0;
  Check(cudaGetDevice(&device), "device");
  Check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device");
  return static_cast<std::size_t>(bytes);
}

// The 32-bit address that PTX instructions take for shared memory.
__device__ inline std::uint32_t SharedAddress(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// Keeps a number in a register; the compiler would compute it again at every use.
__device__ inline std::uint32_t Kept(std::uint32_t value) {
  std::uint32_t kept;
  asm volatile("mov.b32 %0, %1;" : "=r"(kept) : "r"(value));
  return kept;
}

// Copies 16 bytes from global to shared memory asynchronously, or writes zeros if `valid` is false.
// The copy belongs to the thread's next group.
__device__ inline void CopyChunk(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16u : 0u)
               : "memory");
}
// The same for one binary32 number.
__device__ inline void CopyFloat(float* shared, const float* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 4u : 0u)
               : "memory");
}
// Makes the thread's copies since its last group the next group.
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups of the thread but the last kLeft have arrived.
template <int kLeft>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace fp4lab::cuda
