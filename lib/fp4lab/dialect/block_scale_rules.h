// The formulas of block scales, one struct per enumerator.
//
// To add a formula: add an enumerator before kOneBlock and its struct. A struct without a required
// member does not compile, because quantizers on CPU and GPU, `dialects`, `explain`, recipes in
// JSON and the tests range over the enumeration. A row of rows_*.cc names a published formula.
//
// Arithmetic is binary32, RNE, subnormals kept, nothing contracted; fl(.) is one rounding.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "fp4lab/dialect/exponent_bytes.h"
#include "fp4lab/dialect/formula.h"
#include "fp4lab/dialect/tensor_scale.h"

namespace fp4lab {

// The formula of t from the block's amax b; q is the largest element (6), or Dialect::target.
enum class BlockScale : std::uint8_t {
  kFolded,
  kFoldedOpen,
  kFoldedOrZero,
  kTimesSixth,
  kDivideFirst,
  kDivideFirstBf16,
  kDivideFirstOrZero,
  kDivideByTensorScale,
  kEpsilonOverDecode,
  kDivideByBoth,
  kOverDecode,
  kOverTensor,
  kNoTensorScale,
  kNoTensorScaleFloored,
  kInverseOfEncode,
  kApproximate,
  kFoldedApproximate,
  kFloor,
  kCeil,
  kRceil,
  kEven,
  kEvenQuarter,
  kQuarkEven,
  kQuarkFloor,
  kQuarkCeil,
  kRceilApproximate,
  kFloorLog2,
  kFloorLog2Clamped,
  kCeilLog2,
  kCeilLog2Least,
  kCeilLog2Clamped,
  kCeilLog2Wrapped,
  kRoundLog2,
  kOverflowAware,
  kFloorLog2Quotient,
  kCeilQuotientFloored,
  kInverseOfPower,
  kNearestLog2,
  kOneBlock
};
constexpr BlockScale LastOf(BlockScale) { return BlockScale::kOneBlock; }

struct BlockScaleInput {
  float b, q;
  float scale_max;  // the largest block scale that the tensor scale aims at: 448
  TensorScale tensor;
};
// The input of an E8M0 rule: the block's amax b, t and q.
struct ExponentInput {
  float b, t, q;
  FormatId element;
};

// Whether the rule is one of OCP's, whose byte follows from b and the element's format alone.
constexpr bool IsMicroscaling(BlockScale scale) {
  return scale == BlockScale::kFloor || scale == BlockScale::kCeil || scale == BlockScale::kRceil ||
         scale == BlockScale::kEven;
}

// K of kFolded: t = b * K.
constexpr float FoldedFactor(float encode, float q) { return encode * (1.0f / q); }

// DeepGEMM's least amax of a block.
inline constexpr float kLeastAmax = 1e-4f;
constexpr float FlooredAmax(float b) { return b < kLeastAmax ? kLeastAmax : b; }  // NaN stays

// Transformer Engine's factor of an FP8 block, fl(q/b), q the largest element: 1 where b is 0, Inf
// or NaN, and the largest number where the quotient is Inf.
constexpr float EncodeOfBlock(float b, float q) {
  if (b == 0.0f || !(b <= kFloatMax)) return 1.0f;
  const float e = q / b;
  return e > kFloatMax ? kFloatMax : e;
}

// Members of the structs: kLabel, the name in JSON; kText, the exact formula; kShort, the formula
// without roundings and guards; Before, t. The formula of an E8M0 scale is an ExponentRule and has
// Exponent, its byte, too.
struct FractionRule {
  static constexpr bool kIsExponent = false;
  static constexpr std::uint8_t Exponent(const ExponentInput&) { return 0; }
};
struct ExponentRule {
  static constexpr bool kIsExponent = true;
};

template <>
struct Formula<BlockScale::kFolded> : FractionRule {
  // fminf: NaN gives FLT_MAX.
  static constexpr std::string_view kLabel = "folded";
  static constexpr std::string_view kText =
      "t = min(fl(b * fl(S * fl(1/q))), FLT_MAX), NaN dropped";
  static constexpr std::string_view kShort = "t = b * (S * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return ClampToMax(in.b * FoldedFactor(in.tensor.encode, in.q));
  }
};

template <>
struct Formula<BlockScale::kFoldedOpen> : FractionRule {
  static constexpr std::string_view kLabel = "folded_open";
  static constexpr std::string_view kText = "t = fl(b * fl(S * fl(1/q)))";
  static constexpr std::string_view kShort = "t = b * (S * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b * (in.tensor.encode * (1.0f / in.q));
  }
};

template <>
struct Formula<BlockScale::kFoldedOrZero> : FractionRule {
  // Differs from kFoldedOpen where S is Inf.
  static constexpr std::string_view kLabel = "folded_or_zero";
  static constexpr std::string_view kText = "t = fl(b * fl(S * fl(1/q))), 0 where b is 0";
  static constexpr std::string_view kShort = "t = b * (S * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b == 0.0f ? 0.0f : in.b * FoldedFactor(in.tensor.encode, in.q);
  }
};

template <>
struct Formula<BlockScale::kTimesSixth> : FractionRule {
  static constexpr std::string_view kLabel = "times_sixth";
  static constexpr std::string_view kText = "t = fl(S * fl(b * fl(1/q)))";
  static constexpr std::string_view kShort = "t = S * (b * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.tensor.encode * (in.b * (1.0f / in.q));
  }
};

template <>
struct Formula<BlockScale::kDivideFirst> : FractionRule {
  static constexpr std::string_view kLabel = "divide_first";
  static constexpr std::string_view kText = "t = fl(fl(b/q) * S)";
  static constexpr std::string_view kShort = "t = (b / q) * S";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b / in.q * in.tensor.encode;
  }
};

template <>
struct Formula<BlockScale::kDivideFirstBf16> : FractionRule {
  // kDivideFirst of a BF16 tensor, whose quotient is a BF16 number.
  static constexpr std::string_view kLabel = "divide_first_bf16";
  static constexpr std::string_view kText = "t = fl(bf16(b/q) * S)";
  static constexpr std::string_view kShort = "t = bf16(b / q) * S";
  static constexpr float Before(const BlockScaleInput& in) {
    return RoundToBf16(in.b / in.q) * in.tensor.encode;
  }
};

template <>
struct Formula<BlockScale::kDivideFirstOrZero> : FractionRule {
  // Differs from kDivideFirst where S is Inf.
  static constexpr std::string_view kLabel = "divide_first_or_zero";
  static constexpr std::string_view kText = "t = fl(fl(b/q) * S), 0 where b is 0";
  static constexpr std::string_view kShort = "t = (b / q) * S";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b == 0.0f ? 0.0f : in.b / in.q * in.tensor.encode;
  }
};

template <>
struct Formula<BlockScale::kDivideByTensorScale> : FractionRule {
  static constexpr std::string_view kLabel = "divide_by_level";
  static constexpr std::string_view kText = "t = fl(fl(b/q) / D)";
  static constexpr std::string_view kShort = "t = (b / q) / D";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b / in.q / in.tensor.decode;
  }
};

template <>
struct Formula<BlockScale::kEpsilonOverDecode> : FractionRule {
  static constexpr std::string_view kLabel = "epsilon_over_decode";
  static constexpr std::string_view kText = "t = fl(fl(b/q) / D), with 2^-23 for fl(b/q) = 0";
  static constexpr std::string_view kShort = "t = (b / q) / D";
  static constexpr float Before(const BlockScaleInput& in) {
    const float block = in.b / in.q;
    return (block == 0.0f ? kFloatEpsilon : block) / in.tensor.decode;
  }
};

template <>
struct Formula<BlockScale::kDivideByBoth> : FractionRule {
  static constexpr std::string_view kLabel = "divide_by_both";
  static constexpr std::string_view kText = "t = fl(b / fl(q * D))";
  static constexpr std::string_view kShort = "t = b / (q * D)";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b / (in.q * in.tensor.decode);
  }
};

template <>
struct Formula<BlockScale::kOverDecode> : FractionRule {
  static constexpr std::string_view kLabel = "over_decode";
  static constexpr std::string_view kText = "t = fl(fl(b/D) / q), 0 where D is 0";
  static constexpr std::string_view kShort = "t = (b / D) / q";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.tensor.decode == 0.0f ? 0.0f : in.b / in.tensor.decode / in.q;
  }
};

template <>
struct Formula<BlockScale::kOverTensor> : FractionRule {
  static constexpr std::string_view kLabel = "over_tensor";
  static constexpr std::string_view kText =
      "t = fl(fl(fl(b/q) * scale_max) / fl(amax/q)), with 1 for fl(b/q) = 0";
  static constexpr std::string_view kShort = "t = ((b / q) * max) / (amax / q)";
  static constexpr float Before(const BlockScaleInput& in) {
    const float block = in.b / in.q == 0.0f ? 1.0f : in.b / in.q;
    return block * in.scale_max / (in.tensor.amax / in.q);
  }
};

template <>
struct Formula<BlockScale::kNoTensorScale> : FractionRule {
  static constexpr std::string_view kLabel = "no_level";
  static constexpr std::string_view kText = "t = fl(b/q)";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
};

template <>
struct Formula<BlockScale::kNoTensorScaleFloored> : FractionRule {
  static constexpr std::string_view kLabel = "no_level_floored";
  static constexpr std::string_view kText = "t = fl(max(b, fl(10^-4))/q)";
  static constexpr std::string_view kShort = "t = max(b, 1e-4) / q";
  static constexpr float Before(const BlockScaleInput& in) { return FlooredAmax(in.b) / in.q; }
};

template <>
struct Formula<BlockScale::kInverseOfEncode> : FractionRule {
  static constexpr std::string_view kLabel = "inverse_of_encode";
  static constexpr std::string_view kText =
      "t = fl(1/e), e = min(fl(q/b), FLT_MAX), 1 where b is 0, Inf or NaN";
  static constexpr std::string_view kShort = "t = 1 / (q / b)";
  static constexpr float Before(const BlockScaleInput& in) {
    return 1.0f / EncodeOfBlock(in.b, in.q);
  }
};

template <>
struct Formula<BlockScale::kApproximate> : FractionRule, ApproximateFormula {
  // The instruction allows a set of answers; Before has the correctly rounded reciprocal.
  static constexpr std::string_view kLabel = "approximate";
  static constexpr std::string_view kText = "t = fl(S * fl(b * rcp.approx.ftz(q)))";
  static constexpr std::string_view kShort = "t = S * (b * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.tensor.encode * (in.b * (1.0f / in.q));
  }
};

template <>
struct Formula<BlockScale::kFoldedApproximate> : FractionRule, ApproximateFormula {
  // The instruction allows a set of answers; Before has the correctly rounded reciprocal.
  static constexpr std::string_view kLabel = "folded_approximate";
  static constexpr std::string_view kText = "t = fl(b * fl(S * rcp.approx.ftz(q)))";
  static constexpr std::string_view kShort = "t = b * (S * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b * (in.tensor.encode * (1.0f / in.q));
  }
};

template <>
struct Formula<BlockScale::kFloor> : ExponentRule {
  static constexpr std::string_view kLabel = "floor";
  static constexpr std::string_view kText = "s = 2^(floor(log2 b) - emax)";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return FloorByte(std::bit_cast<std::uint32_t>(in.b), MaxExponent(in.element));
  }
};

template <>
struct Formula<BlockScale::kCeil> : ExponentRule {
  static constexpr std::string_view kLabel = "ceil";
  static constexpr std::string_view kText = "s = 2^(ceil(log2 b) - emax)";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return CeilByte(std::bit_cast<std::uint32_t>(in.b), MaxExponent(in.element));
  }
};

template <>
struct Formula<BlockScale::kRceil> : ExponentRule {
  static constexpr std::string_view kLabel = "rceil";
  static constexpr std::string_view kText = "s = 2^ceil(log2 fl(b * fl(1/q)))";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return RceilByte(in.b, 1.0f / in.q);
  }
};

template <>
struct Formula<BlockScale::kEven> : ExponentRule {
  static constexpr std::string_view kLabel = "even";
  static constexpr std::string_view kText =
      "s = 2^(floor(log2 b') - emax), b' = b plus half a unit of the element's fraction";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return EvenByte(std::bit_cast<std::uint32_t>(in.b), MaxExponent(in.element),
                    FormatOf(in.element).mantissa_bits);
  }
};

template <>
struct Formula<BlockScale::kEvenQuarter> : ExponentRule {
  // kEven's step of E2M1, at 1.75 powers of two, for every element.
  static constexpr std::string_view kLabel = "even_quarter";
  static constexpr std::string_view kText =
      "s = 2^(floor(log2 b') - emax), b' = b plus a quarter of its power of two";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(in.b);
    return FloorByte(bits >= 0x7F800000u ? bits : bits + kQuarterBinade, MaxExponent(in.element));
  }
};

// AMD Quark's three modes: the exported byte of a scale that the elements are divided by as it is
// (Factor::kDivideByQuark).
template <>
struct Formula<BlockScale::kQuarkEven> : ExponentRule {
  static constexpr std::string_view kLabel = "quark_even";
  static constexpr std::string_view kText =
      "s' = 2^(floor(log2 b') - emax) from 2^-127 to 2^127, b' = b plus half a unit of the "
      "element's fraction, FLT_MIN where b is 0; s = max(s', 2^-126)";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return QuarkByte(QuarkEvenScale(in.b, in.element));
  }
};

template <>
struct Formula<BlockScale::kQuarkFloor> : ExponentRule {
  static constexpr std::string_view kLabel = "quark_floor";
  static constexpr std::string_view kText =
      "s' = fl(2^(floor(fl(log2 b)) - emax)), 2^-23 where that is 0; s = max(s', 2^-126)";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return QuarkByte(QuarkFloorScale(in.b, in.element));
  }
};

template <>
struct Formula<BlockScale::kQuarkCeil> : ExponentRule {
  static constexpr std::string_view kLabel = "quark_ceil";
  static constexpr std::string_view kText =
      "s' = fl(2^(ceil(fl(log2 b)) - emax)), 2^-23 where that is 0; s = max(s', 2^-126)";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return QuarkByte(QuarkCeilScale(in.b, in.element));
  }
};

template <>
struct Formula<BlockScale::kRceilApproximate> : ExponentRule, ApproximateFormula {
  // The instruction allows a set of answers; Exponent has the correctly rounded reciprocal. `.ftz`
  // flushes a product below 2^-126.
  static constexpr std::string_view kLabel = "rceil_approximate";
  static constexpr std::string_view kText = "s = 2^ceil(log2 fl(b * rcp.approx.ftz(q)))";
  static constexpr std::string_view kShort = "t = b * (1/q)";
  static constexpr float Before(const BlockScaleInput& in) { return in.b * (1.0f / in.q); }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) { return RceilByte(in.t, 1.0f); }
};

template <>
struct Formula<BlockScale::kFloorLog2> : ExponentRule {
  static constexpr std::string_view kLabel = "floor_log2";
  static constexpr std::string_view kText = "s = 2^(floor(fl(log2 b)) - emax)";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return FloorLog2Byte(in.b, MaxExponent(in.element));
  }
};

template <>
struct Formula<BlockScale::kFloorLog2Clamped> : ExponentRule {
  // b = Inf has the scale 2^127.
  static constexpr std::string_view kLabel = "floor_log2_clamped";
  static constexpr std::string_view kText =
      "s = 2^(floor(fl(log2 b)) - emax) from 2^-127 to 2^127, 2^(1 - emax) where b is 0";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    if (in.b > kFloatMax) return 254;
    const int exponent = in.b == 0.0f ? 1 : FloorLog2(in.b);
    return ExponentByte(exponent - MaxExponent(in.element));
  }
};

template <>
struct Formula<BlockScale::kCeilLog2> : ExponentRule {
  static constexpr std::string_view kLabel = "ceil_log2";
  static constexpr std::string_view kText =
      "s = 2^ceil(fl(fl(ln t) * fl(1/ln 2))), t = fl(b * fl(1/q)), 1 where t < 2^-63";
  static constexpr std::string_view kShort = "t = b * (1/q)";
  static constexpr float Before(const BlockScaleInput& in) { return in.b * (1.0f / in.q); }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) { return CeilLog2Byte(in.t); }
};

template <>
struct Formula<BlockScale::kCeilLog2Least> : ExponentRule {
  // b = Inf has the scale 2^127.
  static constexpr std::string_view kLabel = "ceil_log2_least";
  static constexpr std::string_view kText =
      "s = 2^max(ceil(fl(log2 fl(b/q))), -127), 2^-127 where b is 0";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    if (in.t > kFloatMax) return 254;
    return in.t == 0.0f ? std::uint8_t{0} : ExponentByte(CeilLog2(in.t));
  }
};

template <>
struct Formula<BlockScale::kCeilLog2Clamped> : ExponentRule {
  // b = Inf has the scale 2^127, a quotient that underflows 2^-127.
  static constexpr std::string_view kLabel = "ceil_log2_clamped";
  static constexpr std::string_view kText =
      "s = 2^ceil(fl(log2 fl(b/q))) from 2^-127 to 2^127, 2 where b is 0";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    if (in.b == 0.0f) return 128;
    if (in.b > kFloatMax) return 254;
    return in.t == 0.0f ? std::uint8_t{0} : ExponentByte(CeilLog2(in.t));
  }
};

template <>
struct Formula<BlockScale::kCeilLog2Wrapped> : ExponentRule {
  // The logarithm is not rounded: the float above 2^k has k + 1. WrappedByte has the bytes of NaN
  // and Inf.
  static constexpr std::string_view kLabel = "ceil_log2_wrapped";
  static constexpr std::string_view kText =
      "byte = 127 + ceil(log2 fl(b/q)) mod 256, 127 where fl(b/q) is 0";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return WrappedByte(in.t, ExactCeilLog2);
  }
};

template <>
struct Formula<BlockScale::kRoundLog2> : ExponentRule {
  // WrappedByte has the bytes of NaN and Inf.
  static constexpr std::string_view kLabel = "round_log2";
  static constexpr std::string_view kText =
      "byte = 127 + round(fl(log2 fl(b/q))) mod 256, 127 where fl(b/q) is 0";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return WrappedByte(in.t, RoundLog2);
  }
};

template <>
struct Formula<BlockScale::kOverflowAware> : ExponentRule {
  static constexpr std::string_view kLabel = "overflow_aware";
  static constexpr std::string_view kText =
      "s = 2^k, the exponent of bf16(fl(fl(b/q) * fl(12/7))), 1 where fl(b/q) < 2^-63";
  static constexpr std::string_view kShort = "t = (b / q) * (12/7)";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q * (12.0f / 7.0f); }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return in.b / in.q < kTiny ? std::uint8_t{127} : Bf16ExponentByte(in.t);
  }
};

template <>
struct Formula<BlockScale::kFloorLog2Quotient> : ExponentRule {
  static constexpr std::string_view kLabel = "floor_log2_quotient";
  static constexpr std::string_view kText = "s = 2^floor(log2 fl(b/q))";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return FloorByte(std::bit_cast<std::uint32_t>(in.t), 0);
  }
};

template <>
struct Formula<BlockScale::kCeilQuotientFloored> : ExponentRule {
  // DeepGEMM clamps the exponent field to [1, 254].
  static constexpr std::string_view kLabel = "ceil_quotient_floored";
  static constexpr std::string_view kText =
      "s = 2^ceil(log2 fl(max(b, fl(10^-4))/q)), at most 2^127";
  static constexpr std::string_view kShort = "t = max(b, 1e-4) / q";
  static constexpr float Before(const BlockScaleInput& in) { return FlooredAmax(in.b) / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(in.t);
    const std::uint32_t field = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
    return static_cast<std::uint8_t>(field < 1 ? 1u : field > 254 ? 254u : field);
  }
};

template <>
struct Formula<BlockScale::kInverseOfPower> : ExponentRule {
  // The factor without its fraction is a power of two, and the scale its reciprocal.
  static constexpr std::string_view kLabel = "inverse_of_power";
  static constexpr std::string_view kText =
      "s = 2^-floor(log2 e), e = min(fl(q/b), FLT_MAX), 1 where b is 0 or Inf";
  static constexpr std::string_view kShort = "t = q / b";
  static constexpr float Before(const BlockScaleInput& in) { return EncodeOfBlock(in.b, in.q); }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return static_cast<std::uint8_t>(254u - (std::bit_cast<std::uint32_t>(in.t) >> 23));
  }
};

// The power of two whose logarithm is nearest: amax ends between q / sqrt 2 and q * sqrt 2.
template <>
struct Formula<BlockScale::kNearestLog2> : ExponentRule {
  static constexpr std::string_view kLabel = "nearest_log2";
  static constexpr std::string_view kText = "s = 2^floor(log2 fl(fl(b/q) * fl(sqrt 2)))";
  static constexpr std::string_view kShort = "t = (b / q) * sqrt 2";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q * 0x1.6a09e6p0f; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return FloorByte(std::bit_cast<std::uint32_t>(in.t), 0);
  }
};

template <>
struct Formula<BlockScale::kOneBlock> : FractionRule {
  // FP8 with one scale for the tensor.
  static constexpr std::string_view kLabel = "one_block";
  static constexpr std::string_view kText = "none";
  static constexpr std::string_view kShort = "t, before rounding";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
};

struct BlockScaleBeforeOf {
  BlockScaleInput in;
  template <class Rule>
  constexpr float operator()(Rule) const {
    return Rule::Before(in);
  }
};
constexpr float BlockScaleBefore(BlockScale scale, const BlockScaleInput& in) {
  return WithFormula<float>(scale, BlockScaleBeforeOf{in});
}

struct BlockScaleExponentOf {
  ExponentInput in;
  template <class Rule>
  constexpr std::uint8_t operator()(Rule) const {
    return Rule::Exponent(in);
  }
};
// The E8M0 byte, for rules with kIsExponent; 0 for all others.
constexpr std::uint8_t BlockScaleExponent(BlockScale scale, const ExponentInput& in) {
  return WithFormula<std::uint8_t>(scale, BlockScaleExponentOf{in});
}

}  // namespace fp4lab
