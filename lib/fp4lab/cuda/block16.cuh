// A block of 16 BF16 elements in a thread's registers, rounded to E2M1 codes: to nearest by
// instructions of the chip or else by comparisons, stochastically as convert.cuh does.
//
// Comparisons: codes are monotone in magnitudes, so for a given factor they are set by seven
// thresholds, BF16 numbers found by the definition itself: T[k] is the smallest magnitude (as bits)
// whose product with the factor, rounded to binary32, has a code of k or more. Magnitudes of BF16
// are ordered as integers, and two of them are compared by one instruction.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/bf16_words.cuh"
#include "fp4lab/cuda/eight.cuh"
#include "fp4lab/cuda/scale.cuh"

namespace fp4lab::cuda {

// What the codes of a factor need, in both halves of a word. With u = 2 * magnitude bits (or that +
// 1), below 0x8000, the thresholds of odd codes lie at
//   u + first = 0x100 (T[1]);  u + third = 0x200, 0x300, 0x400 (T[3], T[5], T[7]),
// those of even codes at
//   u + second = 0x100 (T[2]);  u + fourth = 0x200, 0x300 (T[4], T[6]),
// so that upper bytes count them: T[5], T[6] and T[7] are T[3], T[4] and T[3] times 2, 2 and 4.
struct alignas(16) Thresholds {
  std::uint32_t first, second, third, fourth;
};
// Up to `limit` inclusive codes come by thresholds; above it, and for NaN, by the definition.
struct LimitedThresholds {
  Thresholds of;
  // The largest u before 2 T[4] * 4. Where thresholds are not as above, that of zeros, or none if
  // what is not zero may be one after shrinking.
  int limit;
};

__device__ inline std::uint32_t Twice(int value) {
  const auto low = static_cast<std::uint32_t>(value) & 0xFFFFu;
  return low << 16 | low;
}

__device__ inline int CodeOfMagnitude(int bits, float factor) {
  const float v = __uint_as_float(static_cast<std::uint32_t>(bits) << 16) * factor;
  return static_cast<int>(NearestE2m1(v) - kIntegerBits);
}

// T[k], where the product with the factor is about `middle`; *sure is cleared if it is not found.
__device__ inline int ThresholdOf(int k, float middle, float factor, float inverse, bool* sure) {
  int bits = static_cast<int>(__float_as_uint(middle * inverse) >> 16) + 1;
  bits = min(max(bits, 2), static_cast<int>(kInfBf16) - 2);
  bits = bits - 1 + (CodeOfMagnitude(bits - 1, factor) < k ? 1 : 0) +
         (CodeOfMagnitude(bits, factor) < k ? 1 : 0) +
         (CodeOfMagnitude(bits + 1, factor) < k ? 1 : 0);
  *sure = *sure && CodeOfMagnitude(bits - 1, factor) < k && CodeOfMagnitude(bits, factor) >= k;
  return bits;
}

// Of magnitudes that are multiplied by 2^-shrink first.
__device__ inline LimitedThresholds ThresholdsOf(float factor, int shrink) {
  const float inverse = 1.0f / factor;
  bool sure = true;
  const int t1 = ThresholdOf(1, 0.25f, factor, inverse, &sure);
  const int t2 = ThresholdOf(2, 0.75f, factor, inverse, &sure);
  const int t3 = ThresholdOf(3, 1.25f, factor, inverse, &sure);
  const int t4 = ThresholdOf(4, 1.75f, factor, inverse, &sure);
  const int upper[3] = {t3 + 0x80, t4 + 0x80, t3 + 0x100};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    sure = sure && upper[i] < static_cast<int>(kInfBf16) &&
           CodeOfMagnitude(upper[i] - 1, factor) < 5 + i &&
           CodeOfMagnitude(upper[i], factor) >= 5 + i;
  }
  const int less = shrink * 0x80;
  sure = sure && t1 >= 0x80 + less && t4 - less < 0x4000 && t3 - t1 >= 0x80 && t4 - t2 >= 0x80;
  if (!sure) {
    const std::uint32_t never = Twice(-0x8000);
    return {{never, never, never, never}, shrink == 0 ? 1 : -1};
  }
  return {{Twice(0x100 - 2 * (t1 - less)), Twice(0x100 - 2 * (t2 - less)),
           Twice(0x200 - 2 * (t3 - less)), Twice(0x200 - 2 * (t4 - less))},
          min(2 * (t4 - less + 0x100) - 1, 0x7FFF)};
}

// For each half of u: the count of thresholds of odd codes not above it, in the upper byte, and
// that of even codes.
struct Counts {
  std::uint32_t odd, even;
};
__device__ inline Counts Count(std::uint32_t u, const Thresholds& t) {
  constexpr std::uint32_t kOnce = 0x01FF01FFu;
  return {__viaddmax_s16x2(u, t.third, __viaddmin_s16x2_relu(u, t.first, kOnce)),
          __viaddmax_s16x2(u, t.fourth, __viaddmin_s16x2_relu(u, t.second, kOnce))};
}

// Eight codes: of the elements in the low and upper halves of w[0], then of w[1] and so on; u[i] =
// Magnitudes(w[i]).
__device__ inline std::uint32_t CodesByThresholds(const std::uint32_t* w, const std::uint32_t* u,
                                                  const Thresholds& t) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 1; i >= 0; --i) {
    std::uint32_t signs;  // of four elements: bytes 0 or 255
    asm("prmt.b32 %0, %1, %2, 0xFDB9;" : "=r"(signs) : "r"(w[2 * i]), "r"(w[2 * i + 1]));
    signs &= 0x08080808u;
#pragma unroll
    for (int k = 1; k >= 0; --k) {
      // A word's signs and counts, those of its upper half 16 times, in one byte.
      const Counts c = Count(u[2 * i + k], t);
      codes = __dp4a(signs, k == 0 ? 0x00001001u : 0x10010000u, 256 * codes);
      codes = __dp4a(c.even, 0x10000100u, __dp4a(c.odd, 0x10000100u, codes));
    }
  }
  return codes;
}

// The factors of all scale bytes and their thresholds, in shared memory.
struct BlockTables {
  Thresholds thresholds[kScaleBytes];
  int limits[kScaleBytes];
  float factors[kScaleBytes];
};

template <RandomBits kBits>
inline constexpr bool kCompares = kBits == RandomBits::kNone && !kHasFp4Conversions;

// Magnitudes are compared below 2, as 16-bit integers with a sign: where the tensor's amax is
// larger, all are multiplied by a power of two first. What underflows is far below every threshold.
template <RandomBits kBits>
struct Block16Scaler {
  static constexpr int kMostShrink = 126;

  float per_amax;    // of shrunken magnitudes
  int shrink;        // they are multiplied by 2^-shrink
  std::uint32_t by;  // 2^-shrink, two BF16 numbers
  const BlockTables& tables;

  // Every thread calls it; the tables are ready after the thread block's next barrier.
  __device__ Block16Scaler(const float* amax, BlockTables* out) : tables(*out) {
    constexpr BlockFormat kFormat{FormatId::kE2M1, FormatId::kE4M3, 1, 16, ScaleRule::kNvfp4};
    const TensorScale tensor = TensorScaleOf(kFormat, *amax);
    const int exponent = static_cast<int>(__float_as_uint(*amax) >> 23 & 0xFFu) - 127;
    shrink = !kCompares<kBits> || exponent < 0 || exponent > 127 ? 0 : min(exponent, kMostShrink);
    by = Twice((127 - shrink) << 7);
    per_amax = tensor.per_amax * __uint_as_float(static_cast<std::uint32_t>(127 + shrink) << 23);
    for (unsigned i = threadIdx.x; i < kScaleBytes; i += blockDim.x) {
      const float factor = Multiplier(kFormat, static_cast<std::uint8_t>(i), tensor);
      out->factors[i] = factor;
      if constexpr (kCompares<kBits>) {
        const LimitedThresholds t = ThresholdsOf(factor, shrink);
        out->thresholds[i] = t.of;
        out->limits[i] = t.limit;
      }
    }
  }
  // Of magnitudes as they are: the tensor's K.
  __device__ float PerAmax() const {
    return per_amax * __uint_as_float(static_cast<std::uint32_t>(127 - shrink) << 23);
  }
  // Twice the magnitudes' bits, shrunken, of both elements; the lowest bits count for nothing.
  __device__ std::uint32_t Magnitudes(std::uint32_t w) const {
    if constexpr (kCompares<kBits>) asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(w) : "r"(by));
    return 2 * w;
  }
  // Of a block's largest magnitude, shrunken.
  __device__ std::uint32_t Byte(float amax) const {
    return NearestFp8Pair<FormatId::kE4M3>(amax * per_amax, 0.0f);
  }
};

struct Quantized16 {
  uint2 codes;
  std::uint32_t byte;
  bool slow = false;  // not done yet: for Finish
};

// To nearest by the definition: a block with NaN, or beyond its limit.
__device__ __noinline__ inline Quantized16 QuantizeSlowly(uint4 low, uint4 high, float per_amax,
                                                          const float* factors) {
  const std::uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t m = w[i / 2] >> (16 * (i % 2)) & 0x7FFFu;
    if (m <= kInfBf16) largest = max(largest, m);
  }
  Quantized16 out;
  out.slow = false;
  out.byte =
      NearestFp8Pair<FormatId::kE4M3>(__uint_as_float(largest << 16) * per_amax, 0.0f) & 0x7Fu;
  const Halves<float> factor = Both(factors[out.byte]);
  out.codes.x = E2m1Codes<RandomBits::kNone>(EightOf(low), factor, true, {});
  out.codes.y = E2m1Codes<RandomBits::kNone>(EightOf(high), factor, true, {});
  return out;
}

// The largest of each half.
__device__ inline std::uint32_t LargestOf(const std::uint32_t (&u)[8]) {
  return __vmaxu2(__vimax3_u16x2(__vimax3_u16x2(u[0], u[1], u[2]), u[3], u[4]),
                  __vimax3_u16x2(u[5], u[6], u[7]));
}

// The 16 elements of w, two a word, the first in the low half of w[0]; u[i] =
// scaler.Magnitudes(w[i]), both = LargestOf(u). `block`: its number, of which `random` is a
// function.
template <RandomBits kBits>
__device__ Quantized16 Quantize16(const std::uint32_t (&w)[8], const std::uint32_t (&u)[8],
                                  std::uint32_t both, const Block16Scaler<kBits>& scaler,
                                  const KeyedStream& random, std::uint32_t block) {
  Quantized16 out;
  if constexpr (kCompares<kBits>) {
    const std::uint32_t largest = max(both & 0xFFFFu, both >> 16);
    out.byte = scaler.Byte(__uint_as_float(largest << 15 & 0x7FFF0000u));
    const Thresholds t = scaler.tables.thresholds[out.byte];
    out.codes.x = CodesByThresholds(w, u, t);
    out.codes.y = CodesByThresholds(w + 4, u + 4, t);
    out.slow = static_cast<int>(largest) > scaler.tables.limits[out.byte];
  } else {
    std::uint32_t x[8] = {w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]};
    CleanNan(x);
    out.byte = scaler.Byte(AmaxOfWords(x));
    const Halves<float> factor = Both(scaler.tables.factors[out.byte]);
    const RandomOctet<kBits> first(random, 2 * block), second(random, 2 * block + 1);
    out.codes.x = E2m1Codes<kBits>(EightOf({x[0], x[1], x[2], x[3]}), factor, false, first);
    out.codes.y = E2m1Codes<kBits>(EightOf({x[4], x[5], x[6], x[7]}), factor, false, second);
  }
  return out;
}

__device__ inline bool AllZero(const std::uint32_t (&w)[8]) {
  return ((w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]) & 0x7FFF7FFFu) == 0;
}

// Puts two blocks right that may be slow.
template <RandomBits kBits>
__device__ void Finish(const std::uint32_t (&w)[2][8], const Block16Scaler<kBits>& scaler,
                       Quantized16 (*q)[2]) {
  if (!kCompares<kBits> || (!(*q)[0].slow && !(*q)[1].slow)) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Codes of zeros are right already.
    if ((*q)[i].slow && !AllZero(w[i])) {
      (*q)[i] =
          QuantizeSlowly({w[i][0], w[i][1], w[i][2], w[i][3]}, {w[i][4], w[i][5], w[i][6], w[i][7]},
                         scaler.PerAmax(), scaler.tables.factors);
    }
  }
}

// Two blocks at a time, `apart` numbers from each other: what one waits for, the other fills.
template <RandomBits kBits>
__device__ void QuantizePair(const std::uint32_t (&w)[2][8], const Block16Scaler<kBits>& scaler,
                             const KeyedStream& random, std::uint32_t block, std::uint32_t apart,
                             Quantized16 (*q)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::uint32_t u[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) u[k] = scaler.Magnitudes(w[i][k]);
    (*q)[i] = Quantize16(w[i], u, LargestOf(u), scaler, random,
                         block + static_cast<std::uint32_t>(i) * apart);
  }
  Finish(w, scaler, q);
}

}  // namespace fp4lab::cuda
