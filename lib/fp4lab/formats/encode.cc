#include "fp4lab/formats/encode.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/encode_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/formats/encode.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using V = hn::Vec<D>;

// Calls body(in + i, i, out + i) for each vector of elements. A partial last vector goes through
// buffers, not through a one-lane tag, for which Shl and Shr of Highway 1.0.3 are wrong.
template <class D, class In, class Out, class Body>
HWY_INLINE void ForVectors(D d, std::size_t count, const In* in, Out* out, Body&& body) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(in + i, i, out + i);
  if (hn::MaxLanes(d) == 1 || i == count) return;
  In last_in[hn::MaxLanes(d)] = {};
  Out last_out[hn::MaxLanes(d)];
  std::copy_n(in + i, count - i, last_in);
  body(last_in, i, last_out);
  std::copy_n(last_out, count - i, out + i);
}

// RoundMagnitude of format.h, lane by lane. `a` holds the bits of binary32 magnitudes; `negative`
// is all ones in lanes with x < 0.
template <Rounding kRounding, class D>
HWY_INLINE V<D> RoundedMagnitudes(D d, const EncodeRules& rules, V<D> a, V<D> negative,
                                  V<D> random16) {
  const V<D> one = hn::Set(d, 1u);
  const V<D> e = hn::Max(hn::ShiftRight<23>(a), one);
  const V<D> is_normal = hn::VecFromMask(d, hn::Gt(a, hn::Set(d, 0x7FFFFFu)));
  const V<D> sig =
      hn::Or(hn::And(a, hn::Set(d, 0x7FFFFFu)), hn::And(is_normal, hn::Set(d, 0x800000u)));
  const V<D> least = hn::Set(d, rules.least_exponent);
  const V<D> top = hn::Max(e, least);
  const V<D> shift = hn::Add(hn::Sub(top, e), hn::Set(d, rules.normal_shift));
  V<D> code;
  if constexpr (kRounding == Rounding::kStochastic) {
    // sig * 2^16 / 2^shift in 32 bits: left by 3, then right by shift - 13 (shift >= 13).
    const V<D> down = hn::Min(hn::Sub(shift, hn::Set(d, 13u)), hn::Set(d, 31u));
    const V<D> fixed16 = hn::Shr(hn::ShiftLeft<3>(sig), down);
    code = hn::ShiftRight<16>(hn::Add(fixed16, random16));
  } else {
    const V<D> capped = hn::Min(shift, hn::Set(d, 31u));  // sig < 2^24: same result from 31 on
    V<D> push = hn::Zero(d);
    if constexpr (kRounding == Rounding::kNearestEven) {
      const V<D> odd = hn::And(hn::Shr(sig, capped), one);
      push = hn::Add(hn::Sub(hn::Shl(one, hn::Sub(capped, one)), one), odd);
    } else if constexpr (kRounding == Rounding::kTowardPositive) {
      push = hn::AndNot(negative, hn::Sub(hn::Shl(one, capped), one));
    }
    code = hn::Shr(hn::Add(sig, push), capped);
  }
  return hn::Add(code, hn::ShiftLeftSame(hn::Sub(top, least), rules.mantissa_bits));
}

// RoundExponent of format.h, lane by lane.
template <Rounding kRounding, class D>
HWY_INLINE V<D> RoundedExponents(D d, V<D> a, V<D> random16) {
  const V<D> e = hn::ShiftRight<23>(a);
  const V<D> fraction = hn::And(a, hn::Set(d, 0x7FFFFFu));
  const V<D> least = hn::Set(d, 0x400000u);
  const auto is_subnormal = hn::Eq(e, hn::Zero(d));
  if constexpr (kRounding == Rounding::kTowardZero) return e;
  if constexpr (kRounding == Rounding::kStochastic) {
    const V<D> over = hn::ShiftRight<6>(hn::Sub(hn::Max(fraction, least), least));
    const V<D> fixed16 = hn::IfThenElse(is_subnormal, over, hn::ShiftRight<7>(fraction));
    return hn::Add(e, hn::ShiftRight<16>(hn::Add(fixed16, random16)));
  }
  constexpr std::uint32_t kHighestKept = kRounding == Rounding::kNearestEven ? 0x3FFFFFu : 0u;
  const V<D> limit = hn::IfThenElse(is_subnormal, least, hn::Set(d, kHighestKept));
  return hn::Sub(e, hn::VecFromMask(d, hn::Gt(fraction, limit)));
}

// Encode of format.h, lane by lane: the codes of the binary32 patterns u.
template <Rounding kRounding, class D>
HWY_INLINE V<D> Codes(D d, const EncodeRules& rules, V<D> u, V<D> random16) {
  const V<D> a = hn::And(u, hn::Set(d, 0x7FFFFFFFu));
  const V<D> inf = hn::Set(d, 0x7F800000u);
  const V<D> nan = hn::Set(d, rules.nan);
  V<D> code;
  if (rules.is_exponent_only) {
    code = hn::Min(RoundedExponents<kRounding>(d, a, random16), hn::Set(d, rules.infinite));
  } else {
    const hn::RebindToSigned<D> di;
    const V<D> negative =
        rules.sign == 0 ? hn::Zero(d) : hn::BitCast(d, hn::ShiftRight<31>(hn::BitCast(di, u)));
    code = RoundedMagnitudes<kRounding>(d, rules, a, negative, random16);
    const auto is_negative = hn::MaskFromVec(negative);
    const V<D> too_big =
        hn::IfThenElse(hn::Eq(a, inf), hn::Set(d, rules.infinite),
                       hn::IfThenElse(is_negative, hn::Set(d, rules.too_big_negative),
                                      hn::Set(d, rules.too_big_positive)));
    code = hn::IfThenElse(hn::Gt(code, hn::Set(d, rules.max_finite)), too_big, code);
    code = hn::Or(code, hn::And(negative, hn::Set(d, rules.sign)));
  }
  return hn::IfThenElse(hn::Gt(a, inf), nan, code);
}

template <Rounding kRounding, class D, class Code>
HWY_INLINE void EncodeVector(D d, const EncodeRules& rules, const float* x,
                             const std::uint16_t* random, Code* codes) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToFloat<D> df;
  V<D> random16 = hn::Zero(d);
  if constexpr (kRounding == Rounding::kStochastic) {
    random16 = hn::PromoteTo(d, hn::LoadU(d16, random));
  }
  const V<D> code = Codes<kRounding>(d, rules, hn::BitCast(d, hn::LoadU(df, x)), random16);
  if constexpr (sizeof(Code) == 4) {
    hn::StoreU(code, d, codes);
  } else {  // not TruncateTo, which Highway 1.0.3 has wrong for 32 to 8 bits on AVX3_DL
    const hn::RebindToSigned<D> di;
    const hn::Rebind<Code, D> d_code;
    hn::StoreU(hn::DemoteTo(d_code, hn::BitCast(di, code)), d_code, codes);
  }
}

template <Rounding kRounding, class Code>
void EncodeRounded(const EncodeRules& rules, const float* x, std::size_t count,
                   const std::uint16_t* random, Code* codes) {
  const hn::ScalableTag<std::uint32_t> d;
  ForVectors(d, count, x, codes, [&](const float* in, std::size_t i, Code* out) {
    const std::uint16_t* fields = kRounding == Rounding::kStochastic ? random + i : nullptr;
    EncodeVector<kRounding>(d, rules, in, fields, out);
  });
}

template <class Code>
void EncodeCodes(const EncodeRules& rules, const float* x, std::size_t count,
                 const std::uint16_t* random, Code* codes) {
  switch (rules.rounding) {
    case Rounding::kNearestEven:
      return EncodeRounded<Rounding::kNearestEven>(rules, x, count, random, codes);
    case Rounding::kTowardZero:
      return EncodeRounded<Rounding::kTowardZero>(rules, x, count, random, codes);
    case Rounding::kTowardPositive:
      return EncodeRounded<Rounding::kTowardPositive>(rules, x, count, random, codes);
    case Rounding::kStochastic:
      return EncodeRounded<Rounding::kStochastic>(rules, x, count, random, codes);
  }
}

void EncodeTo8(const EncodeRules& rules, const float* x, std::size_t count,
               const std::uint16_t* random, std::uint8_t* codes) {
  EncodeCodes(rules, x, count, random, codes);
}
void EncodeTo16(const EncodeRules& rules, const float* x, std::size_t count,
                const std::uint16_t* random, std::uint16_t* codes) {
  EncodeCodes(rules, x, count, random, codes);
}
void EncodeTo32(const EncodeRules& rules, const float* x, std::size_t count,
                const std::uint16_t* random, std::uint32_t* codes) {
  EncodeCodes(rules, x, count, random, codes);
}

// Decode of format.h, lane by lane: the binary32 patterns of codes.
template <class D>
HWY_INLINE V<D> Patterns(D d, const DecodeRules& rules, V<D> code) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToFloat<D> df;
  const V<D> magnitude = hn::And(code, hn::Set(d, rules.magnitude_mask));
  V<D> pattern = hn::Add(hn::ShiftLeftSame(magnitude, rules.mantissa_shift),
                         hn::Set(d, rules.exponent_offset));
  if (rules.is_exponent_only) {
    pattern = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(d)), hn::Set(d, 0x400000u), pattern);
  } else if (rules.exponent_offset != 0) {
    // A subnormal: fraction * 2^(1 - bias - m), exact and normal in binary32 (or zero).
    const auto value =
        hn::Mul(hn::ConvertTo(df, hn::BitCast(di, magnitude)), hn::Set(df, rules.subnormal_unit));
    pattern = hn::IfThenElse(hn::Gt(hn::Set(d, rules.least_normal), magnitude),
                             hn::BitCast(d, value), pattern);
  }
  const V<D> special = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, rules.infinite)),
                                      hn::Set(d, 0x7F800000u), hn::Set(d, 0x7FC00000u));
  pattern = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, rules.max_finite)), special, pattern);
  if (rules.sign == 0) return pattern;
  const auto is_negative = hn::TestBit(code, hn::Set(d, rules.sign));
  return hn::Or(pattern, hn::IfThenElseZero(is_negative, hn::Set(d, 0x80000000u)));
}

template <class D, class Code>
HWY_INLINE void DecodeVector(D d, const DecodeRules& rules, const Code* codes, float* values) {
  const hn::Rebind<Code, D> d_code;
  const hn::RebindToFloat<D> df;
  V<D> code;
  if constexpr (sizeof(Code) == 4) {
    code = hn::LoadU(d, codes);
  } else {
    code = hn::PromoteTo(d, hn::LoadU(d_code, codes));
  }
  hn::StoreU(hn::BitCast(df, Patterns(d, rules, code)), df, values);
}

template <class Code>
void DecodeCodes(const DecodeRules& rules, const Code* codes, std::size_t count, float* values) {
  const hn::ScalableTag<std::uint32_t> d;
  ForVectors(d, count, codes, values,
             [&](const Code* in, std::size_t, float* out) { DecodeVector(d, rules, in, out); });
}

void DecodeFrom8(const DecodeRules& rules, const std::uint8_t* codes, std::size_t count,
                 float* values) {
  DecodeCodes(rules, codes, count, values);
}
void DecodeFrom16(const DecodeRules& rules, const std::uint16_t* codes, std::size_t count,
                  float* values) {
  DecodeCodes(rules, codes, count, values);
}
void DecodeFrom32(const DecodeRules& rules, const std::uint32_t* codes, std::size_t count,
                  float* values) {
  DecodeCodes(rules, codes, count, values);
}

template <class D>
HWY_INLINE void Bf16Vector(D d, const float* in, float* out) {
  const hn::RebindToFloat<D> df;
  const V<D> u = hn::BitCast(d, hn::LoadU(df, in));
  const V<D> odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d, 1u));
  const V<D> pushed = hn::Add(u, hn::Add(odd, hn::Set(d, 0x7FFFu)));
  const auto is_nan = hn::IsNaN(hn::BitCast(df, u));
  const V<D> rounded = hn::IfThenElse(hn::RebindMask(d, is_nan), hn::Set(d, 0x7FC00000u),
                                      hn::And(pushed, hn::Set(d, 0xFFFF0000u)));
  hn::StoreU(hn::BitCast(df, rounded), df, out);
}

void ToBf16(const float* in, std::size_t count, float* out) {
  const hn::ScalableTag<std::uint32_t> d;
  ForVectors(d, count, in, out,
             [&](const float* from, std::size_t, float* to) { Bf16Vector(d, from, to); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(EncodeTo8);
HWY_EXPORT(EncodeTo16);
HWY_EXPORT(EncodeTo32);
HWY_EXPORT(DecodeFrom8);
HWY_EXPORT(DecodeFrom16);
HWY_EXPORT(DecodeFrom32);
HWY_EXPORT(ToBf16);

constexpr std::size_t kChunk = std::size_t{1} << 15;   // elements of one unit of parallel work
constexpr std::size_t kFields = std::size_t{1} << 10;  // random fields generated at once

// Calls body(begin, count) for chunks of fixed size, in parallel.
template <class Body>
void ForChunks(std::size_t size, Body&& body) {
  ParallelFor(DivideUp(size, kChunk), [&](std::size_t chunk) {
    const std::size_t begin = chunk * kChunk;
    body(begin, std::min(kChunk, size - begin));
  });
}

// Encodes chunks by kernel(rules, x, count, random, codes), which reads whole vectors of random
// fields.
template <class Code, class Kernel>
void EncodeSpan(FormatId format, std::span<const float> x, std::span<Code> codes,
                const EncodeOptions& options, Kernel&& kernel) {
  Expects(x.size() == codes.size(), "as many codes as values");
  Expects(static_cast<std::size_t>(FormatOf(format).bits) <= 8 * sizeof(Code),
          "codes that the integers can hold");
  const EncodeRules rules = RulesOf(format, options.rounding, options.overflow);
  ForChunks(x.size(), [&](std::size_t begin, std::size_t count) {
    if (options.rounding != Rounding::kStochastic) {
      const std::uint16_t* no_random = nullptr;
      kernel(rules, x.data() + begin, count, no_random, codes.data() + begin);
      return;
    }
    std::array<std::uint16_t, kFields> random{};
    for (std::size_t done = 0; done < count; done += kFields) {
      const std::size_t n = std::min(kFields, count - done);
      const std::size_t at = begin + done;
      FillBits16(options.random, options.first_element + at, std::span(random).first(n));
      kernel(rules, x.data() + at, n, random.data(), codes.data() + at);
    }
  });
}

template <class Code, class Kernel>
void DecodeSpan(FormatId format, std::span<const Code> codes, std::span<float> values,
                Kernel&& kernel) {
  Expects(codes.size() == values.size(), "as many values as codes");
  const DecodeRules rules = RulesOf(format);
  ForChunks(codes.size(), [&](std::size_t begin, std::size_t count) {
    kernel(rules, codes.data() + begin, count, values.data() + begin);
  });
}

}  // namespace

void Encode(FormatId format, std::span<const float> x, std::span<std::uint8_t> codes,
            const EncodeOptions& options) {
  const IeeeArithmetic ieee;
  EncodeSpan(format, x, codes, options, [](auto... args) {
    HWY_DYNAMIC_DISPATCH(EncodeTo8)(args...);
  });
}

void Encode(FormatId format, std::span<const float> x, std::span<std::uint16_t> codes,
            const EncodeOptions& options) {
  const IeeeArithmetic ieee;
  EncodeSpan(format, x, codes, options, [](auto... args) {
    HWY_DYNAMIC_DISPATCH(EncodeTo16)(args...);
  });
}

void Encode(FormatId format, std::span<const float> x, std::span<std::uint32_t> codes,
            const EncodeOptions& options) {
  const IeeeArithmetic ieee;
  EncodeSpan(format, x, codes, options, [](auto... args) {
    HWY_DYNAMIC_DISPATCH(EncodeTo32)(args...);
  });
}

void Decode(FormatId format, std::span<const std::uint8_t> codes, std::span<float> values) {
  const IeeeArithmetic ieee;
  DecodeSpan(format, codes, values, [](auto... args) {
    HWY_DYNAMIC_DISPATCH(DecodeFrom8)(args...);
  });
}

void Decode(FormatId format, std::span<const std::uint16_t> codes, std::span<float> values) {
  const IeeeArithmetic ieee;
  DecodeSpan(format, codes, values, [](auto... args) {
    HWY_DYNAMIC_DISPATCH(DecodeFrom16)(args...);
  });
}

void Decode(FormatId format, std::span<const std::uint32_t> codes, std::span<float> values) {
  const IeeeArithmetic ieee;
  DecodeSpan(format, codes, values, [](auto... args) {
    HWY_DYNAMIC_DISPATCH(DecodeFrom32)(args...);
  });
}

void RoundToBf16(std::span<const float> in, std::span<float> out) {
  const IeeeArithmetic ieee;
  Expects(in.size() == out.size(), "as many results as values");
  ForChunks(in.size(), [&](std::size_t begin, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(ToBf16)(in.data() + begin, count, out.data() + begin);
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
