// The random Hadamard transform of one group in the registers of a thread.
#pragma once

#include <cstdint>

#include "fp4lab/formats/format.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::cuda {

// The largest span of a group's terms, in binades, for which their binary32 sums are exact. BF16
// terms are multiples of 2^(E - 7), where E is the least exponent; a sum of 2^k terms that span s
// binades has at most s + 8 + k bits, and binary32 has 24.
constexpr int ExactSpan(int size) { return size == 16 ? 12 : 11; }

// Whether all binary32 sums of a group of BF16 values are exact, normal and finite. largest,
// smallest: exponent fields of the largest and of the smallest nonzero magnitude.
__device__ inline bool SumsAreExact(int size, int largest, int smallest) {
  return largest - smallest <= ExactSpan(size) && largest < 255 - 6 && smallest > 16;
}

// The exact sum of BF16 values, the same as ExactBf16Sum's (transform/exact_hadamard.h). Few groups
// need this class, so it saves registers: the digits are in local memory, and no loop is unrolled.
class SlowExactSum {
 public:
  __device__ SlowExactSum() {
#pragma unroll 1
    for (int i = 0; i < kDigits; ++i) digits_[i] = 0;
  }
  __device__ void Add(std::uint32_t bf16) {
    const std::uint32_t e = bf16 >> 7 & 0xFFu;
    const long long significand = (bf16 & 0x7Fu) | (e > 0 ? 0x80u : 0u);
    const std::uint32_t shift = e > 0 ? e - 1 : 0;
    const long long term = significand << (shift % 32);
    digits_[shift / 32] += (bf16 & 0x8000u) != 0 ? -term : term;
  }
  // The sum times 2^scale, rounded once to binary32; zero is +0.
  __device__ float Round(int scale) {
    const bool negative = Carry() < 0;
    if (negative) {
#pragma unroll 1
      for (int i = 0; i < kDigits; ++i) digits_[i] = -digits_[i];
      Carry();
    }
    int top = kDigits - 1;
#pragma unroll 1
    while (top > 0 && digits_[top] == 0) --top;
    if (digits_[top] == 0) return 0.0f;
    // lead: the 64 leading bits, from the digits top to top - 2; sticky: whether any bit below is
    // 1.
    const auto digit = [this](int i) {
      return i < 0 ? 0ull : static_cast<unsigned long long>(digits_[i]);
    };
    const int zeros = __clz(static_cast<int>(digits_[top]));
    const unsigned long long upper = digit(top) << 32 | digit(top - 1);
    const unsigned long long lead = upper << zeros | digit(top - 2) << zeros >> 32;
    bool sticky = (digit(top - 2) << zeros & 0xFFFFFFFFull) != 0;
#pragma unroll 1
    for (int i = 0; i < top - 2; ++i) sticky = sticky || digits_[i] != 0;
    // The leading 50 bits and a sticky bit round to 24 bits as the whole sum does.
    const unsigned long long kept = lead >> 13 | (sticky || (lead & 0x1FFFu) != 0 ? 1u : 0u);
    const int exponent = 32 * (top - 1) - zeros + 13 - 133 + scale;
    const double power = __longlong_as_double(static_cast<long long>(exponent + 1023) << 52);
    const double magnitude = static_cast<double>(kept) * power;
    return static_cast<float>(negative ? -magnitude : magnitude);
  }

 private:
  static constexpr int kDigits = 10;
  __device__ long long Carry() {
    long long carry = 0;
#pragma unroll 1
    for (int i = 0; i < kDigits; ++i) {
      const long long digit = digits_[i] + carry;
      carry = digit >> 32;
      digits_[i] = digit & 0xFFFFFFFFll;
    }
    return carry;
  }
  long long digits_[kDigits];
};

// Output j of a transformed group of `size` BF16 values, `stride` elements apart, before the
// rounding to BF16.
__device__ __noinline__ inline float SlowHadamardOutput(const std::uint16_t* group, int stride,
                                                        int size, std::uint32_t sign_mask, int j) {
  SlowExactSum sum;
  bool nan = false, plus = false, minus = false;
#pragma unroll 1
  for (int k = 0; k < size; ++k) {
    const auto odd = static_cast<std::uint32_t>(__popc(static_cast<unsigned>(j & k)));
    const std::uint32_t u = group[k * stride] ^ ((sign_mask >> k ^ odd) & 1u) << 15;
    const std::uint32_t magnitude = u & 0x7FFFu;
    nan = nan || magnitude > 0x7F80u;
    plus = plus || u == 0x7F80u;
    minus = minus || u == 0xFF80u;
    if (magnitude < 0x7F80u) sum.Add(u);
  }
  if (nan || (plus && minus)) return __uint_as_float(0x7FC00000u);
  if (plus || minus) return __uint_as_float(plus ? 0x7F800000u : 0xFF800000u);
  return size == 16 ? sum.Round(-2) : sum.Round(0) * kInverseSqrt32;
}

// Transforms group[k], k < kSize, in place: BF16 values in, transformed BF16 values out.
template <int kSize>
__device__ void TransformGroup(float (&group)[kSize], std::uint32_t sign_mask) {
  std::uint32_t largest = 0, smallest = 0x7F800000u;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const std::uint32_t magnitude = __float_as_uint(group[k]) & 0x7FFFFFFFu;
    largest = max(largest, magnitude);
    smallest = min(smallest, magnitude == 0 ? 0x7F800000u : magnitude);
  }
  if (!SumsAreExact(kSize, static_cast<int>(largest >> 23), static_cast<int>(smallest >> 23))) {
    std::uint16_t in[kSize];
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      in[k] = static_cast<std::uint16_t>(__float_as_uint(group[k]) >> 16);
    }
#pragma unroll 1
    for (int j = 0; j < kSize; ++j) {
      const float y = RoundToBf16(SlowHadamardOutput(in, 1, kSize, sign_mask, j));
#pragma unroll
      for (int k = 0; k < kSize; ++k) group[k] = k == j ? y : group[k];
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    group[k] = __uint_as_float(__float_as_uint(group[k]) ^ (sign_mask >> k & 1u) << 31);
  }
#pragma unroll
  for (int half = 1; half < kSize; half *= 2) {
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      if ((k & half) != 0) continue;
      const float a = group[k], b = group[k + half];
      group[k] = a + b;
      group[k + half] = a - b;
    }
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const float scaled = group[k] * (kSize == 16 ? 0.25f : kInverseSqrt32);
    group[k] = RoundToBf16(scaled + 0.0f);  // a sum of zero is +0
  }
}

}  // namespace fp4lab::cuda
