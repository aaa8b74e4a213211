// BF16 numbers in registers, two neighbours in a word, the first in the low half.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace fp4lab::cuda {

// Loads 2 * kWords consecutive BF16 numbers from 16-byte aligned memory; kWords is a multiple of 4.
template <int kWords>
__device__ void LoadWords(const void* from, std::uint32_t* words) {
#pragma unroll
  for (int i = 0; i < kWords / 4; ++i) {
    const uint4 four = static_cast<const uint4*>(from)[i];
    words[4 * i] = four.x, words[4 * i + 1] = four.y;
    words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
  }
}
template <int kWords>
__device__ void StoreWords(void* to, const std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords / 4; ++i) {
    static_cast<uint4*>(to)[i] = {words[4 * i], words[4 * i + 1], words[4 * i + 2],
                                  words[4 * i + 3]};
  }
}

__device__ inline __nv_bfloat162 AsPair(std::uint32_t word) {
  return *reinterpret_cast<const __nv_bfloat162*>(&word);
}
__device__ inline std::uint32_t AsWord(__nv_bfloat162 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
// The upper half of x twice.
__device__ inline __nv_bfloat162 PairOf(float x) {
  return AsPair(__byte_perm(__float_as_uint(x), 0, 0x3232));
}

// BF16 number `half` of a word (0: the low half) as binary32.
__device__ inline float HalfOf(std::uint32_t word, int half) {
  return __uint_as_float(half == 0 ? word << 16 : word & 0xFFFF0000u);
}

// Clears the sign of NaN, because NaN is quantized to +6: the product of NaN and 1 has no sign.
template <int kWords>
__device__ void CleanNan(std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (std::uint32_t& word : words) {
    word = AsWord(__hmul2_rn(AsPair(word), AsPair(0x3F803F80u)));
  }
}

// The largest magnitude; NaN is ignored.
template <int kWords>
__device__ float AmaxOfWords(const std::uint32_t (&words)[kWords]) {
  __nv_bfloat162 largest = AsPair(0u);
#pragma unroll
  for (const std::uint32_t word : words) largest = __hmax2(largest, __habs2(AsPair(word)));
  return fmaxf(HalfOf(AsWord(largest), 0), HalfOf(AsWord(largest), 1));
}

}  // namespace fp4lab::cuda
