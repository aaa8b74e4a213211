// Sums of Hadamard transforms of 16 to 128 BF16 numbers with any signs, on tensor cores. A warp
// transforms eight chunks of 128 numbers, which are one group or several. One product m16n8k16 sums
// over the lowest four bits of a number's place in its chunk, for all eight chunks. Eight products
// serve the other three bits, over which a thread sums the results in its registers.
//
// Tensor cores align their terms to the largest and cut off what lies below its 24th bit. So a sum
// is exact, in any order, if all terms are multiples of a number that is 2^-24 of a bound of all
// partial sums. The numbers of a chunk that span too many binades are added in parts by magnitude,
// each with exact sums. What lies far below a chunk's largest numbers seldom changes an output; so
// few chunks need more than two parts.
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
// second of which is not exact, for outputs that its error does not change; or by WideOutputs.
enum class Way : std::uint8_t { kOne, kTwo, kChecked, kWide };
struct ChunkPlan {
  Way way;
  std::uint32_t high, low;  // the exponent fields of the largest and the smallest magnitude but 0

  __device__ std::uint32_t Binades() const { return high - low + 1; }
};

template <int kSize>
constexpr std::uint32_t kBinades = BinadesOfPart(kSize);

// The least magnitude of part `part` of a chunk, as bits of BF16.
template <int kSize>
__device__ std::uint32_t LeastOfPart(std::uint32_t high, std::uint32_t part) {
  const std::uint32_t binades = kBinades<kSize> * (part + 1);
  return high >= binades ? (high + 1 - binades) << 7 : 0u;
}

// `most`, `least`: the chunk's largest and smallest nonzero magnitude as bits of BF16.
template <int kSize>
__device__ ChunkPlan PlanOfChunk(std::uint32_t most, std::uint32_t least) {
  if (most == 0) return {Way::kOne, 0, 0};
  ChunkPlan plan{Way::kWide, most >> 7, least >> 7};
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

// A bound of the error of a chunk's sums in kParts parts, if the last one has any binades.
template <int kSize, unsigned kParts>
__device__ float ErrorOfParts(std::uint32_t high) {
  return __uint_as_float((high - BinadesAboveError(kSize, kParts)) << 23);
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
  Split(LeastOfPart<kSize>(plan.high, 0), numbers, part);
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

// Outputs of sums that are known within bounds: bounds(q, i) is the least possible sum and the
// largest, each rounded to binary32. Returns whether both give the same outputs of this lane.
template <class Bounds>
__device__ bool RoundBounds(const Bounds& bounds, float factor, Outputs& outputs) {
  std::uint32_t different = 0;
#pragma unroll
  for (unsigned w = 0; w < kChunk / 8; ++w) {
    const float2 low = bounds(w / 2, w % 2 * 2), high = bounds(w / 2, w % 2 * 2 + 1);
    outputs[w] = OutputPair(low.x, high.x, factor);
    different |= outputs[w] ^ OutputPair(low.y, high.y, factor);
  }
  return different == 0;
}

// Outputs of sums with errors of at most error(q, i). Returns whether these change no output of the
// warp. An output that is certain is at least 2^7 times as large as the error.
template <int kSize, class Error>
__device__ bool RoundCheckedSums(const ChunkSums& y, const Error& error, Outputs& outputs) {
  const auto bounds = [&](unsigned q, unsigned i) {
    const float e = error(q, i);
    return float2{y[q][i] - e, y[q][i] + e};
  };
  return __all_sync(kAllLanes, RoundBounds(bounds, HadamardFactor(kSize), outputs));
}

// Outputs in at most two parts. `way`: the last of the warp's chunks' ways. Returns whether all of
// the warp's outputs are certain.
template <int kSize>
__device__ bool OutputsOfTwo(const FragmentA& matrix, const ChunkPlan& plan, Way way,
                             Numbers& numbers, Outputs& outputs) {
  ChunkSums y;
  SumsOfTwo<kSize>(matrix, plan, way == Way::kOne, numbers, y);
  if (way != Way::kChecked) {
    RoundSums(y, HadamardFactor(kSize), outputs);
    return true;
  }
  const float own = plan.way == Way::kChecked ? ErrorOfParts<kSize, 2>(plan.high) : 0.0f;
  float errors[2], relative[2];  // `relative`: the last addition's
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    errors[i] = OfOutputs(own, i);
    relative[i] = errors[i] > 0.0f ? 0x1p-24f : 0.0f;
  }
  return RoundCheckedSums<kSize>(
      y,
      [&](unsigned q, unsigned i) {
        return __fmaf_rn(fabsf(y[q][i]), relative[i % 2], errors[i % 2]);
      },
      outputs);
}

// a + b, rounded, and what the rounding loses (Knuth's TwoSum).
template <class T>
struct SumAndError {
  T sum, error;
};
template <class T>
__device__ SumAndError<T> TwoSum(T a, T b) {
  const T sum = a + b, other = sum - a;
  return {sum, (a - (sum - other)) + (b - other)};
}

// Outputs in three parts; chunks of Way::kChecked must have high > 64. Returns as OutputsOfTwo.
template <int kSize>
__device__ bool OutputsOfThree(const FragmentA& matrix, const ChunkPlan& plan, Numbers& numbers,
                               Outputs& outputs) {
  Numbers part;
  ChunkSums y, lower;
  Split(LeastOfPart<kSize>(plan.high, 0), numbers, part);
  SumsOf<kSize>(matrix, part, y);
  Split(LeastOfPart<kSize>(plan.high, 1), numbers, part);
  SumsOf<kSize>(matrix, part, lower);
  ForSums([&](unsigned q, unsigned i) {
    const auto [sum, error] = TwoSum(y[q][i], lower[q][i]);
    y[q][i] = sum;
    lower[q][i] = error;
  });
  {
    ChunkSums least;
    SumsOf<kSize>(matrix, numbers, least);
    ForSums([&](unsigned q, unsigned i) {
      const auto [sum, error] = TwoSum(y[q][i], lower[q][i] + least[q][i]);
      y[q][i] = sum;
      lower[q][i] = error;
    });
  }
  // Twice the bound: the inner sum errs by less than the third part.
  const float own = plan.way == Way::kChecked ? 2.0f * ErrorOfParts<kSize, 3>(plan.high) : 0.0f;
  const float errors[2] = {OfOutputs(own, 0), OfOutputs(own, 1)};
  return RoundCheckedSums<kSize>(
      y, [&](unsigned q, unsigned i) { return fabsf(lower[q][i]) + errors[i % 2]; }, outputs);
}

// high + low + x, rounded to binary64 in two numbers. Exact for sums of fewer than 106 bits.
__device__ inline void AddTo(double& high, double& low, double x) {
  const auto [sum, error] = TwoSum(high, x);
  low += error;
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

// Outputs of chunks of any numbers. Parts by magnitude are added in pairs of binary64, from the
// largest on, until the numbers that are left change no output of the warp; at most some 80
// binades. Returns whether the outputs of this lane are certain.
template <int kSize>
__device__ bool WideOutputs(const FragmentA& matrix, const ChunkPlan& plan, Numbers& numbers,
                            Outputs& outputs) {
  constexpr unsigned kShift = 64;  // takes numbers away from subnormals and overflow
  constexpr std::uint32_t kFirstParts = 4, kMostParts = 80 / kBinades<kSize>;
  const bool raises = plan.high <= 96, lowers = plan.high >= 200;
  const __nv_bfloat162 shift = cuda::PairOf(raises ? 0x1p64f : lowers ? 0x1p-64f : 1.0f);
#pragma unroll
  for (unsigned i = 0; i < 2 * kProducts; ++i) {
    std::uint32_t& number = numbers[i / 2][i % 2];
    number = AsWord(__hmul2(AsPair(number), shift));
  }
  const std::uint32_t high = plan.high + (raises ? kShift : 0) - (lowers ? kShift : 0);
  const double back = raises ? 0x1p-64 : lowers ? 0x1p64 : 1.0;
  const double factor = HasExactHadamardFactor(kSize) ? HadamardFactor(kSize) : 1.0f;
  std::uint32_t highs[2], binades[2];  // of the chunks of this lane's outputs
  double scales[2];
  bool finite = true;
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    highs[i] = OfOutputs(high, i);
    binades[i] = OfOutputs(plan.Binades(), i);
    scales[i] = factor * OfOutputs(back, i);
    if (OfOutputs(plan.high, i) == 255) finite = false;
  }
  const std::uint32_t most = __reduce_max_sync(kAllLanes, plan.Binades());
  double upper[kProducts * 4] = {}, lower[kProducts * 4] = {};
#pragma unroll 1
  for (std::uint32_t part = 0;; ++part) {
    const std::uint32_t added = (part + 1) * kBinades<kSize>;
    const bool is_last = added >= most || part + 1 == kMostParts;
    Numbers of_part;  // a chunk's last part has its subnormal numbers, too
    Split(added >= plan.Binades() ? 0 : LeastOfPart<kSize>(high, part), numbers, of_part);
    ChunkSums sums;
    SumsOf<kSize>(matrix, of_part, sums);
#pragma unroll
    for (unsigned i = 0; i < kProducts * 4; ++i) AddTo(upper[i], lower[i], sums[i / 4][i % 4]);
    if (!is_last && part + 1 != kFirstParts) continue;

    double errors[2];  // bounds of the sums of what is left
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t exponent = 1023 - 127 + 1 + HadamardStages(kSize) + highs[i] - added;
      errors[i] = added >= binades[i] ? 0.0 : __hiloint2double(static_cast<int>(exponent << 20), 0);
    }
    const auto bounds = [&](unsigned q, unsigned i) {
      const double sum = upper[4 * q + i], scale = scales[i % 2];
      if (errors[i % 2] == 0.0) {
        const float rounded = RoundedOnce(sum, lower[4 * q + i], scale);
        return float2{rounded, rounded};
      }
      const double error = errors[i % 2] + fabs(sum) * 0x1p-51;
      return float2{static_cast<float>((sum - error) * scale),
                    static_cast<float>((sum + error) * scale)};
    };
    constexpr float kLeft = HasExactHadamardFactor(kSize) ? 1.0f : HadamardFactor(kSize);
    const bool certain = RoundBounds(bounds, kLeft, outputs) && finite;
    if (is_last || __all_sync(kAllLanes, certain || !finite)) return certain;
  }
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
