// Dialects: the formulas that all call themselves NVFP4 or MXFP4, each a row of a table.
//
// A quantizer goes through the same stages in every code base; a dialect says which formula stands
// at each stage, in its exact operation order (binary32, RNE, subnormals kept, no contraction):
//   amax of the tensor, a row, or nothing   -> the tensor scale: S (encode) and D (decode)
//   block amax b, S, D                      -> t, the scale before rounding
//   t                                       -> the stored scale byte, of value s
//   s, S, D                                 -> the factor (or divisor) e of the block
//   x, e                                    -> v, the scaled element
//   v                                       -> the code
// Each formula is a struct, one per enumerator, in the header of its stage: tensor_scale_rules.h,
// block_scale_rules.h, scale_encodings.h, factors.h, element_roundings.h, other_rules.h. `explain`
// uses the same enumerators: it describes a wrong kernel as a row with one stage changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp4lab/dialect/block_scale_rules.h"
#include "fp4lab/dialect/element_roundings.h"
#include "fp4lab/dialect/factors.h"
#include "fp4lab/dialect/other_rules.h"
#include "fp4lab/dialect/scale_encodings.h"
#include "fp4lab/dialect/tensor_scale_rules.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// One way to quantize a tensor. The default member values are Transformer Engine's NVFP4, without a
// name.
struct Dialect {
  std::string_view name = {};     // "nvfp4.te"
  std::string_view version = {};  // code base and its commit or release: the formula at a version
  std::string_view source = {};   // file and function in the code base
  std::string_view note = {};     // remarks for readers of the table; may be empty
  FormatId element = FormatId::kE2M1, scale = FormatId::kE4M3;
  int block_rows = 1, block_cols = 16;  // 0, 0: one block, the tensor
  TensorScaleRule tensor_scale = TensorScaleRule::kEncodeScale;
  bool row_scaled = false;   // one amax (and S, D) per row instead of one per tensor
  float scale_max = 448.0f;  // the largest block scale that C aims at (448, or 256 for 4over6)
  BlockScale block_scale = BlockScale::kFolded;
  ScaleEncoding scale_encoding = ScaleEncoding::kNearest;
  Factor factor = Factor::kReciprocal;
  ElementRounding rounding = ElementRounding::kNearestEven;
  Adaptive adaptive = Adaptive::kNo;
  bool adaptive_fp16 = false;        // the errors of `adaptive` from FP16 products (TE's fast path)
  bool adaptive_decode = false;      // the errors from value*s*D instead of value*s*amax/C
  bool keeps_negative_zero = true;   // false: v = -0 gives the code of +0
  bool never_negative_zero = false;  // every code of value 0 is +0, whatever rounded to it
  NanRule nan = NanRule::kElement;
  InfScale inf_scale = InfScale::kRule;
  std::int16_t nan_scale = -1, nan_code = -1;  // the bytes stored for NaN; -1: the format's own
  // Additions of published training recipes; every row of the table has the defaults.
  float target = 0.0f;    // the value that a block's amax is mapped to; 0: the largest element
  float prescale = 1.0f;  // multiplies factors; decoded values are divided by the prescale
  BlockStatistic statistic = BlockStatistic::kAmax;
  Unbias unbias = Unbias::kNone;
  friend constexpr bool operator==(const Dialect&, const Dialect&) = default;
};

// All rows, in the order in which `fp4lab dialects` prints them.
std::span<const Dialect> Dialects();

// nullptr for an unknown name. Accepts aliases ("te" for "nvfp4.te").
const Dialect* FindDialect(std::string_view name);

// An unnamed dialect with the usual formulas for a block scale rule: Transformer Engine's NVFP4 for
// kFolded, OCP's under E8M0 scales for kFloor, kCeil, kRceil and kEven, FP8 with one scale for the
// tensor and no blocks for kOneBlock.
constexpr Dialect DialectUnder(BlockScale rule, FormatId element, int block_rows, int block_cols) {
  Dialect d;
  d.element = element;
  d.block_rows = block_rows;
  d.block_cols = block_cols;
  d.block_scale = rule;
  if (rule == BlockScale::kFolded) return d;
  d.scale = FormatId::kE8M0;
  if (rule == BlockScale::kOneBlock) {
    d.block_rows = d.block_cols = 0;
    d.tensor_scale = TensorScaleRule::kTensorFp8;
    d.scale_max = 1.0f;
    d.factor = Factor::kTensorScale;
    return d;
  }
  d.tensor_scale = TensorScaleRule::kNone;
  d.scale_encoding = ScaleEncoding::kExponent;
  d.factor = Factor::kPowerOfTwo;
  return d;
}

// A copy of the dialect with another rounding of elements.
constexpr Dialect WithRounding(Dialect dialect, ElementRounding rounding) {
  dialect.rounding = rounding;
  return dialect;
}

// Undoes WithRounding: a copy of the dialect with the rounding of the table row of its name. RNE if
// no row has the name or the row's rounding is stochastic.
Dialect WithOwnRounding(Dialect dialect);

// The first row whose formulas equal those of `dialect`; if there is none, `dialect` without name,
// version, source and note.
Dialect Canonical(const Dialect& dialect);

// q, the value that a block's amax is mapped to.
constexpr float TargetOf(const Dialect& d) {
  return d.target != 0.0f ? d.target : MaxFinite(d.element);
}

// C, the amax that the tensor scale maps to 1. The product is exact for every row but Quartet II's.
constexpr float TensorScaleConstant(const Dialect& d) { return d.scale_max * TargetOf(d); }
inline constexpr float kNvfp4Constant = TensorScaleConstant(Dialect{});  // 2688

// True for dialects whose specification allows a set of answers: QuantizeAs returns one member,
// IsAllowed (quantize/quantize.h) decides whether an answer is a member.
constexpr bool IsApproximate(const Dialect& d) {
  return WithFormula<bool>(d.tensor_scale, FormulaIsApproximate{}) ||
         WithFormula<bool>(d.block_scale, FormulaIsApproximate{}) ||
         WithFormula<bool>(d.factor, FormulaIsApproximate{});
}

// True if the formulas use the amax of the tensor (or of each row); Quantized::amax is then not
// empty.
constexpr bool HasTensorScale(const Dialect& d) { return d.tensor_scale != TensorScaleRule::kNone; }

constexpr bool IsStochastic(const Dialect& d) { return RandomBitsOf(d.rounding) != 0; }

// True where the quantization takes random bits, for its elements or its scales.
constexpr bool TakesRandomBits(const Dialect& d) {
  return IsStochastic(d) || d.unbias != Unbias::kNone;
}

// Whether two dialects have equal formulas; name, version, source and note are ignored.
constexpr bool SameFormulas(Dialect a, const Dialect& b) {
  a.name = b.name;
  a.version = b.version;
  a.source = b.source;
  a.note = b.note;
  return a == b;
}

}  // namespace fp4lab
