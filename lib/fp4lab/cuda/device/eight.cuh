// Eight consecutive elements of a block in a thread's registers: read, scaled, rounded, stored.
#pragma once

#include <cstdint>

#include "fp4lab/base/random.h"
#include "fp4lab/cuda/device/convert.cuh"
#include "fp4lab/cuda/quantize/quantize.h"
#include "fp4lab/formats/format.h"

namespace fp4lab::cuda {

inline constexpr std::uint32_t kInfBf16 = 0x7F80u;

// The elements as binary32 values. Their signs stand where E2M1 codes have them: element i's in bit
// 4 i + 3.
struct Eight {
  float x[8];
  std::uint32_t signs;
};

// Makes Eight::signs from bits 7, 15, 23 and 31 of `even`, the signs of elements 0, 2, 4 and 6, and
// of `odd`, those of elements 1, 3, 5 and 7.
__device__ inline std::uint32_t SignNibbles(std::uint32_t even, std::uint32_t odd) {
  return (even >> 4 & 0x08080808u) | (odd & 0x80808080u);
}

// The largest magnitude of eight BF16 values as BF16 bits; above kInfBf16 if one is NaN.
__device__ inline std::uint32_t LargestBf16(uint4 w) {
  const std::uint32_t m = __vmaxu2(__vmaxu2(w.x & 0x7FFF7FFFu, w.y & 0x7FFF7FFFu),
                                   __vmaxu2(w.z & 0x7FFF7FFFu, w.w & 0x7FFF7FFFu));
  return max(m & 0xFFFFu, m >> 16);
}

// Eight BF16 values: element 0 in the low half of w.x, element 7 in the upper half of w.w.
__device__ inline Eight EightOf(uint4 w) {
  Eight e;
  const std::uint32_t words[] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.x[2 * i] = __uint_as_float(words[i] << 16);
    e.x[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
  const std::uint32_t low = __byte_perm(w.x, w.y, 0x7531), high = __byte_perm(w.z, w.w, 0x7531);
  e.signs = SignNibbles(__byte_perm(low, high, 0x6420), __byte_perm(low, high, 0x7531));
  return e;
}

__device__ inline Eight EightOf(float4 x, float4 y) {
  const float v[] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
  Eight e;
  std::uint32_t even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.x[2 * i] = v[2 * i];
    e.x[2 * i + 1] = v[2 * i + 1];
    even |= (__float_as_uint(v[2 * i]) & 0x80000000u) >> (24 - 8 * i);
    odd |= (__float_as_uint(v[2 * i + 1]) & 0x80000000u) >> (24 - 8 * i);
  }
  e.signs = SignNibbles(even, odd);
  return e;
}

// The largest magnitude, NaN ignored; *nan: whether any element is NaN.
__device__ inline float LargestOf(const Eight& e, bool* nan) {
  float amax = 0.0f;
  *nan = false;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    amax = fmaxf(amax, fabsf(e.x[i]));
    *nan = *nan || e.x[i] != e.x[i];
  }
  return amax;
}

// The random bits of eight elements; the first of them has the number 8 * octet.
template <RandomBits kBits>
struct RandomOctet;
template <>
struct RandomOctet<RandomBits::kNone> {
  RandomOctet() = default;
  __device__ RandomOctet(const KeyedStream&, std::uint64_t) {}
};
template <>
struct RandomOctet<RandomBits::kCounter> {
  std::uint32_t fields[4];  // 16 bits of two elements each, the first element in the low half
  __device__ RandomOctet(const KeyedStream& stream, std::uint64_t octet) {
    const PhiloxBlock block = stream.Block(octet);
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) fields[i] = block[i];
  }
};
template <>
struct RandomOctet<RandomBits::kInstruction> {
  std::uint32_t words[2];
  __device__ RandomOctet(const KeyedStream& stream, std::uint64_t octet) {
    const PhiloxBlock block = stream.Block(octet / 2);
    words[0] = octet % 2 == 0 ? block[0] : block[2];
    words[1] = octet % 2 == 0 ? block[1] : block[3];
  }
};

// A number of a block (its factor or its scale) for the first four of eight elements and for the
// last four, which may belong to different blocks.
template <class T>
struct Halves {
  T low, high;
};
template <class T>
__device__ Halves<T> Both(T value) {
  return {value, value};
}

// The E2M1 codes of e.x[i] * factor. `special`: whether an element or the factor may be NaN.
template <RandomBits kBits>
__device__ std::uint32_t E2m1Codes(const Eight& e, Halves<float> factor, bool special,
                                   const RandomOctet<kBits>& random) {
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = fabsf(e.x[i]) * (i < 4 ? factor.low : factor.high);
  std::uint32_t codes;
  if constexpr (kBits == RandomBits::kNone) {
    codes = NearestCodes(v);
  } else if constexpr (kBits == RandomBits::kCounter) {
    codes = StochasticCodes(v, random.fields);
  } else {
    codes = InstructionCodes(v, random.words[0], random.words[1]);
  }
  codes |= e.signs;
  if (special) {  // NaN becomes +6
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (v[i] != v[i]) codes = (codes & ~(15u << (4 * i))) | 7u << (4 * i);
    }
  }
  return codes;
}

// Multiplies both BF16 values of a word by a BF16 scale; the addend -0 keeps the sign of a zero
// product.
__device__ inline std::uint32_t TimesBf16(std::uint32_t word, std::uint32_t scale) {
  const std::uint32_t scales = __byte_perm(scale, scale, 0x1010);
  asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(word) : "r"(scales), "r"(0x80008000u));
  return word;
}

// The eight values code * scale as BF16 (scale: BF16 bits), exact unless the scale is NaN.
__device__ inline uint4 E2m1Values(std::uint32_t codes, Halves<std::uint32_t> scale) {
  std::uint32_t words[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t four = codes >> (16 * half);
    const std::uint32_t index = four & 0x7777u;
    // Bytes of the BF16 values of 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
    const std::uint32_t low = __byte_perm(0xC0800000u, 0xC0804000u, index);
    const std::uint32_t high = __byte_perm(0x3F3F3F00u, 0x40404040u, index);
    words[2 * half] =
        __byte_perm(low, high, 0x5140) | (four << 12 & 0x8000u) | (four << 24 & 0x80000000u);
    words[2 * half + 1] =
        __byte_perm(low, high, 0x7362) | (four << 4 & 0x8000u) | (four << 16 & 0x80000000u);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = TimesBf16(words[i], i < 2 ? scale.low : scale.high);
  return {words[0], words[1], words[2], words[3]};
}

// The FP8 codes of e.x[i] * factor, element 0 in the lowest byte of the first word.
template <FormatId kElement>
__device__ uint2 Fp8Codes(const Eight& e, float factor) {
  std::uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = e.x[4 * i + k] * factor;
    words[i] = NearestFp8Pair<kElement>(v[0], v[1]) | NearestFp8Pair<kElement>(v[2], v[3]) << 16;
  }
  return {words[0], words[1]};
}

template <FormatId kElement>
__device__ uint4 Fp8Values(uint2 codes, std::uint32_t scale) {
  std::uint32_t words[] = {Bf16OfFp8Pair<kElement>(codes.x), Bf16OfFp8Pair<kElement>(codes.x >> 16),
                           Bf16OfFp8Pair<kElement>(codes.y),
                           Bf16OfFp8Pair<kElement>(codes.y >> 16)};
#pragma unroll
  for (std::uint32_t& word : words) word = TimesBf16(word, scale);
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace fp4lab::cuda
