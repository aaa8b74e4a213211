// Shared by the quantization kernels: arguments, loads and stores of units of values, dispatch.
#pragma once

#include <type_traits>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/quantize/fp4_words.cuh"
#include "fp4lab/gpu/quantize/quantize_job.h"

namespace fp4lab::gpu {

constexpr int kUnitThreads = 128;

// AlphaJob in the form that kernels take; a null `to` asks for no alpha.
struct AlphaArguments {
  BlockRule a, b;
  const std::uint32_t *amax_a, *amax_b;
  float* to;
};

struct UnitArguments {
  std::size_t rows, cols;
  BlockRule rule;
  KeyedStream random;
  const std::uint32_t* amax;
  AlphaArguments alpha;
};

__device__ inline TensorNumbers TensorNumbersAt(const UnitArguments& a) {
  return TensorNumbersOf(a.rule, a.amax == nullptr ? 0.0f : __uint_as_float(*a.amax));
}

// Loads kCount neighbours in memory, 16 bytes at a time.
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

// Loads kUnit rows of one column.
template <int kUnit, class T>
__device__ inline void LoadColumn(const T* from, std::size_t stride, float (&v)[kUnit]) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) v[i] = Load(from + i * stride);
}
template <int kUnit>
__device__ inline void StorePairs(Bf16* to, std::size_t stride,
                                  const std::uint32_t (&pairs)[kUnit]) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    *reinterpret_cast<std::uint32_t*>(to + i * stride) = pairs[i];
  }
}

// ---- The work on units

// The factor that an operand contributes to alpha, as OperandDecode of dialect/gemm_alpha.h
// computes it.
__device__ inline float DecodeScale(const BlockRule& rule, const std::uint32_t* amax) {
  if (!rule.quantizes) return 1.0f;
  const float value = __uint_as_float(*amax);
  return rule.rule == BlockScale::kFolded ? value / kNvfp4Constant
                                          : TensorNumbersOf(rule, value).decode;
}

// Writes alpha. Only the first thread of a grid does.
__device__ inline void MakeAlpha(const AlphaArguments& a) {
  if (a.to == nullptr || blockIdx.x != 0 || threadIdx.x != 0) return;
  const bool both = a.a.quantizes && a.b.quantizes;
  if (both && a.a.rule == BlockScale::kFolded && a.b.rule == BlockScale::kFolded) {
    *a.to =
        __uint_as_float(*a.amax_a) * __uint_as_float(*a.amax_b) / (kNvfp4Constant * kNvfp4Constant);
    return;
  }
  *a.to = DecodeScale(a.a, a.amax_a) * DecodeScale(a.b, a.amax_b);
}

// Quantizes kUnit values along the reduction axis in place, in blocks of kBlock.
template <int kUnit, int kBlock, bool kStochastic, bool kE2m1>
__device__ inline void QuantizeUnit(const UnitArguments& a, const TensorNumbers& tensor,
                                    std::uint64_t element, float* v) {
  if (!a.rule.quantizes) return;
#pragma unroll
  for (int i = 0; i < kUnit; i += kBlock) {
    float amax = 0.0f;
#pragma unroll
    for (int j = 0; j < kBlock; ++j) amax = LargerMagnitude(amax, v[i + j]);
    const ScalePair scale = ScalesOf(a.rule, amax, tensor);
    QuantizeBlock<kBlock, kStochastic, kE2m1>(a.rule, scale, a.random.stream, element + i, v + i);
  }
}

// Transforms kUnit values in groups of kHadamard, then quantizes them in blocks of kBlock, in
// place.
template <int kUnit, int kBlock, int kHadamard, bool kStochastic, bool kE2m1>
__device__ inline void ProcessUnit(const UnitArguments& a, const TensorNumbers& tensor,
                                   std::uint64_t element, float* v) {
  if constexpr (kHadamard > 0) {
#pragma unroll
    for (int i = 0; i < kUnit; i += kHadamard) {
      std::uint32_t largest = 0;
      HadamardGroup<kHadamard>(v + i, PlanSums<kHadamard>(v + i, &largest));
    }
  }
  QuantizeUnit<kUnit, kBlock, kStochastic, kE2m1>(a, tensor, element, v);
}

// ProcessUnit for kUnit rows of two neighbouring BF16 columns. `element`: the number of column 0's
// first element; a column has `a.rows` elements.
template <int kUnit, int kBlock, int kHadamard, bool kStochastic, bool kE2m1>
__device__ inline void ProcessPairs(const UnitArguments& a, const TensorNumbers& tensor,
                                    std::uint64_t element, std::uint32_t (&pairs)[kUnit]) {
  if constexpr (kE2m1 && kUnit == kBlock) {
    QuantizePairs<kHadamard, kStochastic>(a.rule, tensor, a.random, element, a.rows, pairs);
  } else {
    SumPlan plans[kUnit / 16];
    if constexpr (kHadamard > 0) PlanUnit<kHadamard>(pairs, plans);
    float v[2][kUnit];
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      UnpackColumn<kUnit>(pairs, w, v[w]);
      if constexpr (kHadamard > 0) {
#pragma unroll
        for (int g = 0; g < kUnit; g += kHadamard) {
          HadamardGroup<kHadamard>(v[w] + g, plans[g / kHadamard]);
        }
      }
      QuantizeUnit<kUnit, kBlock, kStochastic, kE2m1>(a, tensor, element + w * a.rows, v[w]);
    }
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      pairs[k] = AsWord(__floats2bfloat162_rn(v[0][k], v[1][k]));
    }
  }
}

// ---- Dispatch: each compile-time choice once

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

template <class Launch>
void WithBool(bool value, Launch&& launch) {
  value ? launch(std::true_type()) : launch(std::false_type());
}
// launch(Constant<value>()) for a value of 0, 16 or 32.
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
  return {job.rows,        job.cols, rule, KeyedStream(job.random), reads ? amax : nullptr,
          Arguments(alpha)};
}

// Whether a thread takes two neighbouring columns: for BF16, if all pairs are aligned.
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
  // Kernels count units of 16 elements in 32 bits, including the grid's threads beyond the last
  // unit.
  Expects(job.rows * job.cols < std::size_t{1} << 35, "QuantizeJob: fewer than 2^35 elements");
}

}  // namespace fp4lab::gpu
