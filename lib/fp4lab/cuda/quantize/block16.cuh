// Quantizes a block of 16 BF16 elements in a thread's registers to E2M1 codes: RNE by the chip's
// conversion instructions or else by comparisons, stochastically as convert.cuh does.
//
// The comparisons: codes are monotone in magnitudes, so seven thresholds for each factor determine
// them. T[k] is the smallest BF16 magnitude (as bits) whose product with the factor, rounded to
// binary32, has a code of k or more; the thresholds are found by evaluating this definition. BF16
// magnitudes are ordered as integers, and one instruction compares two of them.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/bf16_words.cuh"
#include "fp4lab/cuda/device/eight.cuh"
#include "fp4lab/cuda/quantize/scale.cuh"

namespace fp4lab::cuda {

// The thresholds of a factor as addends, each in both halves of a word. u is twice the bits of a
// magnitude, or that + 1, and below 0x8000.
//   odd codes:   u + first  >= 0x100 from T[1] on;  u + third  >= 0x200, 0x300, 0x400 from T[3],
//                T[5], T[7] on
//   even codes:  u + second >= 0x100 from T[2] on;  u + fourth >= 0x200, 0x300 from T[4], T[6] on
// The upper bytes of the sums therefore count thresholds. This needs T[5] = 2 T[3], T[6] = 2 T[4]
// and T[7] = 4 T[3] as numbers, which ThresholdsOf checks.
struct alignas(16) Thresholds {
  std::uint32_t first, second, third, fourth;
};
// Thresholds that give the codes of a block whose largest u is at most `limit`. Blocks with a
// larger u, and NaN, are quantized by the definition.
struct LimitedThresholds {
  Thresholds of;
  // The largest u below that of the magnitude 4 T[4]; from 4 T[4] on, u + fourth would count a
  // threshold too many. If the thresholds cannot be represented as above: 1, which only zeros have,
  // or -1 (no block) if shrinking may turn nonzero magnitudes into zeros.
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

// Searches T[k] near the magnitude middle / factor (inverse = 1 / factor); clears *sure if the
// search fails.
__device__ inline int ThresholdOf(int k, float middle, float factor, float inverse, bool* sure) {
  int bits = static_cast<int>(__float_as_uint(middle * inverse) >> 16) + 1;
  bits = min(max(bits, 2), static_cast<int>(kInfBf16) - 2);
  bits = bits - 1 + (CodeOfMagnitude(bits - 1, factor) < k ? 1 : 0) +
         (CodeOfMagnitude(bits, factor) < k ? 1 : 0) +
         (CodeOfMagnitude(bits + 1, factor) < k ? 1 : 0);
  *sure = *sure && CodeOfMagnitude(bits - 1, factor) < k && CodeOfMagnitude(bits, factor) >= k;
  return bits;
}

// The thresholds of `factor` for magnitudes that were multiplied by 2^-shrink.
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

// The numbers of thresholds of odd and of even codes that are not above u, in the upper byte of
// each half.
struct Counts {
  std::uint32_t odd, even;
};
__device__ inline Counts Count(std::uint32_t u, const Thresholds& t) {
  constexpr std::uint32_t kOnce = 0x01FF01FFu;
  return {__viaddmax_s16x2(u, t.third, __viaddmin_s16x2_relu(u, t.first, kOnce)),
          __viaddmax_s16x2(u, t.fourth, __viaddmin_s16x2_relu(u, t.second, kOnce))};
}

// Eight codes, ordered as the elements: those in the low and the upper half of w[0], then of w[1]
// and so on; u[i] = Magnitudes(w[i]).
__device__ inline std::uint32_t CodesByThresholds(const std::uint32_t* w, const std::uint32_t* u,
                                                  const Thresholds& t) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 1; i >= 0; --i) {
    std::uint32_t signs;  // of four elements: a byte of 0 or 255 for each
    asm("prmt.b32 %0, %1, %2, 0xFDB9;" : "=r"(signs) : "r"(w[2 * i]), "r"(w[2 * i + 1]));
    signs &= 0x08080808u;
#pragma unroll
    for (int k = 1; k >= 0; --k) {
      // dp4a adds up the signs and counts of a word in one byte of codes: its lower half times 1,
      // its upper half times 16.
      const Counts c = Count(u[2 * i + k], t);
      codes = __dp4a(signs, k == 0 ? 0x00001001u : 0x10010000u, 256 * codes);
      codes = __dp4a(c.even, 0x10000100u, __dp4a(c.odd, 0x10000100u, codes));
    }
  }
  return codes;
}

// The factors of all scale bytes and their thresholds. The tables lie in shared memory.
struct BlockTables {
  Thresholds thresholds[kScaleBytes];
  int limits[kScaleBytes];
  float factors[kScaleBytes];
};

template <RandomBits kBits>
inline constexpr bool kCompares = kBits == RandomBits::kNone && !kHasFp4Conversions;

// Computes block scales and holds the tables of a tensor. Comparisons in signed 16-bit integers
// need magnitudes below 2: if the tensor's amax is larger, all magnitudes are first multiplied by
// 2^-shrink. Magnitudes that underflow then are far below every threshold.
template <RandomBits kBits>
struct Block16Scaler {
  static constexpr int kMostShrink = 126;

  float per_amax;    // a block's shrunken amax * per_amax is its scale before encoding
  int shrink;        // magnitudes are multiplied by 2^-shrink
  std::uint32_t by;  // 2^-shrink as BF16, in both halves
  const BlockTables& tables;

  // Every thread of the thread block runs this constructor; the tables are ready after the next
  // barrier.
  __device__ Block16Scaler(const float* amax, BlockTables* out) : tables(*out) {
    const Nvfp4Tensor tensor(*amax);
    const int exponent = static_cast<int>(__float_as_uint(*amax) >> 23 & 0xFFu) - 127;
    shrink = !kCompares<kBits> || exponent < 0 || exponent > 127 ? 0 : min(exponent, kMostShrink);
    by = Twice((127 - shrink) << 7);
    per_amax = tensor.per_amax * __uint_as_float(static_cast<std::uint32_t>(127 + shrink) << 23);
    for (unsigned i = threadIdx.x; i < kScaleBytes; i += blockDim.x) {
      const float factor = tensor.Factor(i);
      out->factors[i] = factor;
      if constexpr (kCompares<kBits>) {
        const LimitedThresholds t = ThresholdsOf(factor, shrink);
        out->thresholds[i] = t.of;
        out->limits[i] = t.limit;
      }
    }
  }
  // per_amax for magnitudes that are not shrunken: the FoldedFactor of the tensor.
  __device__ float PerAmax() const {
    return per_amax * __uint_as_float(static_cast<std::uint32_t>(127 - shrink) << 23);
  }
  // u of both elements of w: twice the bits of their shrunken magnitudes; the lowest bit of each
  // half is arbitrary.
  __device__ std::uint32_t Magnitudes(std::uint32_t w) const {
    if constexpr (kCompares<kBits>) asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(w) : "r"(by));
    return 2 * w;
  }
  // The scale byte of a block with this shrunken amax.
  __device__ std::uint32_t Byte(float amax) const {
    return NearestFp8Pair<FormatId::kE4M3>(amax * per_amax, 0.0f);
  }
};

struct Quantized16 {
  uint2 codes;
  std::uint32_t byte;
  bool slow = false;  // whether the codes and the byte are still wrong; Finish corrects them
};

// Quantizes a block by the definition, RNE: for blocks with NaN or beyond their limit.
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

// The largest u, separately for the lower and the upper halves.
__device__ inline std::uint32_t LargestOf(const std::uint32_t (&u)[8]) {
  return __vmaxu2(__vimax3_u16x2(__vimax3_u16x2(u[0], u[1], u[2]), u[3], u[4]),
                  __vimax3_u16x2(u[5], u[6], u[7]));
}

// Quantizes the 16 elements of w, two in a word, the first in the low half of w[0]. u[i] =
// scaler.Magnitudes(w[i]), both = LargestOf(u). `block`: the number of the block, from which
// `random` makes its bits.
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

// Quantizes again those of two blocks that are marked slow.
template <RandomBits kBits>
__device__ void Finish(const std::uint32_t (&w)[2][8], const Block16Scaler<kBits>& scaler,
                       Quantized16 (*q)[2]) {
  if (!kCompares<kBits> || (!(*q)[0].slow && !(*q)[1].slow)) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Zeros already have the right codes.
    if ((*q)[i].slow && !AllZero(w[i])) {
      (*q)[i] =
          QuantizeSlowly({w[i][0], w[i][1], w[i][2], w[i][3]}, {w[i][4], w[i][5], w[i][6], w[i][7]},
                         scaler.PerAmax(), scaler.tables.factors);
    }
  }
}

// Quantizes two blocks, with the numbers `block` and block + apart: the instructions of one block
// fill the latencies of the other.
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
