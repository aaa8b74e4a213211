// Neighbouring elements as one load or store.
#pragma once

#include <cstddef>
#include <type_traits>

#include "fp4lab/base/memory/alignment.h"
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

// Elements of binary32 that a thread takes of a row at a time, where it can.
inline constexpr int kVectorOfRows = 4;

// Calls `launch` with the width of the loads as a constant: kVectorOfRows where it divides `cols`
// and `from` begins at a whole pack, else 1.
template <class Function>
void WithVector(std::size_t cols, const Function& launch, const float* from = nullptr) {
  if (cols % kVectorOfRows == 0 && IsAligned(from, kVectorOfRows * sizeof(float))) {
    launch(std::integral_constant<int, kVectorOfRows>{});
  } else {
    launch(std::integral_constant<int, 1>{});
  }
}

}  // namespace fp4lab::gpu
