// Sums of Hadamard transforms of 16 to 128 BF16 numbers with any signs, on tensor cores. A warp
// transforms eight chunks of 128 numbers, which are one group or several. One product m16n8k16 sums
// over the lowest four bits of a number's place in its chunk, for all eight chunks. Eight products
// serve the other three bits, over which a thread sums the results in its registers.
//
// Tensor cores align their terms to the largest and cut off what lies below its 24th bit. So a sum
// is exact, in any order, if all terms are multiples of a number that is 2^-24 of a bound of all
// partial sums. The numbers of a chunk that span too many binades are added in parts by magnitude,
// each with exact sums. What lies far below a chunk's largest numbers seldom changes an output; so
// few chunks need more than two parts. Those are summed again, in integers.
#pragma once

#include "fp4lab/cuda/device/bf16_words.cuh"
#include "fp4lab/gpu/gemm/mma.cuh"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"
#include "fp4lab/gpu/quantize/hadamard_parts.h"
#include "fp4lab/transform/exact_hadamard.h"

namespace fp4lab::gpu {

constexpr unsigned kChunk = 128, kProducts = 8;

using cuda::AsPair, cuda::AsWord;

// The numbers of the eight chunks of a warp as B of its products, and sums as their C.
using Numbers = std::uint32_t[kProducts][2];
using ChunkSums = float[kProducts][4];

// The products' matrix: the signs of the Hadamard matrix of 16 numbers. Its four quarters are equal
// but for the sign of the last one.
__device__ inline FragmentA SignsOfProducts() {
  const auto element = [](unsigned m, unsigned k) {
    return __popc(m & k) % 2 == 0 ? 0x3F80u : 0xBF80u;
  };
  const unsigned m = threadIdx.x % 32 / 4, k = threadIdx.x % 4 * 2;
  const std::uint32_t pair = element(m, k) | element(m, k + 1) << 16;
  return {{pair, pair, pair, pair ^ 0x80008000u}};
}

// The sums of groups of kSize: of 16 numbers by products, of those sums by additions.
template <int kSize>
__device__ void SumsOf(const FragmentA& matrix, const Numbers& numbers, ChunkSums& y) {
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
    FragmentC c{};
    Multiply(matrix, numbers[q][0], numbers[q][1], &c);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) y[q][i] = c.x[i];
  }
#pragma unroll
  for (unsigned bit = 1; bit < kSize / 16; bit *= 2) {
#pragma unroll
    for (unsigned q = 0; q < kProducts; ++q) {
      if ((q & bit) != 0) continue;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const float a = y[q][i], b = y[q | bit][i];
        y[q][i] = a + b;
        y[q | bit][i] = a - b;
      }
    }
  }
}

template <class Act>
__device__ void ForSums(const Act& act) {
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) act(q, i);
  }
}

// How the sums of a chunk are made: of all numbers; of two parts by magnitude; of two parts, the
// second of which is not exact, if its error changes no output; or by ExactOutputs.
enum class Way : std::uint8_t { kOne, kTwo, kChecked, kExact };
struct ChunkPlan {
  Way way;
  std::uint32_t high, low;  // the exponent fields of the largest and the smallest magnitude but 0

  __device__ std::uint32_t Binades() const { return high - low + 1; }
};

template <int kSize>
constexpr std::uint32_t kBinades = BinadesOfPart(kSize);

// The least magnitude of the first part of a chunk, as bits of BF16.
template <int kSize>
__device__ std::uint32_t LeastOfFirstPart(std::uint32_t high) {
  return high >= kBinades<kSize> ? (high + 1 - kBinades<kSize>) << 7 : 0u;
}

// `most`, `least`: the chunk's largest and smallest nonzero magnitude as bits of BF16.
template <int kSize>
__device__ ChunkPlan PlanOfChunk(std::uint32_t most, std::uint32_t least) {
  if (most == 0) return {Way::kOne, 0, 0};
  ChunkPlan plan{Way::kExact, most >> 7, least >> 7};
  if (plan.high >= 254 - HadamardStages(kSize)) return plan;  // sums may overflow
  const bool normal = plan.low > 16;                          // no sum is a subnormal number
  if (normal && plan.Binades() <= kBinades<kSize>) {
    plan.way = Way::kOne;
  } else if (normal && plan.Binades() <= 2 * kBinades<kSize>) {
    plan.way = Way::kTwo;
  } else if (plan.high > 40) {  // the error's bound is far above subnormal numbers
    plan.way = Way::kChecked;
  }
  return plan;
}

// A bound of the error of a chunk's sums in two parts, if the second one has any binades.
template <int kSize>
__device__ float ErrorOfTwoParts(std::uint32_t high) {
  return __uint_as_float((high - BinadesAboveError(kSize, 2)) << 23);
}

// The largest and the smallest nonzero magnitude of many BF16 numbers. The smallest is found less
// 1, which makes 0 the largest number.
class Magnitudes {
 public:
  __device__ void Add(std::uint32_t pair) {
    const std::uint32_t magnitudes = pair & 0x7FFF7FFFu;
    most_ = __vmaxu2(most_, magnitudes);
    less_ = __viaddmin_u16x2(magnitudes, 0xFFFFFFFFu, less_);
  }
  // The plan of the chunk that four neighbouring lanes share.
  template <int kSize>
  __device__ ChunkPlan Plan() const {
    std::uint32_t most = max(most_ & 0xFFFFu, most_ >> 16);
    std::uint32_t least = min(less_ & 0xFFFFu, less_ >> 16) + 1;
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      most = max(most, __shfl_xor_sync(kAllLanes, most, distance));
      least = min(least, __shfl_xor_sync(kAllLanes, least, distance));
    }
    return PlanOfChunk<kSize>(most, least);
  }

 private:
  std::uint32_t most_ = 0, less_ = 0xFFFFFFFFu;
};

// Moves the numbers whose magnitude is at least `least` from `rest` to `part`.
__device__ inline void Split(std::uint32_t least, Numbers& rest, Numbers& part) {
  const __nv_bfloat162 bound = AsPair(least * 0x10001u);
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t mask = __hge2_mask(AsPair(rest[q][i] & 0x7FFF7FFFu), bound);
      part[q][i] = rest[q][i] & mask;
      rest[q][i] = rest[q][i] & ~mask;
    }
  }
}

// The sums of chunks in one part or in two.
template <int kSize>
__device__ void SumsOfTwo(const FragmentA& matrix, const ChunkPlan& plan, bool one,
                          Numbers& numbers, ChunkSums& y) {
  if (one) return SumsOf<kSize>(matrix, numbers, y);
  Numbers part;
  ChunkSums lower;
  Split(LeastOfFirstPart<kSize>(plan.high), numbers, part);
  SumsOf<kSize>(matrix, part, y);
  SumsOf<kSize>(matrix, numbers, lower);
  ForSums([&](unsigned q, unsigned i) { y[q][i] = y[q][i] + lower[q][i]; });
}

// Outputs as BF16, a in the low half. Adding +0 makes a sum of zeros +0.
__device__ inline std::uint32_t OutputPair(float a, float b, float factor) {
  return PackBf16(__fmaf_rn(a, factor, 0.0f), __fmaf_rn(b, factor, 0.0f));
}

// Outputs 8 w + lane / 4 of chunks 2 (lane % 4) and the next, w < kChunk / 8, two of them in a
// word.
using Outputs = std::uint32_t[kChunk / 8];

__device__ inline void RoundSums(const ChunkSums& y, float factor, Outputs& outputs) {
#pragma unroll
  for (unsigned w = 0; w < kChunk / 8; ++w) {
    const auto& sums = y[w / 2];
    outputs[w] = OutputPair(sums[w % 2 * 2], sums[w % 2 * 2 + 1], factor);
  }
}

// A number of each lane's own chunk, from the lanes of the two chunks of this lane's outputs.
template <class T>
__device__ T OfOutputs(T own, unsigned i) {
  return __shfl_sync(kAllLanes, own, static_cast<int>(8 * (threadIdx.x % 4) + 4 * i));
}

// The chunks of a warp, a bit for each, some of whose outputs are not certain. `different`: the
// lane's outputs, two in a word, differ at these bits within their errors.
__device__ inline std::uint32_t UncertainChunks(const ChunkPlan& plan, std::uint32_t different) {
  const unsigned lane = threadIdx.x % 32;
  const bool first = (different & 0xFFFFu) != 0, second = different > 0xFFFFu;
  std::uint32_t chunks = plan.way == Way::kExact ? 1u << lane / 4 : 0u;
  chunks |= (first ? 1u : 0u) << 2 * (lane % 4) | (second ? 2u : 0u) << 2 * (lane % 4);
  return __reduce_or_sync(kAllLanes, chunks);
}

// Outputs in at most two parts. `way`: the last of the warp's chunks' ways. Returns the chunks,
// a bit for each, that need ExactOutputs. An output that is certain is at least 2^7 times as large
// as its error.
template <int kSize>
__device__ std::uint32_t OutputsOfTwo(const FragmentA& matrix, const ChunkPlan& plan, Way way,
                                      Numbers& numbers, Outputs& outputs) {
  constexpr float kFactor = HadamardFactor(kSize);
  ChunkSums y;
  SumsOfTwo<kSize>(matrix, plan, way == Way::kOne, numbers, y);
  if (way < Way::kChecked) {
    RoundSums(y, kFactor, outputs);
    return 0;
  }
  const float own = plan.way == Way::kChecked ? ErrorOfTwoParts<kSize>(plan.high) : 0.0f;
  float errors[2], relative[2];  // `relative`: the last addition's
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    errors[i] = OfOutputs(own, i);
    relative[i] = errors[i] > 0.0f ? 0x1p-24f : 0.0f;
  }
  std::uint32_t different = 0;
#pragma unroll
  for (unsigned w = 0; w < kChunk / 8; ++w) {
    const float a = y[w / 2][w % 2 * 2], b = y[w / 2][w % 2 * 2 + 1];
    const float a_error = __fmaf_rn(fabsf(a), relative[0], errors[0]);
    const float b_error = __fmaf_rn(fabsf(b), relative[1], errors[1]);
    outputs[w] = OutputPair(a - a_error, b - b_error, kFactor);
    different |= outputs[w] ^ OutputPair(a + a_error, b + b_error, kFactor);
  }
  return UncertainChunks(plan, different);
}

// y[j] = output 4 lane + j of a chunk, of exact sums (ExactBf16Sum), before the rounding to BF16.
// number(k): the chunk's number k with its sign. Digits of the sums are transformed one after the
// other: they have no carries yet.
template <int kSize, class Number>
__device__ void ExactOutputs(const Number& number, float (&y)[4]) {
  const unsigned lane = threadIdx.x % 32, first = 4 * lane;
  ExactBf16Sum::Term terms[4];
  ExactBf16Sum sums[4];
  bool finite = true;
  std::uint32_t lowest = ExactBf16Sum::kDigits, highest = 0;
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) {
    const float x = number(first + j);
    finite = finite && isfinite(x);
    terms[j] = ExactBf16Sum::TermOf(x);
    if (terms[j].value == 0) continue;
    lowest = min(lowest, static_cast<std::uint32_t>(terms[j].digit));
    highest = max(highest, static_cast<std::uint32_t>(terms[j].digit));
  }
  if (!__all_sync(kAllLanes, finite)) {
    const unsigned group = first / kSize * kSize;
    const auto of_group = [&](int k) { return number(group + static_cast<unsigned>(k)); };
#pragma unroll 1
    for (unsigned j = 0; j < 4; ++j) {
      y[j] = ExactHadamardOutput(kSize, static_cast<int>(first + j - group), of_group);
    }
    return;
  }
  lowest = __reduce_min_sync(kAllLanes, lowest);
  highest = __reduce_max_sync(kAllLanes, highest);
#pragma unroll 1
  for (std::uint32_t digit = lowest; digit <= highest; ++digit) {
    std::int64_t v[4];
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) v[j] = terms[j].digit == digit ? terms[j].value : 0;
#pragma unroll
    for (unsigned bit = 1; bit < 4; bit *= 2) {
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        if ((j & bit) != 0) continue;
        const std::int64_t a = v[j], b = v[j | bit];
        v[j] = a + b;
        v[j | bit] = a - b;
      }
    }
#pragma unroll 1
    for (unsigned bit = 1; bit < kSize / 4; bit *= 2) {
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        const std::int64_t other = __shfl_xor_sync(kAllLanes, v[j], static_cast<int>(bit));
        v[j] = other + ((lane & bit) != 0 ? -v[j] : v[j]);
      }
    }
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) sums[j].Add({digit, v[j]});
  }
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) y[j] = HadamardOutputOf(kSize, sums[j]);
}

// The largest magnitude of many BF16 numbers; NaN is passed over.
class LargestOutput {
 public:
  __device__ void Add(std::uint32_t pair) {
    const std::uint32_t magnitudes = pair & 0x7FFF7FFFu;
    asm("max.bf16x2 %0, %0, %1;" : "+r"(largest_) : "r"(magnitudes));
  }
  // Raises *amax to the largest magnitude of the warp. A warp reads *amax first, perhaps an earlier
  // and smaller value, since most warps have nothing to raise.
  __device__ void Raise(std::uint32_t* amax) const {
    const float own = fmaxf(HalfOf(largest_, 0), HalfOf(largest_, 1));
    const std::uint32_t bits = __reduce_max_sync(kAllLanes, __float_as_uint(own));
    if (threadIdx.x % 32 == 0 && bits > *amax) atomicMax(amax, bits);
  }

 private:
  std::uint32_t largest_ = 0;
};

}  // namespace fp4lab::gpu
