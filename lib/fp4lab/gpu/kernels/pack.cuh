// Neighbouring elements as one load or store.
#pragma once

#include "fp4lab/gpu/kernels/math.cuh"

namespace fp4lab::gpu {

__device__ inline std::size_t ThreadIndex() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

// kVector elements side by side.
template <int kVector, class T>
struct alignas(kVector * sizeof(T)) Pack {
  T x[kVector];
};

template <int kVector, class T>
__device__ inline Pack<kVector, T> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<kVector, T>*>(from);
}
template <int kVector, class T>
__device__ inline void StorePack(T* to, const float (&values)[kVector]) {
  Pack<kVector, T> pack;
#pragma unroll
  for (int i = 0; i < kVector; ++i) Store(&pack.x[i], values[i]);
  *reinterpret_cast<Pack<kVector, T>*>(to) = pack;
}

}  // namespace fp4lab::gpu
