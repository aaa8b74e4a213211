// The processes of one data-parallel run, through NCCL (loaded when there is more than one).
#pragma once

#include <cstddef>
#include <memory>

#include "fp4lab/gpu/memory.cuh"
#include "fp4lab/train/world.h"

namespace fp4lab::gpu {

class Group {
 public:
  // Meets the others: every process of the world makes one, on its own GPU.
  Group(const World& world, cudaStream_t stream);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int Rank() const { return world_.rank; }
  int Size() const { return world_.size; }
  // x = the sum over all processes, in NCCL's order: the same for equal worlds. In order with the
  // stream's other work.
  void Sum(float* x, std::size_t size) const;
  void Sum(double* x, std::size_t size) const;
  // x = the largest over all processes.
  void Max(float* x, std::size_t size) const;

 private:
  struct State;
  World world_;
  std::unique_ptr<State> state_;
};

}  // namespace fp4lab::gpu
