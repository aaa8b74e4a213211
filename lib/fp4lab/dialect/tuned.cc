#include "fp4lab/dialect/tuned.h"

namespace fp4lab {
namespace {

// The rule that the formulas may be; FormulasOf says whether they are.
ScaleRule RuleOf(const Dialect& d) {
  if (d.block_scale == BlockScale::kOneBlock) return ScaleRule::kTensor;
  return d.block_scale == BlockScale::kMicroscaling ? d.mx_rule : ScaleRule::kNvfp4;
}

std::optional<Rounding> TunedRounding(ElementRounding rounding) {
  switch (rounding) {
    case ElementRounding::kNearestEven:
      return Rounding::kNearestEven;
    case ElementRounding::kTowardZero:
      return Rounding::kTowardZero;
    case ElementRounding::kStochastic16:
    case ElementRounding::kStochastic32:
      return Rounding::kStochastic;
    case ElementRounding::kTiesUp:
    case ElementRounding::kHalfAdded:
    case ElementRounding::kBf16First:
    case ElementRounding::kTiesToLower:
    case ElementRounding::kStochastic8:  // Transformer Engine's, not the upper half of 16 bits
    case ElementRounding::kStochastic4:
      break;
  }
  return std::nullopt;
}

bool HasTunedBlocks(const BlockFormat& f) {
  if (f.rule == ScaleRule::kTensor) return true;
  const bool blocks = f.block_cols > 0 && f.block_cols % 8 == 0 && f.block_cols <= 128 &&
                      f.block_rows > 0 && f.block_rows <= 128;
  const bool nvfp4 = f.element == FormatId::kE2M1 && f.scale == FormatId::kE4M3;
  return blocks && (f.rule == ScaleRule::kNvfp4 ? nvfp4 : f.scale == FormatId::kE8M0);
}

}  // namespace

Dialect FormulasOf(const BlockFormat& format) {
  Dialect d;
  d.element = format.element;
  d.scale = format.scale;
  d.block_rows = format.block_rows;
  d.block_cols = format.block_cols;
  if (format.rule == ScaleRule::kNvfp4) return d;
  if (format.rule == ScaleRule::kTensor) {
    d.block_rows = d.block_cols = 0;
    d.level_two = LevelTwo::kTensorFp8;
    d.scale_max = 1.0f;
    d.block_scale = BlockScale::kOneBlock;
    d.factor = Factor::kTensorScale;
    return d;
  }
  d.level_two = LevelTwo::kNone;
  d.block_scale = BlockScale::kMicroscaling;
  d.mx_rule = format.rule;
  d.scale_encoding = ScaleEncoding::kExponent;
  d.factor = Factor::kPowerOfTwo;
  return d;
}

Dialect DialectOf(const BlockFormat& format) { return Canonical(FormulasOf(format)); }

std::optional<TunedQuantizer> TunedFor(const Dialect& dialect) {
  const std::optional<Rounding> rounding = TunedRounding(dialect.rounding);
  const BlockFormat format{dialect.element, dialect.scale, dialect.block_rows, dialect.block_cols,
                           RuleOf(dialect)};
  if (!rounding || !HasTunedBlocks(format)) return std::nullopt;
  Dialect formulas = FormulasOf(format);
  formulas.rounding = dialect.rounding;
  if (!SameFormulas(formulas, dialect)) return std::nullopt;
  const int bits = RandomBitsOf(dialect.rounding);
  return TunedQuantizer{format, *rounding, bits != 0 ? bits : 16};
}

}  // namespace fp4lab
