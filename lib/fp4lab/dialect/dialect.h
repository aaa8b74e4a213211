// Dialects: the formulas that all call themselves NVFP4 or MXFP4, each a row of a table.
//
// A quantizer goes through the same stages in every code base; a dialect says which formula stands
// at each stage, in its exact operation order (binary32, RNE, subnormals kept, no contraction):
//   amax of the tensor, a row, or nothing   -> level 2: S (encode) and D (decode)
//   block amax b, S, D                      -> t, the scale before rounding
//   t                                       -> the stored scale byte, of value s
//   s, S, D                                 -> the factor (or divisor) e of the block
//   x, e                                    -> v, the scaled element
//   v                                       -> the code
// The formulas themselves are the functions of dialect/stages.h, one an enumerator. The same
// enumerators serve `explain`: a wrong kernel is a row with one stage changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp4lab/block/block_format.h"
#include "fp4lab/dialect/block_scale_rules.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// Level 2: the tensor's numbers. C = scale_max * largest element (2688 = 448 * 6 for NVFP4).
enum class LevelTwo : std::uint8_t {
  kNone,               // none, or outside of the quantizer: S = D = 1
  kEncodeScale,        // S = min(fl(C/amax), FLT_MAX), 1 where amax or S is 0; D = fl(1/S)
  kEncodeFused,        // the same, but amax = Inf leaves S = 0 and D = Inf
  kEncodeApproximate,  // as kEncodeScale, but div.approx.ftz and rcp.approx.ftz: a set of answers
  kEncodePartial,      // amax floored at FLT_MIN; amax = Inf leaves S = 0, with D = 1
  kEncodeJax,          // as kEncodeScale, but S = FLT_MAX where amax = 0, and NaN stays NaN
  kEncodePlain,        // S = fl(C/amax), 0 where amax = 0; D = fl(1/S)
  kMultiplier,         // D = fl(amax/C), S = fl(1/D)
  kTwoDivisions,       // D = fl(fl(amax/scale_max)/largest element), 1 where amax = 0; S = fl(1/D)
  kDivisor,            // S = fl(C/max(amax, FLT_MIN)), D = fl(1/S)
  kDivisorOrOne,       // the same, but S = 1 where that is Inf or NaN
  kTensorFp8           // one scale and no blocks: S = fl(largest/amax), 1 where amax is 0 or Inf
};

// The byte from t.
enum class ScaleEncoding : std::uint8_t {
  kNearest,        // RNE, saturating; NaN gives the NaN byte
  kClamp2m6,       // clamped to [2^-6, 448] first
  kClamp2m9,       // 0 becomes 1, then at least 2^-9; RNE, beyond 464 NaN
  kZeroToOne,      // RNE; a byte of 0 becomes 1.0
  kZeroToLeast,    // RNE; a byte of 0 becomes the least positive where b > 0
  kZeroToEpsilon,  // RNE after clamping to +-448; a byte of 0 becomes 2^-3
  kOneWhereTiny,   // t < 2^-63 becomes 1; RNE, saturating
  kHalfUpGgml,     // half up on the bits, 256 and beyond give 448
  kExponent,       // E8M0: made by the block scale's rule
  kBinary32        // none: s = t, a float (Quantized::scale_values), and no byte
};

// v from x and the block's s.
enum class Factor : std::uint8_t {
  kReciprocal,              // e = min(fl(1/fl(s*D)), FLT_MAX), fminf: s = 0 and NaN give FLT_MAX
  kReciprocalNan,           // the same, but NaN stays NaN
  kReciprocalApproximate,   // e = min(rcp.approx.ftz(fl(s*D)), FLT_MAX): a set of answers
  kReciprocalOrZero,        // as kReciprocal, but e = 0 where s = 0
  kReciprocalOpen,          // e = fl(1/fl(D*s)), v = 0 where s = 0
  kReciprocalInfinite,      // e = fl(1/fl(s*D)), Inf where s = 0; 0 where b = 0
  kReciprocalGuarded,       // e = fl(1/fl(s*fl(1/S))), each reciprocal 0 where its argument is 0
  kEncodeOverScale,         // e = min(fl(S/s), FLT_MAX), 0 where s = 0
  kEncodeOverScaleOpen,     // e = fl(S/s), 0 where s = 0
  kEncodeTimesRcp,          // e = min(fl(S*fl(1/s)), FLT_MAX), NaN stays NaN
  kBf16,                    // e = bf16(min(fl(S/s), bf16 max)); v = fma(x, e, +0)
  kRcpLevelOverScale,       // e = fl(fl(1/D)/s)
  kDivideByProduct,         // v = fl(x / fl(s*D))
  kDivideByQuotient,        // v = fl(x / fl(s/S))
  kDivideByScale,           // v = fl(x / s)
  kTwoSteps,                // v = fl(fl(x/D) * fl(1/s)); x/D is 0 where D = 0; +0 where s = 0
  kSearch,                  // none: the code is found by comparing |value*s - x|; v = fl(x/s)
  kPowerOfTwo,              // v = fl(x * 2^-k), the exact reciprocal of an E8M0 scale
  kDivideByNormal,          // v = fl(x / max(s, FLT_MIN)), x / Inf where s is NaN
  kTensorScale,             // v = fl(x * S)
  kEncodeTimesApproximate,  // e = min(fl(S*rcp.approx.ftz(s)), FLT_MAX): a set of answers
  kApproximate  // e = rcp.approx.ftz(fl(s * rcp.approx.ftz(S))), 0 where b = 0: a set of answers
};

// The code from v. NaN gives the element format's NaN code unless the dialect says otherwise.
enum class ElementRounding : std::uint8_t {
  kNearestEven,   // cvt.rn.satfinite
  kTiesUp,        // to nearest, ties away from zero
  kHalfAdded,     // ties away by floor(fl(|v|/step + 0.5)), which also lifts the float below 1/2
  kBf16First,     // v rounded to BF16 before
  kTiesToLower,   // the first code whose fl(|value*s - x|) is least
  kTowardZero,    // truncation
  kStochastic16,  // cvt.rs: 16 bits an element
  kStochastic8,   // TE's software rounder: 8 bits an element
  kStochastic4,   // 4 bits an element, the upper ones of kStochastic16's
  kStochastic32   // 32 bits an element (formats/stochastic32.h)
};

// The statistic b of a block that its scale is made from.
enum class BlockStatistic : std::uint8_t {
  kAmax,  // the largest magnitude
  kQuest  // fl(fl(2.92247856 * sigma) + 6e-8), sigma the block's standard deviation about its mean:
          // the scale of least squared error for normal data (Quartet, QuEST); dialect/statistic.h
};

// Corrections of block scales that make the quantization unbiased.
enum class Unbias : std::uint8_t {
  kNone,
  kMsEden  // the block scales of a group, times <x,x> / <x,Q(x)>, rounded at random: ms_eden.h
};

// Two candidate scales a block, for a largest element of 6 and of 4; the better one is kept
// (four over six). The error is summed over the block; a tie keeps 6.
enum class Adaptive : std::uint8_t { kNo, kMae, kMse, kAbsMax };

// What a NaN element makes NaN besides itself.
enum class NanRule : std::uint8_t {
  kElement,  // nothing: maxima leave it out
  kBlock,    // its block's maximum, not the tensor's
  kTensor    // both
};

// The E8M0 byte of b = Inf, and for EVEN of a b that its rounding takes to Inf.
enum class InfScale : std::uint8_t {
  kRule,  // as block/scale_rules.h has it: NaN for FLOOR, CEIL, EVEN; EVEN's rounding ends at 2^128
  kNan,   // NaN
  kNumber  // as if Inf were 2^128
};

struct Dialect {
  std::string_view name = {};     // "nvfp4.te"
  std::string_view version = {};  // code base and its commit or release: the formula at a version
  std::string_view source = {};   // where in the code base
  std::string_view note = {};     // what a reader must know; may be empty
  FormatId element = FormatId::kE2M1, scale = FormatId::kE4M3;
  int block_rows = 1, block_cols = 16;  // 0, 0: one block, the tensor
  LevelTwo level_two = LevelTwo::kEncodeScale;
  bool row_scaled = false;   // one amax (and S, D) a row instead of one a tensor
  float scale_max = 448.0f;  // the largest block scale that C aims at (448, or 256 for 4over6)
  BlockScale block_scale = BlockScale::kFolded;
  ScaleRule mx_rule = ScaleRule::kFloor;  // for kMicroscaling
  ScaleEncoding scale_encoding = ScaleEncoding::kNearest;
  Factor factor = Factor::kReciprocal;
  ElementRounding rounding = ElementRounding::kNearestEven;
  Adaptive adaptive = Adaptive::kNo;
  bool adaptive_fp16 = false;        // the errors of `adaptive` from FP16 products (TE's fast path)
  bool keeps_negative_zero = true;   // else v = -0 gives the code of +0
  bool never_negative_zero = false;  // every code of value 0 is +0, whatever rounded to it
  NanRule nan = NanRule::kElement;
  InfScale inf_scale = InfScale::kRule;
  std::int16_t nan_scale = -1, nan_code = -1;  // the bytes stored for NaN; -1: the format's own
  // What published training recipes add; rows of the table have none of it.
  float target = 0.0f;    // the value that a block's amax is mapped to; 0: the largest element
  float prescale = 1.0f;  // factors are multiplied by it, and what is decoded is divided by it
  BlockStatistic statistic = BlockStatistic::kAmax;
  Unbias unbias = Unbias::kNone;
  friend constexpr bool operator==(const Dialect&, const Dialect&) = default;
};

// All rows, in the order in which `fp4lab dialects` prints them.
std::span<const Dialect> Dialects();

// nullptr for an unknown name. Accepts aliases ("te" for "nvfp4.te").
const Dialect* FindDialect(std::string_view name);

// The dialect with its row's own rounding of elements (to nearest even where it has no row) in the
// place of another: stochastic, toward zero.
Dialect WithOwnRounding(Dialect dialect);

// The row with the formulas of `dialect`, or `dialect` without a name where none has them.
Dialect Canonical(const Dialect& dialect);

// q, the value that a block's amax is mapped to.
constexpr float TargetOf(const Dialect& d) {
  return d.target != 0.0f ? d.target : MaxFinite(d.element);
}

// C, the amax that level 2 maps to 1: exact for every row of the table but Quartet II's.
constexpr float LevelTwoConstant(const Dialect& d) { return d.scale_max * TargetOf(d); }

// True where the answer is a set: QuantizeAs gives one member, IsAllowed (dialect/quantize.h)
// judges.
constexpr bool IsApproximate(const Dialect& d) {
  return d.block_scale == BlockScale::kApproximate ||
         d.block_scale == BlockScale::kFoldedApproximate || d.factor == Factor::kApproximate ||
         d.factor == Factor::kEncodeTimesApproximate ||
         d.factor == Factor::kReciprocalApproximate || d.level_two == LevelTwo::kEncodeApproximate;
}

// True where amax of the tensor (or row) enters: Quantized::amax is not empty.
constexpr bool HasLevelTwo(const Dialect& d) { return d.level_two != LevelTwo::kNone; }

// The random bits that the rounding of one element takes; 0: none.
constexpr int RandomBitsOf(ElementRounding rounding) {
  switch (rounding) {
    case ElementRounding::kStochastic4:
      return 4;
    case ElementRounding::kStochastic8:
      return 8;
    case ElementRounding::kStochastic16:
      return 16;
    case ElementRounding::kStochastic32:
      return 32;
    case ElementRounding::kNearestEven:
    case ElementRounding::kTiesUp:
    case ElementRounding::kHalfAdded:
    case ElementRounding::kBf16First:
    case ElementRounding::kTiesToLower:
    case ElementRounding::kTowardZero:
      break;
  }
  return 0;
}
constexpr bool IsStochastic(const Dialect& d) { return RandomBitsOf(d.rounding) != 0; }

// True where the quantization takes random bits, for its elements or its scales.
constexpr bool TakesRandomBits(const Dialect& d) {
  return IsStochastic(d) || d.unbias != Unbias::kNone;
}

// Equal formulas, whatever the rows are called.
constexpr bool SameFormulas(Dialect a, const Dialect& b) {
  a.name = b.name;
  a.version = b.version;
  a.source = b.source;
  a.note = b.note;
  return a == b;
}

}  // namespace fp4lab
