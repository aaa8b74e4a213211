// Quantization of runs of BF16 numbers, two neighbours per 32-bit word, to E2M1 in blocks. The
// results are values in BF16, not codes. Rounding one element takes four or five instructions and
// no branch.
#pragma once

#include "fp4lab/cuda/device/bf16_words.cuh"
#include "fp4lab/cuda/device/e2m1.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"

namespace fp4lab::gpu {

using cuda::AmaxOfWords, cuda::AsPair, cuda::AsWord, cuda::CleanNan;
using cuda::LoadWords, cuda::StoreWords;

// Moves two E2M1 codes to the places in a BF16 pair where E2M1's exponent bits are the lowest bits
// of BF16's exponent and E2M1's mantissa bit is the highest bit of BF16's mantissa.
template <bool kStochastic>
__device__ inline std::uint32_t PairOfCodes(const std::uint32_t (&code)[2]) {
  if constexpr (kStochastic) return cuda::PairOfStochastic(code[0], code[1]) & 0x01C001C0u;
  // A selector digit above 7 replicates the sign bit of a byte, here 0. (__byte_perm has no such
  // digits.)
  std::uint32_t pair;
  asm("prmt.b32 %0, %1, %2, 0xF4B0;" : "=r"(pair) : "r"(code[0]), "r"(code[1]));
  return pair << 6;
}

// Quantizes the two BF16 numbers of `word`, both of one block, and returns their values. NaN must
// be positive (CleanNan). `fields`: 16 random bits for each number.
template <bool kStochastic>
__device__ inline std::uint32_t QuantizeWord(std::uint32_t word, float multiplier,
                                             __nv_bfloat162 value, std::uint32_t fields) {
  std::uint32_t code[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float magnitude = fabsf(HalfOf(word, half) * multiplier);
    code[half] = kStochastic ? cuda::StochasticE2m1(magnitude, fields, half)
                             : cuda::NearestE2m1(magnitude);  // in byte 0
  }
  const std::uint32_t tiny = PairOfCodes<kStochastic>(code) | (word & 0x80008000u);
  return AsWord(__hmul2(__hmul2(AsPair(tiny), AsPair(0x7E807E80u)), value));  // 2^126, the scale
}

// Quantizes one block along the reduction axis in place. NaN must be positive (CleanNan).
// `element`: the number of the block's first element, a multiple of 8 below 2^35.
template <bool kStochastic, int kWords>
__device__ inline void QuantizeWords(const BlockRule& rule, const TensorNumbers& tensor,
                                     const KeyedStream& random, std::uint64_t element,
                                     std::uint32_t (&words)[kWords]) {
  const ScalePair scale = ScalesOf(rule, AmaxOfWords(words), tensor);
  const __nv_bfloat162 value = __float2bfloat162_rn(scale.value);
  const auto first = static_cast<std::uint32_t>(element / 8);
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    PhiloxBlock fields{};
    if (kStochastic) fields = random.Block(first + i / 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[i + j] = QuantizeWord<kStochastic>(words[i + j], scale.multiplier, value, fields[j]);
    }
  }
}

// Packs column w of `pairs` into words of two neighbouring rows and applies the Hadamard transform
// unless kHadamard is 0.
template <int kHadamard, int kUnit>
__device__ inline void ColumnWords(const std::uint32_t (&pairs)[kUnit], int w, const SumPlan* plans,
                                   std::uint32_t (&words)[kUnit / 2]) {
  if constexpr (kHadamard == 0) {
#pragma unroll
    for (int k = 0; k < kUnit / 2; ++k) {
      words[k] = __byte_perm(pairs[2 * k], pairs[2 * k + 1], w == 0 ? 0x5410 : 0x7632);
    }
    CleanNan(words);
  } else {
    float v[kUnit];
    UnpackColumn<kUnit>(pairs, w, v);
#pragma unroll
    for (int g = 0; g < kUnit; g += kHadamard) {
      HadamardWords<kHadamard>(v + g, plans[g / kHadamard], words + g / 2);
    }
  }
}

// Transforms and quantizes kUnit rows of two neighbouring columns in place; the rows of each column
// are one block. `element`: the number of column 0's first element; a column has `rows` elements.
template <int kHadamard, bool kStochastic, int kUnit>
__device__ inline void QuantizePairs(const BlockRule& rule, const TensorNumbers& tensor,
                                     const KeyedStream& random, std::uint64_t element,
                                     std::size_t rows, std::uint32_t (&pairs)[kUnit]) {
  SumPlan plans[kUnit / 16];
  if constexpr (kHadamard > 0) PlanUnit<kHadamard>(pairs, plans);
  std::uint32_t words[2][kUnit / 2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    ColumnWords<kHadamard>(pairs, w, plans, words[w]);
    QuantizeWords<kStochastic>(rule, tensor, random, element + w * rows, words[w]);
  }
#pragma unroll
  for (int k = 0; k < kUnit / 2; ++k) {
    pairs[2 * k] = __byte_perm(words[0][k], words[1][k], 0x5410);
    pairs[2 * k + 1] = __byte_perm(words[0][k], words[1][k], 0x7632);
  }
}

}  // namespace fp4lab::gpu
