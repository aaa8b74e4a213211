// The processes of one data-parallel run and their reductions by NCCL, which is loaded if there is
// more than one process.
#pragma once

#include <cstddef>
#include <memory>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/train/world.h"

namespace fp4lab::gpu {

class Group {
 public:
  // Every process of the world constructs a Group on its own GPU; the constructor waits for all of
  // them. Throws Error if the processes do not meet (Rendezvous) or NCCL cannot be loaded. When a
  // process is lost, the others end within 30 s, with one line on stderr and exit code 1.
  Group(const World& world, cudaStream_t stream);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int Rank() const { return world_.rank; }
  int Size() const { return world_.size; }
  // x (device memory) = the sum over all processes, in NCCL's order, which is the same for equal
  // worlds. Enqueued on the stream.
  void Sum(float* x, std::size_t size) const;
  void Sum(double* x, std::size_t size) const;
  // x (device memory) = the maximum over all processes, element by element.
  void Max(float* x, std::size_t size) const;
  // x (device memory) = that of process `rank`.
  void Broadcast(float* x, std::size_t size, int rank) const;

 private:
  struct State;
  World world_;
  std::unique_ptr<State> state_;
};

}  // namespace fp4lab::gpu
