// The formulas of block scales, one struct an enumerator: all that is said of a formula stands
// here.
//
// To add one: an enumerator before kOneBlock and its struct. What is missing in a struct does not
// compile; quantizers on CPU and GPU, `dialects`, `explain`, recipes in JSON and the tests range
// over the enumeration. A row of rows_*.cc gives a published formula its name.
//
// binary32, round to nearest even, subnormals kept, nothing contracted; fl(.) is one rounding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "fp4lab/dialect/exponent_bytes.h"
#include "fp4lab/dialect/level.h"

namespace fp4lab {

// How t follows from the block's amax b; q is the largest element (6), or Dialect::target.
enum class BlockScale : std::uint8_t {
  kFolded,
  kFoldedOpen,
  kTimesSixth,
  kDivideFirst,
  kDivideByLevel,
  kDivideByBoth,
  kOverDecode,
  kOverTensor,
  kNoLevel,
  kApproximate,
  kFoldedApproximate,
  kMicroscaling,
  kFloorLog2,
  kCeilLog2,
  kOverflowAware,
  kFloorLog2Quotient,
  kNearestLog2,
  kOneBlock
};
inline constexpr std::size_t kBlockScales = static_cast<std::size_t>(BlockScale::kOneBlock) + 1;

struct BlockScaleInput {
  float b, q;
  float scale_max;  // 448, the block scale that level 2 aims at
  Level level;
};
// For E8M0 scales: max_exponent is floor(log2) of the largest element.
struct ExponentInput {
  float b, t, q;
  int max_exponent;
};

// kLabel: its name in JSON. kText: the exact formula. kShort: without roundings and guards. Before:
// t. An E8M0 scale's formula is an ExponentRule and has Exponent, its byte, too.
template <BlockScale>
struct BlockScaleRule;

struct FractionRule {
  static constexpr bool kIsExponent = false;
  static constexpr std::uint8_t Exponent(const ExponentInput&) { return 0; }
};
struct ExponentRule {
  static constexpr bool kIsExponent = true;
};

template <>
struct BlockScaleRule<BlockScale::kFolded> : FractionRule {
  // fminf: NaN gives FLT_MAX.
  static constexpr std::string_view kLabel = "folded";
  static constexpr std::string_view kText =
      "t = min(fl(b * fl(S * fl(1/q))), FLT_MAX), NaN dropped";
  static constexpr std::string_view kShort = "t = b * (S * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return ClampToMax(in.b * (in.level.encode * (1.0f / in.q)));
  }
};

template <>
struct BlockScaleRule<BlockScale::kFoldedOpen> : FractionRule {
  static constexpr std::string_view kLabel = "folded_open";
  static constexpr std::string_view kText = "t = fl(b * fl(S * fl(1/q)))";
  static constexpr std::string_view kShort = "t = b * (S * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b * (in.level.encode * (1.0f / in.q));
  }
};

template <>
struct BlockScaleRule<BlockScale::kTimesSixth> : FractionRule {
  static constexpr std::string_view kLabel = "times_sixth";
  static constexpr std::string_view kText = "t = fl(S * fl(b * fl(1/q)))";
  static constexpr std::string_view kShort = "t = S * (b * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.level.encode * (in.b * (1.0f / in.q));
  }
};

template <>
struct BlockScaleRule<BlockScale::kDivideFirst> : FractionRule {
  static constexpr std::string_view kLabel = "divide_first";
  static constexpr std::string_view kText = "t = fl(fl(b/q) * S)";
  static constexpr std::string_view kShort = "t = (b / q) * S";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q * in.level.encode; }
};

template <>
struct BlockScaleRule<BlockScale::kDivideByLevel> : FractionRule {
  static constexpr std::string_view kLabel = "divide_by_level";
  static constexpr std::string_view kText = "t = fl(fl(b/q) / D)";
  static constexpr std::string_view kShort = "t = (b / q) / D";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q / in.level.decode; }
};

template <>
struct BlockScaleRule<BlockScale::kDivideByBoth> : FractionRule {
  static constexpr std::string_view kLabel = "divide_by_both";
  static constexpr std::string_view kText = "t = fl(b / fl(q * D))";
  static constexpr std::string_view kShort = "t = b / (q * D)";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b / (in.q * in.level.decode);
  }
};

template <>
struct BlockScaleRule<BlockScale::kOverDecode> : FractionRule {
  static constexpr std::string_view kLabel = "over_decode";
  static constexpr std::string_view kText = "t = fl(fl(b/D) / q), 0 where D is 0";
  static constexpr std::string_view kShort = "t = (b / D) / q";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.level.decode == 0.0f ? 0.0f : in.b / in.level.decode / in.q;
  }
};

template <>
struct BlockScaleRule<BlockScale::kOverTensor> : FractionRule {
  static constexpr std::string_view kLabel = "over_tensor";
  static constexpr std::string_view kText =
      "t = fl(fl(fl(b/q) * scale_max) / fl(amax/q)), with 1 for fl(b/q) = 0";
  static constexpr std::string_view kShort = "t = ((b / q) * max) / (amax / q)";
  static constexpr float Before(const BlockScaleInput& in) {
    const float block = in.b / in.q == 0.0f ? 1.0f : in.b / in.q;
    return block * in.scale_max / (in.level.amax / in.q);
  }
};

template <>
struct BlockScaleRule<BlockScale::kNoLevel> : FractionRule {
  static constexpr std::string_view kLabel = "no_level";
  static constexpr std::string_view kText = "t = fl(b/q)";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
};

template <>
struct BlockScaleRule<BlockScale::kApproximate> : FractionRule {
  // A set of answers; this is the member whose reciprocals are the rounded ones.
  static constexpr std::string_view kLabel = "approximate";
  static constexpr std::string_view kText = "t = fl(S * fl(b * rcp.approx.ftz(q)))";
  static constexpr std::string_view kShort = "t = S * (b * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.level.encode * (in.b * (1.0f / in.q));
  }
};

template <>
struct BlockScaleRule<BlockScale::kFoldedApproximate> : FractionRule {
  // A set of answers, likewise.
  static constexpr std::string_view kLabel = "folded_approximate";
  static constexpr std::string_view kText = "t = fl(b * fl(S * rcp.approx.ftz(q)))";
  static constexpr std::string_view kShort = "t = b * (S * (1/q))";
  static constexpr float Before(const BlockScaleInput& in) {
    return in.b * (in.level.encode * (1.0f / in.q));
  }
};

template <>
struct BlockScaleRule<BlockScale::kMicroscaling> : FractionRule {
  static constexpr bool kIsExponent = true;
  // The byte follows from b by the E8M0 rule of Dialect::mx_rule (block/scale_rules.h).
  static constexpr std::string_view kLabel = "microscaling";
  static constexpr std::string_view kText = "s = 2^k by an E8M0 rule";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
};

template <>
struct BlockScaleRule<BlockScale::kFloorLog2> : ExponentRule {
  static constexpr std::string_view kLabel = "floor_log2";
  static constexpr std::string_view kText = "s = 2^(floor(fl(log2 b)) - emax)";
  static constexpr std::string_view kShort = "t = b";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return FloorLog2Byte(in.b, in.max_exponent);
  }
};

template <>
struct BlockScaleRule<BlockScale::kCeilLog2> : ExponentRule {
  static constexpr std::string_view kLabel = "ceil_log2";
  static constexpr std::string_view kText = "s = 2^ceil(fl(log2 fl(b/q))), 1 where b is 0";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) { return CeilLog2Byte(in.t); }
};

template <>
struct BlockScaleRule<BlockScale::kOverflowAware> : ExponentRule {
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
struct BlockScaleRule<BlockScale::kFloorLog2Quotient> : ExponentRule {
  static constexpr std::string_view kLabel = "floor_log2_quotient";
  static constexpr std::string_view kText = "s = 2^floor(log2 fl(b/q))";
  static constexpr std::string_view kShort = "t = b / q";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return FloorByte(std::bit_cast<std::uint32_t>(in.t), 0);
  }
};

// The power of two whose logarithm is nearest: amax ends between q / sqrt 2 and q * sqrt 2.
template <>
struct BlockScaleRule<BlockScale::kNearestLog2> : ExponentRule {
  static constexpr std::string_view kLabel = "nearest_log2";
  static constexpr std::string_view kText = "s = 2^floor(log2 fl(fl(b/q) * fl(sqrt 2)))";
  static constexpr std::string_view kShort = "t = (b / q) * sqrt 2";
  static constexpr float Before(const BlockScaleInput& in) { return in.b / in.q * 0x1.6a09e6p0f; }
  static constexpr std::uint8_t Exponent(const ExponentInput& in) {
    return FloorByte(std::bit_cast<std::uint32_t>(in.t), 0);
  }
};

template <>
struct BlockScaleRule<BlockScale::kOneBlock> : FractionRule {
  // FP8 with one scale for the tensor.
  static constexpr std::string_view kLabel = "one_block";
  static constexpr std::string_view kText = "none";
  static constexpr std::string_view kShort = "t, before rounding";
  static constexpr float Before(const BlockScaleInput& in) { return in.b; }
};

// use(rule) for the rule of an enumerator. Functors, not lambdas: device code calls it.
template <class Result, class Use, std::size_t... kIndex>
constexpr Result WithBlockScaleRule(BlockScale scale, const Use& use,
                                    std::index_sequence<kIndex...>) {
  Result result{};
  static_cast<void>(((static_cast<std::size_t>(scale) == kIndex &&
                      (result = use(BlockScaleRule<static_cast<BlockScale>(kIndex)>{}), true)) ||
                     ...));
  return result;
}
template <class Result, class Use>
constexpr Result WithBlockScaleRule(BlockScale scale, const Use& use) {
  return WithBlockScaleRule<Result>(scale, use, std::make_index_sequence<kBlockScales>());
}

struct BlockScaleBeforeOf {
  BlockScaleInput in;
  template <class Rule>
  constexpr float operator()(Rule) const {
    return Rule::Before(in);
  }
};
constexpr float BlockScaleBefore(BlockScale scale, const BlockScaleInput& in) {
  return WithBlockScaleRule<float>(scale, BlockScaleBeforeOf{in});
}

struct BlockScaleExponentOf {
  ExponentInput in;
  template <class Rule>
  constexpr std::uint8_t operator()(Rule) const {
    return Rule::Exponent(in);
  }
};
// Of the rules with kIsExponent, kMicroscaling left out.
constexpr std::uint8_t BlockScaleExponent(BlockScale scale, const ExponentInput& in) {
  return WithBlockScaleRule<std::uint8_t>(scale, BlockScaleExponentOf{in});
}

}  // namespace fp4lab
