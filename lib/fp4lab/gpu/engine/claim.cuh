// The choice of the GPU that an engine uses.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/train/world.h"

namespace fp4lab::gpu {

// Indices of the GPUs that the kernels can run on (compute capability 9.0 or later). If there are
// none, *why says the reason.
std::vector<int> Gpus(std::string* why);

// A claim to a GPU: the one with the fewest engines of this process or, in one of several processes
// of a host, the one with the number world.local (modulo the number of GPUs).
class GpuClaim {
 public:
  // Throws Error at `where` if there is no GPU.
  GpuClaim(const std::string& where, const World& world);
  ~GpuClaim();
  GpuClaim(const GpuClaim&) = delete;
  GpuClaim& operator=(const GpuClaim&) = delete;

  // "NVIDIA H200"; makes the GPU current, too.
  std::string Name() const;
  // Makes the GPU current for the calling thread; CUDA has a current GPU for each thread.
  void Use() const { Check(cudaSetDevice(device_), "using the GPU"); }

 private:
  int device_ = 0;
};

}  // namespace fp4lab::gpu
