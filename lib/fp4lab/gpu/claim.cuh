// Which GPU an engine uses.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/gpu/memory.cuh"
#include "fp4lab/train/world.h"

namespace fp4lab::gpu {

// Indices of the GPUs that the kernels run on, or why there are none.
std::vector<int> Gpus(std::string* why);

// A claim to the least used GPU, or to that of a process's local number.
class GpuClaim {
 public:
  // Error at `where` if there is no GPU.
  GpuClaim(const std::string& where, const World& world);
  ~GpuClaim();
  GpuClaim(const GpuClaim&) = delete;
  GpuClaim& operator=(const GpuClaim&) = delete;

  // Every thread has a current GPU of its own.
  void Use() const { Check(cudaSetDevice(device_), "using the GPU"); }

 private:
  int device_ = 0;
};

// A stream of its own: engines in one process do not wait for each other.
class Stream {
 public:
  Stream() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace fp4lab::gpu
