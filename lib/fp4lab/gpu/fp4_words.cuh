// Blocks of E2M1 along runs of BF16 numbers, two neighbours a word: values out, no codes. A code
// takes four or five instructions and no branch.
#pragma once

#include "fp4lab/gpu/hadamard_device.cuh"

namespace fp4lab::gpu {

__device__ inline __nv_bfloat162 AsPair(std::uint32_t word) {
  return *reinterpret_cast<const __nv_bfloat162*>(&word);
}
__device__ inline std::uint32_t AsWord(__nv_bfloat162 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// 2 kWords neighbours in memory, 16 bytes at a time.
template <int kWords>
__device__ inline void LoadWords(const Bf16* from, std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(from + 2 * i);
    words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
  }
}
template <int kWords>
__device__ inline void StoreWords(Bf16* to, const std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    *reinterpret_cast<uint4*>(to + 2 * i) =
        make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
  }
}

// NaN becomes +6 whatever its sign: a product with 1 takes the sign away.
template <int kWords>
__device__ inline void CleanNan(std::uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = AsWord(__hmul2(AsPair(words[i]), AsPair(0x3F803F80u)));
  }
}

// The largest magnitude of 2 kWords numbers, NaN passed over.
template <int kWords>
__device__ inline float AmaxOfWords(const std::uint32_t (&words)[kWords]) {
  __nv_bfloat162 largest = AsPair(0);
#pragma unroll
  for (int i = 0; i < kWords; ++i) largest = __hmax2(largest, __habs2(AsPair(words[i])));
  return fmaxf(__low2float(largest), __high2float(largest));
}

// The code to nearest, ties to even as E2M1 has them, in byte 0; the sign bit is 0. c rounds
// min(2 m, m + 2, m / 2 + 4), three lines that bend where E2M1's steps double; a power of two added
// in the same operation rounds and puts c in its place. `magnitude` in 0..6.
__device__ inline std::uint32_t NearestCode(float magnitude) {
  return __vimin3_u32(__float_as_uint(__fmaf_rn(magnitude, 2.0f, 0x1p23f)),
                      __float_as_uint(magnitude + (0x1p23f + 2.0f)),
                      __float_as_uint(__fmaf_rn(magnitude, 0.5f, 0x1p23f + 4.0f)));
}

// The code in bits 22 to 24: bits of numbers are such lines themselves, of magnitudes from 1 on,
// and of 2 m + 2 below; 16 random bits (half `half` of `fields`) under the last place kept carry
// into the code. What a sum cuts lies under them.
__device__ inline std::uint32_t StochasticCode(float magnitude, std::uint32_t fields, int half) {
  const int below_1 = __float_as_int(__fmaf_rz(magnitude, 2.0f, 2.0f));
  const int line = __viaddmax_s32(__float_as_int(magnitude), 4 << 22, below_1);
  return __dp2a_lo(fields, half == 0 ? 0x0040u : 0x4000u, static_cast<std::uint32_t>(line));
}

// Two codes where E2M1's bits are the lowest of BF16's exponent and the highest of its mantissa.
template <bool kStochastic>
__device__ inline std::uint32_t PairOfCodes(const std::uint32_t (&code)[2]) {
  if constexpr (kStochastic) return __byte_perm(code[0], code[1], 0x7632) & 0x01C001C0u;
  // A digit above 7 copies a sign bit, here 0. (__byte_perm knows no such digits.)
  std::uint32_t pair;
  asm("prmt.b32 %0, %1, %2, 0xF4B0;" : "=r"(pair) : "r"(code[0]), "r"(code[1]));
  return pair << 6;
}

// Two numbers of one block, in place; NaN is positive. `fields`: two times 16 random bits.
template <bool kStochastic>
__device__ inline std::uint32_t QuantizeWord(std::uint32_t word, float multiplier,
                                             __nv_bfloat162 value, std::uint32_t fields) {
  std::uint32_t code[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float magnitude = fminf(fabsf(HalfOf(word, half) * multiplier), 6.0f);  // NaN: 6
    code[half] = kStochastic ? StochasticCode(magnitude, fields, half) : NearestCode(magnitude);
  }
  const std::uint32_t tiny = PairOfCodes<kStochastic>(code) | (word & 0x80008000u);
  return AsWord(__hmul2(__hmul2(AsPair(tiny), AsPair(0x7E807E80u)), value));  // 2^126, the scale
}

// What random bits are a function of. `keys` may lie in a kernel's parameters, which the
// instructions read as constants.
struct RandomSource {
  const RandomStream& stream;
  const PhiloxKeys& keys;
};

// One block along the reduction axis, in place; NaN is positive. `element`: the number of its first
// element, a multiple of 8 below 2^35.
template <bool kStochastic, int kWords>
__device__ inline void QuantizeWords(const BlockRule& rule, const TensorScale& tensor,
                                     const RandomSource& random, std::uint64_t element,
                                     std::uint32_t (&words)[kWords]) {
  const BlockScale scale = BlockScaleOf(rule, AmaxOfWords(words), tensor);
  const __nv_bfloat162 value = __float2bfloat162_rn(scale.value);
  const auto first = static_cast<std::uint32_t>(element / 8);
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    PhiloxBlock fields{};
    if (kStochastic) fields = random.stream.Block(first + i / 4, random.keys);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[i + j] = QuantizeWord<kStochastic>(words[i + j], scale.multiplier, value, fields[j]);
    }
  }
}

// Column w of rows of pairs, as words down the column; then the transform, if there is one.
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

// kUnit rows of two neighbouring columns, in place: the transform, then a block of each column.
// `element` is the first of column 0, of `rows` elements.
template <int kHadamard, bool kStochastic, int kUnit>
__device__ inline void QuantizePairs(const BlockRule& rule, const TensorScale& tensor,
                                     const RandomSource& random, std::uint64_t element,
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
