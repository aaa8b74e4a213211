// The arithmetic of one mma.m16n8k64 on E2M1 with block scales, in integers, for host and device:
// the model "blackwell.mxf4.f32" of tensor/tensor_core.h, written again as a warp's lanes do it.
//
//   group g of 16 products: N_g = sum of products (exact, in quarters), scales of significands s
//   and exponents e; t_g = N_g s_a s_b, S_g = e_a + e_b
//   E = max(S_g of groups with a product that is not zero; exponent of c, if c != 0; -139)
//   d = RZ(sum_g trunc(t_g / 2^(E - 35)) + trunc(c / 2^(E - 35))), nothing: +0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "fp4lab/cuda/block_scaled_gemm.h"
#include "fp4lab/cuda/mma_fragment.h"

namespace fp4lab::cuda {

inline constexpr std::uint32_t kMmaNan = 0x7FFFFFFFu;
inline constexpr int kMmaFractionBits = 35, kMmaFloor = -139;
inline constexpr int kNothing = -(1 << 20);  // an exponent below all others
inline constexpr unsigned kMmaGroup = 16, kMmaGroups = kMmaK / kMmaGroup;
inline constexpr unsigned kRegistersRow = kMmaK / kNibbles;  // a row's codes

// body(0) to body(kCount - 1), the index a constant: what it indexes stays in registers.
template <unsigned kCount, class Body>
constexpr void ForEachIndex(const Body& body) {
  [&body]<unsigned... kIndex>(std::integer_sequence<unsigned, kIndex...>) {
    (body(std::integral_constant<unsigned, kIndex>{}), ...);
  }
  (std::make_integer_sequence<unsigned, kCount>{});
}

// significand * 2^exponent, the significand an integer; raw_exponent aligns (encoded - bias).
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

// value * 2^unit in the sum that is aligned to `exponent` where it counts.
struct StepTerm {
  std::int32_t value = 0;
  int unit = 0;
  int exponent = kNothing;  // kNothing: does not count
};

constexpr std::int64_t ShiftTruncated(std::int32_t value, int left) {
  const bool negative = value < 0;
  const auto magnitude = static_cast<std::uint64_t>(negative ? -std::int64_t{value} : value);
  const std::uint64_t shifted = left >= 0    ? magnitude << (left < 63 ? left : 63)
                                : left > -64 ? magnitude >> -left
                                             : 0;
  return negative ? -static_cast<std::int64_t>(shifted) : static_cast<std::int64_t>(shifted);
}

// The place of the highest bit of x > 0.
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

// sum * 2^unit as binary32, toward zero, subnormals kept; what truncates to nothing is +0.
constexpr std::uint32_t TruncatedBits(std::int64_t sum, int unit) {
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  if (magnitude == 0) return 0;
  const int exponent = HighestBit(magnitude) + unit;
  if (exponent > 127) return sign | 0x7F800000u;
  const int last = (exponent > -126 ? exponent : -126) - 23;  // of the last place kept
  const int right = last - unit;
  const std::uint64_t kept = right > 63 ? 0 : right >= 0 ? magnitude >> right : magnitude << -right;
  if (kept == 0) return 0;
  // The implicit bit of a normal number adds 1 to the exponent's field.
  return sign | ((static_cast<std::uint32_t>(last + 149) << 23) + static_cast<std::uint32_t>(kept));
}

// One instruction for one output. c and the result are binary32 bits.
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

// d of one (row of a, row of b): their codes, a register for every eight k, and their registers of
// scales from byte `byte_id` on.
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

// The instruction as one lane does it for its register `reg` of d: d + a b^T. `warp` answers with
// the registers of any lane: warp.A(reg, lane), warp.B(reg, lane), warp.ScaleA(lane),
// warp.ScaleB(lane); all lanes ask for the same registers in the same order.
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
