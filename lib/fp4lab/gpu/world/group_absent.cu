// Group in a build without NCCL's header: a world of one process only.
#include "fp4lab/base/error.h"
#include "fp4lab/gpu/world/group.cuh"

namespace fp4lab::gpu {

struct Group::State {};

Group::Group(const World& world, cudaStream_t /*stream*/) : world_(world) {
  if (world.size == 1) return;
  throw Error("GPU", "training in several processes needs a build that found nccl.h");
}
Group::~Group() = default;
void Group::Sum(float* /*x*/, std::size_t /*size*/) const {}
void Group::Sum(double* /*x*/, std::size_t /*size*/) const {}
void Group::Max(float* /*x*/, std::size_t /*size*/) const {}
void Group::Broadcast(float* /*x*/, std::size_t /*size*/, int /*rank*/) const {}

}  // namespace fp4lab::gpu
