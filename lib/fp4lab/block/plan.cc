#include "fp4lab/block/plan.h"

#include <algorithm>
#include <bit>

#include "fp4lab/base/error.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/scale_rules.h"

namespace fp4lab {
namespace {

ScaleConstants ScaleConstantsOf(const BlockFormat& format, float amax) {
  std::uint32_t rounding = 0;
  if (format.rule == ScaleRule::kCeil) rounding = 0x7FFFFFu;
  if (format.rule == ScaleRule::kEven) {
    rounding = 1u << (22 - FormatOf(format.element).mantissa_bits);
  }
  return {.rule = format.rule,
          .tensor = TensorScaleOf(format, amax),
          .reciprocal = 1.0f / MaxFinite(format.element),
          .rounding = rounding,
          .max_exponent = MaxExponent(format.element)};
}

}  // namespace

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
  const BlockFormat& format = options.format;
  const bool whole = format.rule == ScaleRule::kTensor;  // any cut will do
  QuantizePlan plan{};
  plan.element = ElementConstantsOf(format.element);
  plan.scale = ScaleConstantsOf(format, options.amax.value_or(0.0f));
  plan.transposed = transposed;
  plan.rows = rows;
  plan.cols = cols;
  plan.block_rows = whole ? 1 : static_cast<std::size_t>(format.block_rows);
  plan.block_cols = whole ? 32 : static_cast<std::size_t>(format.block_cols);
  if (transposed) std::swap(plan.block_rows, plan.block_cols);
  const std::size_t step = plan.block_cols * ((15 + plan.block_cols) / plan.block_cols);
  const std::size_t wanted = std::clamp<std::size_t>(4096 / plan.block_rows, 128, kMaxChunk);
  plan.chunk = std::max(step, wanted / step * step);
  plan.chunks = (plan.cols + plan.chunk - 1) / plan.chunk;
  plan.units = (plan.rows + plan.block_rows - 1) / plan.block_rows * plan.chunks;
  plan.rounding = options.rounding;
  plan.random = options.random;
  plan.random_bits = options.random_bits;
  plan.stage = stage;
  Expects(stage.fill == nullptr || plan.block_rows <= kMaxStagedBlock,
          "blocks of at most 32 memory rows after a stage");
  return plan;
}

MatrixView<const float> AsOneRow(MatrixView<const float> x, const BlockFormat& format) {
  if (!x.IsRowMajor()) return x;
  const bool whole = format.rule == ScaleRule::kTensor;
  const std::size_t width = whole ? 2 : static_cast<std::size_t>(format.block_cols);
  const bool one_high = whole || format.block_rows == 1;
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
