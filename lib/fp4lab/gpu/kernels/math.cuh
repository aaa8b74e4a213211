// The elementary functions of nn/lanes/math-inl.h and the sums of base/simd/reduce.h on the device:
// the same operations in the same order, and so the CPU's bits. (Compiled with --fmad=false.)
#pragma once

#include <cstdint>

#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Conversion of a stored element to binary32 and back, rounded to nearest even.
__device__ inline float Load(const float* x) { return *x; }
__device__ inline float Load(const Bf16* x) { return __bfloat162float(*x); }
__device__ inline void Store(float* x, float value) { *x = value; }
__device__ inline void Store(Bf16* x, float value) { *x = __float2bfloat16_rn(value); }
__device__ inline std::uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

struct ExpParts {
  float power, shifted;
};

__device__ inline ExpParts ReduceExp(float x, float shifter) {
  const float shifted = __fmaf_rn(x, 0x1.715476p0f, shifter);
  const float n = shifted - shifter;
  float r = __fmaf_rn(n, -0x1.62e4p-1f, x);
  r = __fmaf_rn(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a23cep-10f;
  p = __fmaf_rn(p, r, 0x1.123a2p-7f);
  p = __fmaf_rn(p, r, 0x1.5558f2p-5f);
  p = __fmaf_rn(p, r, 0x1.555492p-3f);
  p = __fmaf_rn(p, r, 0x1.fffffcp-2f);
  return {__fmaf_rn(r * r, p, r) + 1.0f, shifted};
}

__device__ inline float Exp(float x) {
  const float bounded = fminf(fmaxf(x, -104.0f), 89.0f);
  const float shifter = 0x1.8p23f;
  const ExpParts e = ReduceExp(bounded, shifter);
  const int exponent = __float_as_int(e.shifted) - __float_as_int(shifter);
  const int half = exponent >> 1;
  const float scale1 = __int_as_float((half + 127) << 23);
  const float scale2 = __int_as_float((exponent - half + 127) << 23);
  const float result = (e.power * scale1) * scale2;
  return isnan(x) ? x : result;
}

__device__ inline float ExpNonPositive(float x) {
  const ExpParts e = ReduceExp(x, 0x1.8p23f + 127.0f);
  const float scale = __int_as_float(__float_as_int(e.shifted) << 23);
  return x < -0x1.5d589ep6f ? 0.0f : e.power * scale;
}

__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// The 16 virtual lanes of a reduction are a half-warp.
constexpr int kHalfWarp = 16;

__device__ inline float SumOfLanes(float lane) {
  for (int width = kHalfWarp / 2; width > 0; width /= 2) {
    lane = lane + __shfl_down_sync(kAllLanes, lane, width, kHalfWarp);
  }
  return __shfl_sync(kAllLanes, lane, 0, kHalfWarp);
}

__device__ inline float MaxOfLanes(float lane) {
  for (int width = kHalfWarp / 2; width > 0; width /= 2) {
    const float other = __shfl_down_sync(kAllLanes, lane, width, kHalfWarp);
    lane = other > lane ? other : lane;
  }
  return __shfl_sync(kAllLanes, lane, 0, kHalfWarp);
}

}  // namespace fp4lab::gpu
