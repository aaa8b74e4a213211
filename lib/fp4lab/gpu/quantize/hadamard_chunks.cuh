// Sums of Hadamard transforms of 16 to 128 BF16 numbers with any signs, on tensor cores. A warp
// transforms eight chunks of 128 numbers, which are one group or several. One product m16n8k16 sums
// over the lowest four bits of a number's place in its chunk, for all eight chunks. Eight products
// serve the other three bits, over which a thread sums the results in its registers.
//
// Tensor cores align their terms to the largest and cut off what lies below its 24th bit. So a sum
// is exact, in any order, if all terms are multiples of a number that is 2^-24 of a bound of all
// partial sums. The numbers of a chunk that span too many binades are added in parts by magnitude,
// each with exact sums.
#pragma once

#include "fp4lab/cuda/device/bf16_words.cuh"
#include "fp4lab/gpu/gemm/mma.cuh"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"
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

// How the sums of a chunk are made: of all numbers, of two or three parts by magnitude, of many
// parts (WideSums), or one by one (ExactOutputs). The ways after kTwo are rare.
enum class Way : std::uint8_t { kOne, kTwo, kThree, kWide, kExact };
struct ChunkPlan {
  Way way;
  std::uint32_t high, low;  // the exponent fields of the largest and the smallest magnitude but 0
};

// Binades of BF16 numbers that are multiples of 2^-24 of their largest possible sum.
template <int kSize>
constexpr std::uint32_t kBinades = 17 - HadamardStages(kSize);

// Binades that three parts serve, so that what the sum of the first two loses and the third part's
// sum together fit into binary32. In units of 2^high, for groups of 2^g numbers: the loss is at
// most 2^(g - 23), the third sum is below 2^(3 g - 33), and both are multiples of 2^(-6 - binades).
template <int kSize>
constexpr std::uint32_t kBinadesOfThree = kSize == 16 ? 36 : 3 * kBinades<kSize> - 1;

// The least magnitude of part `part` of a chunk, as bits of BF16.
template <int kSize>
__device__ std::uint32_t LeastOfPart(std::uint32_t high, std::uint32_t part) {
  const std::uint32_t binades = kBinades<kSize> * (part + 1);
  return high >= binades ? (high + 1 - binades) << 7 : 0u;
}

// `most`, `least`: the chunk's largest and smallest nonzero magnitude as bits of BF16.
template <int kSize>
__device__ ChunkPlan PlanOfChunk(std::uint32_t most, std::uint32_t least) {
  constexpr std::uint32_t kWideBinades = 80;
  const std::uint32_t high = most >> 7, low = least >> 7, binades = high - low + 1;
  if (most == 0) return {Way::kOne, 0, 0};
  const bool fits = high < 254 - HadamardStages(kSize) && low > 16;  // no overflow, no subnormals
  if (fits && binades <= kBinades<kSize>) return {Way::kOne, high, low};
  if (fits && binades <= 2 * kBinades<kSize>) return {Way::kTwo, high, low};
  if (fits && binades <= kBinadesOfThree<kSize>) return {Way::kThree, high, low};
  return {high < 255 && binades <= kWideBinades ? Way::kWide : Way::kExact, high, low};
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

// high + low + x, rounded to binary64 in two numbers. Exact for sums of fewer than 106 bits.
__device__ inline void AddTo(double& high, double& low, double x) {
  const double sum = high + x, other = sum - high;
  low += (high - (sum - other)) + (x - other);
  high = sum + low;
  low = low - (high - sum);
}
// (high + low) * scale, a power of 2, rounded once to binary32.
__device__ inline float RoundedOnce(double high, double low, double scale) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(high));
  // To odd: then the cast rounds as if it saw all bits.
  const bool moves = low != 0.0 && bits % 2 == 0;
  const std::uint64_t odd = (low < 0.0) == (high < 0.0) ? bits + 1 : bits - 1;
  return static_cast<float>(__longlong_as_double(static_cast<long long>(moves ? odd : bits)) *
                            scale);
}

// The sums of chunks of few binades, in one part or in two.
template <int kSize>
__device__ void SumsOfTwo(const FragmentA& matrix, const ChunkPlan& plan, bool one,
                          Numbers& numbers, ChunkSums& y) {
  if (one) return SumsOf<kSize>(matrix, numbers, y);
  Numbers part;
  ChunkSums lower;
  Split(LeastOfPart<kSize>(plan.high, 0), numbers, part);
  SumsOf<kSize>(matrix, part, y);
  SumsOf<kSize>(matrix, numbers, lower);
  ForSums([&](unsigned q, unsigned i) { y[q][i] = y[q][i] + lower[q][i]; });
}

// The sums of chunks in at most three parts.
template <int kSize>
__device__ void SumsOfThree(const FragmentA& matrix, const ChunkPlan& plan, Numbers& numbers,
                            ChunkSums& y) {
  Numbers part;
  ChunkSums lower, least;
  Split(LeastOfPart<kSize>(plan.high, 0), numbers, part);
  SumsOf<kSize>(matrix, part, y);
  Split(LeastOfPart<kSize>(plan.high, 1), numbers, part);
  SumsOf<kSize>(matrix, part, lower);
  ForSums([&](unsigned q, unsigned i) {  // what the sum loses stays in `lower`
    const float a = y[q][i], b = lower[q][i], sum = a + b, other = sum - a;
    lower[q][i] = (a - (sum - other)) + (b - other);
    y[q][i] = sum;
  });
  SumsOf<kSize>(matrix, numbers, least);
  // The inner sum is exact: see kBinadesOfThree.
  ForSums([&](unsigned q, unsigned i) { y[q][i] = y[q][i] + (lower[q][i] + least[q][i]); });
}

// The sums of chunks of up to 80 binades, of as many parts as the warp's chunks need. With an exact
// factor they are multiplied by it.
template <int kSize>
__device__ void WideSums(const FragmentA& matrix, const ChunkPlan& plan, Numbers& numbers,
                         ChunkSums& y) {
  constexpr unsigned kShift = 64;  // takes numbers away from subnormals and overflow
  const bool raises = plan.low <= 16, lowers = plan.high >= 200;  // 80 binades reach only one
  const __nv_bfloat162 shift = cuda::PairOf(raises ? 0x1p64f : lowers ? 0x1p-64f : 1.0f);
  const std::uint32_t high = plan.high + (raises ? kShift : 0) - (lowers ? kShift : 0);
#pragma unroll
  for (unsigned i = 0; i < 2 * kProducts; ++i) {
    std::uint32_t& number = numbers[i / 2][i % 2];
    number = AsWord(__hmul2(AsPair(number), shift));
  }
  const std::uint32_t binades = plan.way == Way::kExact ? 0 : plan.high - plan.low + 1;
  const std::uint32_t most = __reduce_max_sync(kAllLanes, binades);
  double upper[kProducts * 4] = {}, lower[kProducts * 4] = {};
#pragma unroll 1
  for (std::uint32_t part = 0; part * kBinades<kSize> < most; ++part) {
    const bool is_last = (part + 1) * kBinades<kSize> >= most;
    Numbers of_part;
    Split(is_last ? 0 : LeastOfPart<kSize>(high, part), numbers, of_part);
    ChunkSums sums;
    SumsOf<kSize>(matrix, of_part, sums);
#pragma unroll
    for (unsigned i = 0; i < kProducts * 4; ++i) AddTo(upper[i], lower[i], sums[i / 4][i % 4]);
  }
  const double back = raises ? 0x1p-64 : lowers ? 0x1p64 : 1.0;
  const double factor = HasExactHadamardFactor(kSize) ? HadamardFactor(kSize) : 1.0f;
  double scales[2];  // of the chunks of this lane's outputs
#pragma unroll
  for (unsigned n = 0; n < 2; ++n) {
    scales[n] = factor * __shfl_sync(kAllLanes, back, 4 * (2 * (threadIdx.x % 4) + n));
  }
  ForSums([&](unsigned q, unsigned i) {
    y[q][i] = RoundedOnce(upper[4 * q + i], lower[4 * q + i], scales[i % 2]);
  });
}

// The sums of the warp's chunks, rounded to binary32, whatever their ways; those of a chunk of
// Way::kExact are arbitrary. Returns their factor.
template <int kSize>
__device__ float RareSums(const FragmentA& matrix, const ChunkPlan& plan, Numbers& numbers,
                          ChunkSums& y) {
  if (!__any_sync(kAllLanes, plan.way == Way::kWide)) {
    SumsOfThree<kSize>(matrix, plan, numbers, y);
    return HadamardFactor(kSize);
  }
  WideSums<kSize>(matrix, plan, numbers, y);
  return HasExactHadamardFactor(kSize) ? 1.0f : HadamardFactor(kSize);
}

// Outputs as BF16, a in the low half. Adding +0 makes a sum of zeros +0.
__device__ inline std::uint32_t OutputPair(float a, float b, float factor) {
  return PackBf16(__fmaf_rn(a, factor, 0.0f), __fmaf_rn(b, factor, 0.0f));
}

// A chunk in memory, for sums that no product makes: element k < length, times `decode` and rounded
// to BF16, with its sign.
struct SignedChunk {
  const Bf16* first;
  std::size_t stride;
  unsigned length;  // a multiple of the groups' size
  HadamardSigns signs;
  float decode;

  __device__ float operator()(unsigned k) const {
    const float value = RoundToBf16(__bfloat162float(first[stride * k]) * decode);
    const std::uint32_t sign = signs.Negates(static_cast<int>(k)) ? 0x80000000u : 0u;
    return __uint_as_float(__float_as_uint(value) ^ sign);
  }
};
// words[i], i < kChunk / 8: outputs 8 i + `place` of two chunks, or 0 beyond their length.
template <int kSize>
__device__ __noinline__ void ExactOutputs(const SignedChunk& low, const SignedChunk& high,
                                          unsigned place, std::uint32_t* words) {
  const auto output = [](const SignedChunk& chunk, unsigned at) {
    if (at >= chunk.length) return 0u;
    const unsigned first = at / kSize * kSize;
    const float y = ExactHadamardOutput(kSize, static_cast<int>(at - first), [&](int k) {
      return chunk(first + static_cast<unsigned>(k));
    });
    return __float_as_uint(RoundToBf16(y)) >> 16;
  };
#pragma unroll 1
  for (unsigned i = 0; i < kChunk / 8; ++i) {
    words[i] = output(low, 8 * i + place) | output(high, 8 * i + place) << 16;
  }
}

// The largest magnitude of many BF16 numbers; NaN is passed over.
class LargestOutput {
 public:
  __device__ void Add(std::uint32_t pair) {
    const std::uint32_t magnitudes = pair & 0x7FFF7FFFu;
    asm("max.bf16x2 %0, %0, %1;" : "+r"(largest_) : "r"(magnitudes));
  }
  __device__ void Add(const LargestOutput& other) { Add(other.largest_); }
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
