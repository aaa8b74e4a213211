// The arithmetic of one mma.m16n8k64 on E2M1 with block scales, in integers, for host and device:
// the model "blackwell.mxf4.f32" of tensor/tensor_core.h, arranged as a warp's lanes compute it.
//
//   group g of 16 products, with scales x_a and x_b of exponents e_a and e_b (encoded - bias):
//     N_g = sum of the products, exact (a multiple of 1/4)
//     t_g = N_g x_a x_b
//     S_g = e_a + e_b
//   E = max(S_g of groups with a nonzero product; exponent of c, if c != 0; -139)
//   T = sum_g trunc(t_g / 2^(E - 35)) + trunc(c / 2^(E - 35))
//   d = RZ(T 2^(E - 35)), where a zero is +0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "fp4lab/cuda/gemm/block_scaled_gemm.h"
#include "fp4lab/cuda/gemm/mma_fragment.h"

namespace fp4lab::cuda {

inline constexpr std::uint32_t kMmaNan = 0x7FFFFFFFu;
inline constexpr int kMmaFractionBits = 35, kMmaFloor = -139;
inline constexpr int kNothing = -(1 << 20);  // an exponent below that of every term
inline constexpr unsigned kMmaGroup = 16, kMmaGroups = kMmaK / kMmaGroup;
inline constexpr unsigned kRegistersRow = kMmaK / kNibbles;  // registers with the codes of a row

// Calls body(0) to body(kCount - 1) with the index as a constant, so that arrays indexed by it stay
// in registers.
template <unsigned kCount, class Body>
constexpr void ForEachIndex(const Body& body) {
  [&body]<unsigned... kIndex>(std::integer_sequence<unsigned, kIndex...>) {
    (body(std::integral_constant<unsigned, kIndex>{}), ...);
  }
  (std::make_integer_sequence<unsigned, kCount>{});
}

// The number significand * 2^exponent with an integer significand. raw_exponent (encoded - bias) is
// the exponent by which the sum is aligned.
struct ScaleNumber {
  std::uint32_t significand;
  int exponent, raw_exponent;
  bool is_nan;
};

template <BlockScaling kScaling>
constexpr ScaleNumber ReadScale(std::uint32_t byte) {
  if constexpr (kScaling == BlockScaling::kMxfp4) {
    const int exponent = static_cast<int>(byte) - 127;
    return {1, exponent, exponent, byte == 0xFFu};
  } else {
    const std::uint32_t field = byte >> 3 & 0xFu, fraction = byte & 7u;
    const int raw = (field == 0 ? 1 : static_cast<int>(field)) - 7;
    return {field == 0 ? fraction : fraction + 8, raw - 3, raw, (byte & 0x7Fu) == 0x7Fu};
  }
}

// Twice the magnitude of code & 7: 0, 1, 2, 3, 4, 6, 8, 12.
constexpr std::int32_t DoubledMagnitude(std::uint32_t code) {
  return static_cast<std::int32_t>(0xC8643210u >> (code & 7u) * 4 & 0xFu);
}

// Four times the sum of the eight products of two registers.
constexpr std::int32_t SumOfProducts(std::uint32_t a, std::uint32_t b) {
  std::int32_t sum = 0;
  for (unsigned i = 0; i < kNibbles; ++i) {
    const std::uint32_t x = a >> 4 * i, y = b >> 4 * i;
    const std::int32_t product = DoubledMagnitude(x) * DoubledMagnitude(y);
    sum += ((x ^ y) & 8u) != 0 ? -product : product;
  }
  return sum;
}

// Whether one of the eight products is not zero.
constexpr bool HasProduct(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMagnitudes = 0x77777777u;
  return ((((a & kMagnitudes) + kMagnitudes) & ((b & kMagnitudes) + kMagnitudes)) & 0x88888888u) !=
         0;
}

// A term value * 2^unit of the sum. `exponent` takes part in the maximum to which the sum is
// aligned.
struct StepTerm {
  std::int32_t value = 0;
  int unit = 0;
  int exponent = kNothing;  // kNothing: the group has no nonzero product
};

constexpr std::int64_t ShiftTruncated(std::int32_t value, int left) {
  const bool negative = value < 0;
  const auto magnitude = static_cast<std::uint64_t>(negative ? -std::int64_t{value} : value);
  const std::uint64_t shifted = left >= 0    ? magnitude << (left < 63 ? left : 63)
                                : left > -64 ? magnitude >> -left
                                             : 0;
  return negative ? -static_cast<std::int64_t>(shifted) : static_cast<std::int64_t>(shifted);
}

// The index of the highest bit that is 1, for x > 0.
constexpr int HighestBit(std::uint64_t x) {
  int place = 0;
  for (int step = 32; step > 0; step /= 2) {
    if (x >> step != 0) {
      x >>= step;
      place += step;
    }
  }
  return place;
}

// The bits of sum * 2^unit as binary32, rounded toward zero, subnormals kept; a result of zero is
// +0.
constexpr std::uint32_t TruncatedBits(std::int64_t sum, int unit) {
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  if (magnitude == 0) return 0;
  const int exponent = HighestBit(magnitude) + unit;
  if (exponent > 127) return sign | 0x7F800000u;
  const int last = (exponent > -126 ? exponent : -126) - 23;  // exponent of the last place kept
  const int right = last - unit;
  const std::uint64_t kept = right > 63 ? 0 : right >= 0 ? magnitude >> right : magnitude << -right;
  if (kept == 0) return 0;
  // The implicit bit of a normal number adds 1 to the exponent field.
  return sign | ((static_cast<std::uint32_t>(last + 149) << 23) + static_cast<std::uint32_t>(kept));
}

// One output of one instruction. c and the result are binary32 bits.
constexpr std::uint32_t MmaStep(const StepTerm (&terms)[kMmaGroups], bool has_nan,
                                std::uint32_t c) {
  const std::uint32_t magnitude = c & 0x7FFFFFFFu;
  if (has_nan || magnitude > 0x7F800000u) return kMmaNan;
  if (magnitude == 0x7F800000u) return c;
  const int field = static_cast<int>(magnitude >> 23);
  const int c_exponent = (field == 0 ? 1 : field) - 127;
  const auto c_significand =
      static_cast<std::int32_t>((magnitude & 0x7FFFFFu) | (field == 0 ? 0u : 0x800000u));
  int e = c_significand == 0 ? kNothing : c_exponent;
  for (const StepTerm& term : terms) e = term.exponent > e ? term.exponent : e;
  if (e == kNothing) return 0;
  const int unit = (e > kMmaFloor ? e : kMmaFloor) - kMmaFractionBits;
  std::int64_t sum =
      ShiftTruncated((c >> 31) != 0 ? -c_significand : c_significand, c_exponent - 23 - unit);
  for (const StepTerm& term : terms) sum += ShiftTruncated(term.value, term.unit - unit);
  return TruncatedBits(sum, unit);
}

// One output of one instruction, from the codes of a row of a and of a row of b (a register for
// every eight k) and their registers of scales, shifted so that the first scale is in the lowest
// byte.
template <BlockScaling kScaling>
constexpr std::uint32_t MmaElement(const std::uint32_t (&a)[kRegistersRow],
                                   const std::uint32_t (&b)[kRegistersRow], std::uint32_t a_scales,
                                   std::uint32_t b_scales, std::uint32_t c) {
  constexpr unsigned kGroupsOfScale = static_cast<unsigned>(GroupOf(kScaling)) / kMmaGroup;
  StepTerm terms[kMmaGroups];
  bool has_nan = false;
  ForEachIndex<kMmaGroups>([&](auto g) {
    constexpr unsigned kShift = g() / kGroupsOfScale * 8, kFirst = 2 * g(), kSecond = kFirst + 1;
    const ScaleNumber x = ReadScale<kScaling>(a_scales >> kShift & 0xFFu);
    const ScaleNumber y = ReadScale<kScaling>(b_scales >> kShift & 0xFFu);
    has_nan = has_nan || x.is_nan || y.is_nan;
    const std::uint32_t scale = x.significand * y.significand;
    const bool counts =
        scale != 0 && (HasProduct(a[kFirst], b[kFirst]) || HasProduct(a[kSecond], b[kSecond]));
    const std::int32_t sum =
        SumOfProducts(a[kFirst], b[kFirst]) + SumOfProducts(a[kSecond], b[kSecond]);
    terms[g()] = {sum * static_cast<std::int32_t>(scale), x.exponent + y.exponent - 2,
                  counts ? x.raw_exponent + y.raw_exponent : kNothing};
  });
  return MmaStep(terms, has_nan, c);
}

// The instruction as a lane computes its register `reg` of d: d + a b^T. `warp` returns the
// registers of any lane: warp.A(reg, lane), warp.B(reg, lane), warp.ScaleA(lane),
// warp.ScaleB(lane). All lanes ask for the same registers in the same order.
template <BlockScaling kScaling, class Warp>
constexpr std::uint32_t MmaInSoftware(const Warp& warp, unsigned lane, unsigned reg,
                                      ScaleSelector a_selector, ScaleSelector b_selector,
                                      std::uint32_t d) {
  const FragmentElement e = ElementOfD(lane, reg);
  std::uint32_t a[kRegistersRow], b[kRegistersRow];
  ForEachIndex<kRegistersRow>([&](auto w) {
    const FragmentPlace in_a = PlaceOfA({e.row, w() * kNibbles});
    const FragmentPlace in_b = PlaceOfB({e.col, w() * kNibbles});
    a[w()] = warp.A(in_a.reg, in_a.lane);
    b[w()] = warp.B(in_b.reg, in_b.lane);
  });
  const std::uint32_t a_scales = warp.ScaleA(LaneOfScaleA(e.row, a_selector.thread_id));
  const std::uint32_t b_scales = warp.ScaleB(LaneOfScaleB(e.col, b_selector.thread_id));
  return MmaElement<kScaling>(a, b, a_scales >> a_selector.byte_id * 8,
                              b_scales >> b_selector.byte_id * 8, d);
}

}  // namespace fp4lab::cuda
