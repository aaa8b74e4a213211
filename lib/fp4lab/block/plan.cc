#include "fp4lab/block/plan.h"

#include <algorithm>
#include <bit>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/dialect/exponent_bytes.h"
#include "fp4lab/dialect/tensor_scale_stage.h"

namespace fp4lab {
namespace {

Rounding RoundingOf(ElementRounding rounding) {
  if (RandomBitsOf(rounding) != 0) return Rounding::kStochastic;
  return rounding == ElementRounding::kTowardZero ? Rounding::kTowardZero : Rounding::kNearestEven;
}

// The addend of an E8M0 rule: added to the bits of an amax before their exponent is taken.
std::uint32_t RoundingAddend(const Dialect& d) {
  switch (d.block_scale) {
    case BlockScale::kCeil:
      return 0x7FFFFFu;
    case BlockScale::kEven:
    case BlockScale::kQuarkEven:
      return EvenAddend(FormatOf(d.element).mantissa_bits);
    case BlockScale::kEvenQuarter:
      return kQuarterBinade;
    default:
      return 0;
  }
}

}  // namespace

ScaleConstants ScaleConstantsOf(const Dialect& d, float amax) {
  const IeeeArithmetic ieee;
  const TensorScale tensor = TensorScaleOf(d, amax);
  return {.rule = d.block_scale,
          .tensor = tensor,
          .per_amax = FoldedFactor(tensor.encode, TargetOf(d)),
          .reciprocal = 1.0f / TargetOf(d),
          .rounding = RoundingAddend(d),
          .max_exponent = MaxExponent(d.element)};
}

ElementConstants ElementConstantsOf(FormatId id) {
  const Format& f = FormatOf(id);
  return {.max = MaxFinite(id),
          .min_normal = std::bit_cast<float>(static_cast<std::uint32_t>(128 - f.bias) << 23),
          .mantissa_bits = f.mantissa_bits,
          .nan = Decode(f, NanCode(f)),
          .nan_code = NanCode(f),
          .sign_code = SignBit(f)};
}

QuantizePlan MakePlan(std::size_t rows, std::size_t cols, bool transposed,
                      const QuantizeOptions& options, const UnitStage& stage) {
  CheckOptions(options);
  const Dialect& d = options.dialect;
  const bool whole = d.block_scale == BlockScale::kOneBlock;  // no blocks: any cut is valid
  QuantizePlan plan{};
  plan.element = ElementConstantsOf(d.element);
  plan.scale = ScaleConstantsOf(d, options.amax.value_or(0.0f));
  plan.transposed = transposed;
  plan.rows = rows;
  plan.cols = cols;
  plan.block_rows = whole ? 1 : static_cast<std::size_t>(d.block_rows);
  plan.block_cols = whole ? 32 : static_cast<std::size_t>(d.block_cols);
  if (transposed) std::swap(plan.block_rows, plan.block_cols);
  const std::size_t step = plan.block_cols * ((15 + plan.block_cols) / plan.block_cols);
  const std::size_t wanted = std::clamp<std::size_t>(4096 / plan.block_rows, 128, kMaxChunk);
  plan.chunk = std::max(step, wanted / step * step);
  plan.chunks = DivideUp(plan.cols, plan.chunk);
  plan.units = DivideUp(plan.rows, plan.block_rows) * plan.chunks;
  const std::size_t in_unit = plan.block_rows * plan.chunk;
  plan.group = std::max<std::size_t>(ElementsOfGroup(rows * cols) / in_unit, 8);
  plan.rounding = RoundingOf(d.rounding);
  plan.random = options.random;
  plan.random_bits = RandomBitsOf(d.rounding);
  plan.stage = stage;
  Expects(stage.fill == nullptr || plan.block_rows <= kMaxStagedBlock,
          "blocks of at most 32 memory rows after a stage");
  return plan;
}

MatrixView<const float> AsOneRow(MatrixView<const float> x, const Dialect& d) {
  if (!x.IsRowMajor()) return x;
  const bool whole = d.block_scale == BlockScale::kOneBlock;
  const std::size_t width = whole ? 2 : static_cast<std::size_t>(d.block_cols);
  const bool one_high = whole || d.block_rows == 1;
  return one_high && x.cols % width == 0 ? MatrixView<const float>(x.data, 1, x.size()) : x;
}

Unit UnitOf(const QuantizePlan& plan, std::size_t i) {
  const std::size_t row = i / plan.chunks * plan.block_rows;
  const std::size_t col = i % plan.chunks * plan.chunk;
  return {.row = row,
          .rows = std::min(plan.block_rows, plan.rows - row),
          .col = col,
          .cols = std::min(plan.chunk, plan.cols - col)};
}

}  // namespace fp4lab
