// What the kernels over operands share: arguments, loads of units of values, dispatch.
#pragma once

#include <type_traits>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/hadamard_device.cuh"
#include "fp4lab/gpu/quantize.cuh"

namespace fp4lab::gpu {

constexpr int kUnitThreads = 128;

// What WriteAlpha of quantize.cuh wants; null `to`: nothing.
struct AlphaArguments {
  BlockRule a, b;
  const std::uint32_t *amax_a, *amax_b;
  float* to;
};

struct UnitArguments {
  std::size_t rows, cols;
  BlockRule rule;
  RandomStream random;
  const std::uint32_t* amax;
  AlphaArguments alpha;
};

__device__ inline TensorScale TensorScaleAt(const UnitArguments& a) {
  return TensorScaleOf(a.rule, a.amax == nullptr ? 0.0f : __uint_as_float(*a.amax));
}

// kCount neighbours in memory, 16 bytes at a time.
template <int kCount, class T>
__device__ inline void LoadRun(const T* from, float* v) {
  constexpr int kStep = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kCount; i += kStep) {
    const uint4 bits = *reinterpret_cast<const uint4*>(from + i);
    const T* x = reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int j = 0; j < kStep; ++j) v[i + j] = Load(x + j);
  }
}
template <int kCount, class T>
__device__ inline void StoreRun(T* to, const float* v) {
  constexpr int kStep = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kCount; i += kStep) {
    uint4 bits;
    T* x = reinterpret_cast<T*>(&bits);
#pragma unroll
    for (int j = 0; j < kStep; ++j) Store(x + j, v[i + j]);
    *reinterpret_cast<uint4*>(to + i) = bits;
  }
}

// kUnit rows of one column.
template <int kUnit, class T>
__device__ inline void LoadColumn(const T* from, std::size_t stride, float (&v)[kUnit]) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) v[i] = Load(from + i * stride);
}
// ---- Dispatch: each compile-time choice once

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

template <class Launch>
void WithBool(bool value, Launch&& launch) {
  value ? launch(std::true_type()) : launch(std::false_type());
}
// 0, 16 or 32.
template <class Launch>
void WithSize(int value, Launch&& launch) {
  if (value == 32) return launch(Constant<32>());
  value == 16 ? launch(Constant<16>()) : launch(Constant<0>());
}

inline AlphaArguments Arguments(const AlphaJob& job) {
  return {job.a ? RuleOf(*job.a) : BlockRule{}, job.b ? RuleOf(*job.b) : BlockRule{}, job.amax_a,
          job.amax_b, job.to};
}

inline UnitArguments Arguments(const QuantizeJob& job, const std::uint32_t* amax,
                               const AlphaJob& alpha = {}) {
  const BlockRule rule = job.format ? RuleOf(*job.format) : BlockRule{};
  const bool reads = job.format && HasTensorScale(*job.format);
  return {job.rows, job.cols, rule, job.random, reads ? amax : nullptr, Arguments(alpha)};
}

// Two neighbouring columns a thread where BF16 pairs are aligned.
template <class T>
bool TakesPairs(const QuantizeJob& job) {
  return std::is_same_v<T, Bf16> && job.cols % 2 == 0;
}

inline void CheckJob(const QuantizeJob& job) {
  const std::size_t along = job.along_rows ? job.rows : job.cols;
  const std::size_t block = job.format ? static_cast<std::size_t>(job.format->block_cols) : 0;
  const std::size_t square = job.format && job.format->block_rows > 1
                                 ? static_cast<std::size_t>(job.format->block_rows)
                                 : 1;
  Expects((block == 0 || along % block == 0) &&
              (job.hadamard == 0 || along % static_cast<std::size_t>(job.hadamard) == 0) &&
              job.rows % square == 0 && job.cols % square == 0,
          "QuantizeJob: whole blocks and Hadamard groups");
  // Kernels count units of 16 elements, and a grid's threads beyond them, in 32 bits.
  Expects(job.rows * job.cols < std::size_t{1} << 35, "QuantizeJob: fewer than 2^35 elements");
}

}  // namespace fp4lab::gpu
