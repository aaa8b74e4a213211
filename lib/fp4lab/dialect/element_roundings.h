// The rounding of elements: the code from v, the scaled element.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "fp4lab/dialect/formula.h"
#include "fp4lab/dialect/tensor_scale.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/formats/stochastic32.h"
#include "fp4lab/formats/te_stochastic.h"

namespace fp4lab {

enum class ElementRounding : std::uint8_t {
  kNearestEven,
  kNearestEvenOpen,
  kTiesAway,
  kTiesToZero,
  kHalfAdded,
  kHalfAddedEven,
  kBf16First,
  kClosest,
  kClosestScaled,
  kComfyCentre,
  kTowardZero,
  kStochastic16,
  kStochastic8,
  kStochastic4,
  kStochastic32
};
constexpr ElementRounding LastOf(ElementRounding) { return ElementRounding::kStochastic32; }

struct ElementInput {
  FormatId element;
  float x, s, v;         // s: the stored scale's value
  std::uint32_t random;  // only the low kRandomBits bits are used
};

// The number a step above the largest element: 8 for E2M1.
constexpr float NextAfterLargest(FormatId element) {
  const std::uint32_t code = MaxFiniteCode(FormatOf(element));
  return Decode(element, code) + (Decode(element, code) - Decode(element, code - 1));
}
// Whether v is nearer to NextAfterLargest than to the largest element, or half-way, where that has
// an odd code: |v| >= 7 for E2M1. False for NaN.
constexpr bool RoundsBeyondLargest(FormatId element, float v) {
  const float middle = 0.5f * (MaxFinite(element) + NextAfterLargest(element));
  return Magnitude(v) > middle ||
         (Magnitude(v) == middle && MaxFiniteCode(FormatOf(element)) % 2 == 1);
}
// To nearest even; the code after the largest, OR the sign bit, for what lies beyond: 8, the code
// of -0, for 8 and -8 in E2M1.
constexpr std::uint32_t EncodeOpen(FormatId element, float v) {
  const Format& f = FormatOf(element);
  const std::uint32_t code = Encode(f, v);
  return RoundsBeyondLargest(element, v) ? (code & SignBit(f)) | (MaxFiniteCode(f) + 1) : code;
}

// To nearest, ties away from zero, saturating.
constexpr std::uint32_t EncodeTiesAway(FormatId element, float v) {
  const Format& f = FormatOf(element);
  const std::uint32_t lower = Encode(f, v, Rounding::kTowardZero);
  const std::uint32_t magnitude = lower & MagnitudeMask(f);
  if (v != v || magnitude >= MaxFiniteCode(f)) return lower;
  const float middle = 0.5f * (Decode(f, magnitude) + Decode(f, magnitude + 1));
  return Magnitude(v) >= middle ? lower + 1 : lower;
}

// To nearest, ties toward zero, saturating; 0 gives the code of -0 (ModelOpt's MXFP4).
constexpr std::uint32_t EncodeTiesToZero(FormatId element, float v) {
  const Format& f = FormatOf(element);
  if (v == 0.0f) return MagnitudeMask(f) + 1;
  const std::uint32_t lower = Encode(f, v, Rounding::kTowardZero);
  const std::uint32_t magnitude = lower & MagnitudeMask(f);
  if (v != v || magnitude >= MaxFiniteCode(f)) return lower;
  const float middle = 0.5f * (Decode(f, magnitude) + Decode(f, magnitude + 1));
  return Magnitude(v) > middle ? lower + 1 : lower;
}

// sign * floor(fl(|v| / step + 0.5)) * step (microxcaling's Python).
constexpr std::uint32_t EncodeHalfAdded(FormatId element, float v) {
  const Format& f = FormatOf(element);
  const std::uint32_t lower = Encode(f, v, Rounding::kTowardZero);
  const std::uint32_t magnitude = lower & MagnitudeMask(f);
  if (v != v || magnitude >= MaxFiniteCode(f)) return lower;
  const float floor_value = Decode(f, magnitude);
  const float step = Decode(f, magnitude + 1) - floor_value;
  const float steps = floor_value / step;  // a small integer
  return Magnitude(v) / step + 0.5f >= steps + 1.0f ? lower + 1 : lower;
}

// The greatest float below half of the element's least step: fl(it / step + 0.5) is 1.
constexpr float BelowHalfStep(float step) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(0.5f * step) - 1);
}

// To nearest even by sign * (floor(fl(|v| / step + 0.5)) - 1 at a tie of an odd floor) * step
// (auto-round's quant_element): only BelowHalfStep differs from the exact rounding.
constexpr std::uint32_t EncodeHalfAddedEven(FormatId element, float v) {
  const float step = Decode(element, 1);
  if (Magnitude(v) == BelowHalfStep(step)) v = v < 0.0f ? -step : step;
  return Encode(element, v);
}

// The first code whose fl(|value * s - x|) is least (ggml best_index_mxfp4): NaN and Inf give 0.
constexpr std::uint32_t EncodeBySearch(FormatId element, float x, float s) {
  const Format& f = FormatOf(element);
  std::uint32_t best = 0;
  float least = Magnitude(Decode(f, 0) * s - x);
  for (std::uint32_t code = 1; code < 1u << f.bits; ++code) {
    const float error = Magnitude(Decode(f, code) * s - x);
    if (error < least) {
      best = code;
      least = error;
    }
  }
  return best;
}

// ComfyUI's stochastic_float_to_fp4_e2m1 with the random number 1/2, E2M1 alone: a code of exponent
// e and the rounded fraction m, e the count of the thresholds that |v| reaches. The thresholds are
// the least floats with floor(fl(fl(log2 |v|) + 1.1925)) = 1, 2 and 3. m = 2 sets a bit that e = 1
// and e = 3 have set already: [1.75, kComfyThresholds[1]) gives 1 and 7 and more gives 4. Inf,
// there FLT_MAX, gives m = 0 by a cast that C leaves undefined.
inline constexpr float kComfyThresholds[] = {0x1.c00b88p-1f, 0x1.c00b88p0f, 0x1.c00b86p1f};
constexpr std::uint32_t EncodeComfyCentre(float v) {
  if (v != v) return NanCode(FormatOf(FormatId::kE2M1));
  const float a = Magnitude(v);
  const std::uint32_t e = (a >= kComfyThresholds[0] ? 1u : 0u) +
                          (a >= kComfyThresholds[1] ? 1u : 0u) +
                          (a >= kComfyThresholds[2] ? 1u : 0u);
  const float fraction =
      e == 0 ? a * 2.0f : (a / static_cast<float>(1u << (e - 1)) - 1.0f) * 2.0f;  // exact
  // A tie goes to even; fractions are greater than -1/2, and 3 in the range of v that scales leave.
  const std::uint32_t m = fraction <= 0.5f   ? 0
                          : fraction < 1.5f  ? 1
                          : fraction <= 2.5f ? 2
                          : a <= kFloatMax   ? 3
                                             : 0;
  return std::bit_cast<std::uint32_t>(v) >> 31 << 3 | e << 1 | m;
}

// Members of the structs: kText; kRandomBits, the random bits per element; Code, the code of an
// element. A NaN v gives the element format's NaN code (kClosest: 0).
struct TakesNoRandomBits {
  static constexpr int kRandomBits = 0;
};

template <>
struct Formula<ElementRounding::kNearestEven> : TakesNoRandomBits {
  // cvt.rn.satfinite.
  static constexpr std::string_view kLabel = "nearest_even";
  static constexpr std::string_view kText = "v to nearest even, saturating";
  static constexpr std::uint32_t Code(const ElementInput& in) { return Encode(in.element, in.v); }
};

template <>
struct Formula<ElementRounding::kNearestEvenOpen> : TakesNoRandomBits {
  // Four over six counts the number beyond the largest element as it is (dialect/adaptive.h).
  static constexpr std::string_view kLabel = "nearest_even_open";
  static constexpr std::string_view kText =
      "v to nearest even, not saturating: beyond the largest, the code after it, OR the sign bit";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeOpen(in.element, in.v);
  }
};

template <>
struct Formula<ElementRounding::kTiesAway> : TakesNoRandomBits {
  static constexpr std::string_view kLabel = "ties_up";
  static constexpr std::string_view kText = "v to nearest, ties away from zero, saturating";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeTiesAway(in.element, in.v);
  }
};

template <>
struct Formula<ElementRounding::kTiesToZero> : TakesNoRandomBits {
  static constexpr std::string_view kLabel = "ties_to_zero";
  static constexpr std::string_view kText =
      "v to nearest, ties toward zero, saturating; v = 0 has the code of -0";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeTiesToZero(in.element, in.v);
  }
};

template <>
struct Formula<ElementRounding::kHalfAdded> : TakesNoRandomBits {
  // Ties away from zero; the rounded addition also rounds the float just below 1/2 up.
  static constexpr std::string_view kLabel = "half_added";
  static constexpr std::string_view kText =
      "floor(fl(|v|/step + 0.5)) steps with the sign of v, saturating";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeHalfAdded(in.element, in.v);
  }
};

template <>
struct Formula<ElementRounding::kHalfAddedEven> : TakesNoRandomBits {
  // The rounded addition takes the float just below half of the least step to that step.
  static constexpr std::string_view kLabel = "half_added_even";
  static constexpr std::string_view kText =
      "floor(fl(|v|/step + 0.5)) steps, a tie to even, with the sign of v, saturating";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeHalfAddedEven(in.element, in.v);
  }
};

template <>
struct Formula<ElementRounding::kBf16First> : TakesNoRandomBits {
  static constexpr std::string_view kLabel = "bf16_first";
  static constexpr std::string_view kText = "v to BF16, then to nearest even, saturating";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return Encode(in.element, RoundToBf16(in.v));
  }
};

template <>
struct Formula<ElementRounding::kClosest> : TakesNoRandomBits {
  static constexpr std::string_view kLabel = "ties_to_lower";
  static constexpr std::string_view kText = "the first code whose fl(|value*s - x|) is least";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeBySearch(in.element, in.x, in.s);
  }
};

template <>
struct Formula<ElementRounding::kClosestScaled> : TakesNoRandomBits {
  // NaN and Inf, and numbers so large that all differences are equal, give 0.
  static constexpr std::string_view kLabel = "ties_to_lower_scaled";
  static constexpr std::string_view kText = "the first code whose fl(|value - v|) is least";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeBySearch(in.element, in.v, 1.0f);
  }
};

template <>
struct Formula<ElementRounding::kComfyCentre> : TakesNoRandomBits {
  static constexpr std::string_view kLabel = "comfy_centre";
  static constexpr std::string_view kText =
      "exponent floor(log2|v| + 1.1925) from 0 to 3, OR fraction to nearest even";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return in.element == FormatId::kE2M1 ? EncodeComfyCentre(in.v) : Encode(in.element, in.v);
  }
};

template <>
struct Formula<ElementRounding::kTowardZero> : TakesNoRandomBits {
  static constexpr std::string_view kLabel = "toward_zero";
  static constexpr std::string_view kText = "v toward zero, saturating";
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return Encode(in.element, in.v, Rounding::kTowardZero);
  }
};

template <>
struct Formula<ElementRounding::kStochastic16> {
  // cvt.rs.
  static constexpr std::string_view kLabel = "stochastic_16";
  static constexpr std::string_view kText = "v stochastically with 16 random bits, saturating";
  static constexpr int kRandomBits = 16;
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return Encode(in.element, in.v, Rounding::kStochastic, in.random & 0xFFFFu);
  }
};

template <>
struct Formula<ElementRounding::kStochastic8> {
  // Transformer Engine's software rounder for E2M1.
  static constexpr std::string_view kLabel = "stochastic_8";
  static constexpr std::string_view kText = "v stochastically with 8 random bits, saturating";
  static constexpr int kRandomBits = 8;
  static constexpr std::uint32_t Code(const ElementInput& in) {
    if (in.element == FormatId::kE2M1) {
      return EncodeTransformerEngineStochastic(in.v, in.random & 0xFFu);
    }
    return Encode(in.element, in.v, Rounding::kStochastic, (in.random & 0xFFu) << 8);
  }
};

template <>
struct Formula<ElementRounding::kStochastic4> {
  // kStochastic16 with these 4 bits as the upper bits of the 16, the others 0.
  static constexpr std::string_view kLabel = "stochastic_4";
  static constexpr std::string_view kText = "v stochastically with 4 random bits, saturating";
  static constexpr int kRandomBits = 4;
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return Encode(in.element, in.v, Rounding::kStochastic, (in.random & 0xFu) << 12);
  }
};

template <>
struct Formula<ElementRounding::kStochastic32> {
  // formats/stochastic32.h.
  static constexpr std::string_view kLabel = "stochastic_32";
  static constexpr std::string_view kText = "v stochastically with 32 random bits, saturating";
  static constexpr int kRandomBits = 32;
  static constexpr std::uint32_t Code(const ElementInput& in) {
    return EncodeStochastic32(FormatOf(in.element), in.v, in.random);
  }
};

struct RandomBitsOfFormula {
  template <class F>
  constexpr int operator()(F) const {
    return F::kRandomBits;
  }
};
// The random bits that the rounding of one element takes; 0: none.
constexpr int RandomBitsOf(ElementRounding rounding) {
  return WithFormula<int>(rounding, RandomBitsOfFormula{});
}

struct ElementCodeOf {
  ElementInput in;
  template <class F>
  constexpr std::uint32_t operator()(F) const {
    return F::Code(in);
  }
};

}  // namespace fp4lab
