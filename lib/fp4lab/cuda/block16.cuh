// A block of 16 BF16 elements in a thread's registers, rounded to E2M1 codes by comparisons.
//
// Codes are monotone in magnitudes, so for a given factor they are set by seven thresholds, BF16
// numbers found by the definition itself: T[k] is the smallest magnitude (as bits) whose product
// with the factor, rounded to binary32, has a code of k or more. Magnitudes of BF16 are ordered as
// integers, and two of them are compared by one instruction.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/eight.cuh"
#include "fp4lab/cuda/scale.cuh"

namespace fp4lab::cuda {

// What the codes of a factor need, twice where a word's halves take it. With u = 2 * magnitude bits
// (or that + 1) and y = max(u, base) + shift, the thresholds of odd codes lie at
//   y = 0x100 (T[1]);  y + third = 0x200, 0x300, 0x400 (T[3], T[5], T[7]),
// those of even codes at
//   y + second = 0x100 (T[2]);  y + fourth = 0x200, 0x300 (T[4], T[6]),
// so that upper bytes count them: T[5], T[6] and T[7] are T[3], T[4] and T[3] times 2, 2 and 4.
// Up to `limit` inclusive; above it, and for NaN, codes come by the definition.
struct alignas(16) LowerThresholds {
  std::uint32_t base;   // 2 T[1] - 1
  std::uint32_t shift;  // 0xFF - base: one addition for both halves, as none borrows
  std::uint32_t third;
  std::uint32_t limit;  // the largest u before 2 T[4] * 4; 1 where the thresholds are not as above
};
struct alignas(8) UpperThresholds {
  std::uint32_t second, fourth;
};
struct Thresholds {
  LowerThresholds a;
  UpperThresholds b;
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

__device__ inline Thresholds ThresholdsOf(float factor) {
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
  sure = sure && t1 >= 0x80 && t3 - t1 >= 0x80 && t4 - t2 >= 0x80;
  if (!sure)
    return {{Twice(0xFFFF), 0u - Twice(0xFF00), Twice(0x8000), 1}, {Twice(0x8000), Twice(0x8000)}};
  const auto limit = static_cast<std::uint32_t>(2 * (t4 + 0x100) - 1);
  return {{Twice(2 * t1 - 1), 0u - Twice(2 * t1 - 0x100), Twice(0x100 + 2 * (t1 - t3)),
           min(limit, 2 * kInfBf16 + 1)},
          {Twice(2 * (t1 - t2)), Twice(0x100 + 2 * (t1 - t4))}};
}

// For each half of u: the count of thresholds of odd codes not above it, in the upper byte, and
// that of even codes.
struct Counts {
  std::uint32_t odd, even;
};
__device__ inline Counts Count(std::uint32_t u, const Thresholds& t) {
  const std::uint32_t y = __vmaxu2(u, t.a.base) + t.a.shift;
  return {__viaddmax_s16x2(y, t.a.third, __vmins2(y, 0x01FF01FFu)),
          __viaddmax_s16x2(y, t.b.fourth, __viaddmin_s16x2_relu(y, t.b.second, 0x01FF01FFu))};
}

// Eight codes: of the elements in the low and upper halves of w[0], then of w[1] and so on; u[i] =
// 2 w[i].
__device__ inline std::uint32_t CodesByThresholds(const std::uint32_t* w, const std::uint32_t* u,
                                                  const Thresholds& t) {
  std::uint32_t of[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Counts a = Count(u[2 * i], t), b = Count(u[2 * i + 1], t);
    // Bytes: elements 0, 2, 1, 3.
    const std::uint32_t codes =
        __byte_perm(a.odd, b.odd, 0x7351) + __byte_perm(a.even, b.even, 0x7351);
    std::uint32_t signs;  // bytes 0 or 255
    asm("prmt.b32 %0, %1, %2, 0xFBD9;" : "=r"(signs) : "r"(w[2 * i]), "r"(w[2 * i + 1]));
    of[i] = codes | (signs & 0x08080808u);
  }
  return __byte_perm(of[0], of[1], 0x5410) + (__byte_perm(of[0], of[1], 0x7632) << 4);
}

// The factors of all scale bytes and their thresholds, in shared memory.
struct BlockTables {
  LowerThresholds a[kScaleBytes];
  UpperThresholds b[kScaleBytes];
  float factors[kScaleBytes];
};

struct Block16Scaler {
  float per_amax;
  const BlockTables& tables;

  // Every thread calls it; the tables are ready after the thread block's next barrier.
  __device__ Block16Scaler(const float* amax, BlockTables* out) : tables(*out) {
    constexpr BlockFormat kFormat{FormatId::kE2M1, FormatId::kE4M3, 1, 16, ScaleRule::kNvfp4};
    const TensorScale tensor = TensorScaleOf(kFormat, *amax);
    per_amax = tensor.per_amax;
    for (unsigned i = threadIdx.x; i < kScaleBytes; i += blockDim.x) {
      const float factor = Multiplier(kFormat, static_cast<std::uint8_t>(i), tensor);
      out->factors[i] = factor;
      if constexpr (!kHasFp4Conversions) {
        const Thresholds t = ThresholdsOf(factor);
        out->a[i] = t.a;
        out->b[i] = t.b;
      }
    }
  }
  __device__ std::uint32_t Byte(std::uint32_t bf16) const {
    return NearestFp8Pair<FormatId::kE4M3>(__uint_as_float(bf16 << 16) * per_amax, 0.0f) & 0x7Fu;
  }
};

struct Quantized16 {
  uint2 codes;
  std::uint32_t byte;
  bool slow;  // not done yet: for Finish
};

// By the definition: a block with NaN, or beyond its limit.
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
  const RandomOctet<RandomBits::kNone> none(RandomStream{}, 0);
  out.codes.x = E2m1Codes<RandomBits::kNone>(EightOf(low), factor, true, none);
  out.codes.y = E2m1Codes<RandomBits::kNone>(EightOf(high), factor, true, none);
  return out;
}

// The largest of each half.
__device__ inline std::uint32_t LargestOf(const std::uint32_t (&u)[8]) {
  return __vmaxu2(__vimax3_u16x2(__vimax3_u16x2(u[0], u[1], u[2]), u[3], u[4]),
                  __vimax3_u16x2(u[5], u[6], u[7]));
}

// The 16 elements of w, two a word, the first in the low half of w[0]; u[i] = 2 w[i], both =
// LargestOf(u).
__device__ inline Quantized16 Quantize16(const std::uint32_t (&w)[8], const std::uint32_t (&u)[8],
                                         std::uint32_t both, const Block16Scaler& scaler) {
  const std::uint32_t largest = max(both & 0xFFFFu, both >> 16);
  Quantized16 out;
  out.byte = scaler.Byte(largest >> 1);
  if constexpr (kHasFp4Conversions) {
    const Halves<float> factor = Both(scaler.tables.factors[out.byte]);
    const RandomOctet<RandomBits::kNone> none(RandomStream{}, 0);
    out.codes.x =
        E2m1Codes<RandomBits::kNone>(EightOf({w[0], w[1], w[2], w[3]}), factor, false, none);
    out.codes.y =
        E2m1Codes<RandomBits::kNone>(EightOf({w[4], w[5], w[6], w[7]}), factor, false, none);
    out.slow = largest > 2 * kInfBf16 + 1;
  } else {
    const Thresholds t{scaler.tables.a[out.byte], scaler.tables.b[out.byte]};
    out.codes.x = CodesByThresholds(w, u, t);
    out.codes.y = CodesByThresholds(w + 4, u + 4, t);
    out.slow = largest > t.a.limit;
  }
  return out;
}

// Puts two blocks right that may be slow.
__device__ inline void Finish(const std::uint32_t (&w)[2][8], const Block16Scaler& scaler,
                              Quantized16 (*q)[2]) {
  if (!(*q)[0].slow && !(*q)[1].slow) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if ((*q)[i].slow) {
      (*q)[i] =
          QuantizeSlowly({w[i][0], w[i][1], w[i][2], w[i][3]}, {w[i][4], w[i][5], w[i][6], w[i][7]},
                         scaler.per_amax, scaler.tables.factors);
    }
  }
}

// Two blocks at a time: what one waits for, the other fills.
__device__ inline void QuantizePair(const std::uint32_t (&w)[2][8], const Block16Scaler& scaler,
                                    Quantized16 (*q)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::uint32_t u[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) u[k] = 2 * w[i][k];
    (*q)[i] = Quantize16(w[i], u, LargestOf(u), scaler);
  }
  Finish(w, scaler, q);
}

}  // namespace fp4lab::cuda
