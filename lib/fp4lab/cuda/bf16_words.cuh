// BF16 numbers in registers, two neighbours a word, the first in the low half.
#pragma once

#include <cstdint>

namespace fp4lab::cuda {

// 2 kWords neighbours in memory, 16 bytes at a time.
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

// NaN loses its sign, since it rounds to +6: a product with 1 takes it away.
template <int kWords>
__device__ void CleanNan(std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (std::uint32_t& word : words) {
    asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(word) : "r"(0x3F803F80u));
  }
}

// The largest magnitude; NaN is passed over.
template <int kWords>
__device__ float AmaxOfWords(const std::uint32_t (&words)[kWords]) {
  std::uint32_t largest = 0;
#pragma unroll
  for (const std::uint32_t word : words) {
    std::uint32_t magnitudes;
    asm("abs.bf16x2 %0, %1;" : "=r"(magnitudes) : "r"(word));
    asm("max.bf16x2 %0, %0, %1;" : "+r"(largest) : "r"(magnitudes));
  }
  return fmaxf(__uint_as_float(largest << 16), __uint_as_float(largest & 0xFFFF0000u));
}

}  // namespace fp4lab::cuda
