#include "fp4lab/gpu/quantize/operand_plan.h"

#include <algorithm>
#include <array>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/block/tuned.h"
#include "fp4lab/cuda/quantize/dialect_values.h"
#include "fp4lab/gpu/quantize/quantize_job.h"

namespace fp4lab::gpu {
namespace {

// Blocks of 16 or 32 or one scale for the tensor, rounding to nearest or with 16 bits of Philox,
// any element but 4-bit integers.
std::string_view WhyNotUnits(const OperandRecipe& recipe) {
  const Dialect& d = *recipe.format;
  if (d.element == FormatId::kE0M3) return "4-bit integers";
  if (const auto why = WhyNotTuned(d); !why.empty()) return why;
  const bool philox = recipe.random == RandomGenerator::kPhilox;
  const bool rounding = d.rounding == ElementRounding::kNearestEven ||
                        (d.rounding == ElementRounding::kStochastic16 && philox);
  if (!rounding) return "a rounding other than to nearest and with 16 bits of Philox";
  const int rows = d.block_rows, cols = d.block_cols;
  const bool has_blocks = cols == 0 || ((cols == 16 || cols == 32) && (rows == 1 || rows == cols));
  return has_blocks ? std::string_view() : "blocks other than rows or squares of 16 or 32";
}

std::string_view WhyNotDialects(const OperandRecipe& recipe) {
  return cuda::CanQuantizeToValues(*recipe.format) ? std::string_view()
                                                   : "a format without values on the GPU";
}

constexpr std::array kRows = {
    OperandKernelRow{OperandKernel::kUnits, "units", WhyNotUnits},
    OperandKernelRow{OperandKernel::kDialects, "dialects", WhyNotDialects},
};

// Whether the kernels of quantize.cuh include the transform: of 16 or 32 with Transformer Engine's
// signs, or none.
bool IsTransformOfUnits(const OperandRecipe& recipe) {
  return recipe.hadamard == 0 || ((recipe.hadamard == 16 || recipe.hadamard == 32) &&
                                  recipe.signs == HadamardSignSource::kTransformerEngine);
}

QuantizeJob JobOf(const OperandPlan& plan) {
  return {.format = plan.format, .random = {}, .hadamard = plan.hadamard};
}

PairAmax AmaxOf(const PairPlan& pair, const OperandRecipe& row, const OperandRecipe& column) {
  if (row.side || column.side) return PairAmax::kApart;  // what is quantized is not the tensor
  if (pair.row.has_delayed_scaling || pair.column.has_delayed_scaling) return PairAmax::kApart;
  const bool of_one =
      pair.row.needs_amax && pair.column.needs_amax && row.hadamard == 0 && !column.from_fprop;
  if (!of_one) return PairAmax::kApart;
  if (column.hadamard == 0) return PairAmax::kOne;
  return pair.column.transforms_apart ? PairAmax::kApart : PairAmax::kOnePass;
}

bool IsTogether(const PairPlan& pair, const OperandRecipe& row, const OperandRecipe& column) {
  if (pair.row.kernel == OperandKernel::kDialects) return false;
  if (pair.column.kernel == OperandKernel::kDialects) return false;
  if (row.side || column.side || pair.row.has_windows || pair.column.has_windows) return false;
  if (pair.row.transforms_apart || pair.column.transforms_apart || column.from_fprop) return false;
  const bool known =
      pair.amax == PairAmax::kOnePass || (!pair.row.needs_amax && !pair.column.needs_amax);
  return known && QuantizesBoth(JobOf(pair.row), JobOf(pair.column));
}

std::optional<OperandKernel> KernelOf(const OperandRecipe& recipe) {
  const auto* const row = std::find_if(kRows.begin(), kRows.end(), [&](const OperandKernelRow& r) {
    return r.why_not(recipe).empty();
  });
  if (row == kRows.end()) return std::nullopt;
  return row->kernel;
}

}  // namespace

std::span<const OperandKernelRow> OperandKernels() { return kRows; }

OperandRecipe LinesOf(const OperandRecipe& recipe) {
  const IeeeArithmetic ieee;
  OperandRecipe lines;
  lines.format = DialectOfWindows(*recipe.format);
  lines.random = recipe.random;
  return lines;
}

OperandPlan PlanOf(const OperandRecipe& recipe) {
  const IeeeArithmetic ieee;
  OperandPlan plan;
  plan.is_plain = !recipe.format && recipe.hadamard == 0;
  plan.has_windows = recipe.scale_window != 0;
  plan.transforms_apart = !IsTransformOfUnits(recipe) || (plan.has_windows && recipe.hadamard != 0);
  plan.hadamard = plan.transforms_apart ? 0 : recipe.hadamard;
  plan.has_delayed_scaling = recipe.delayed.length > 0;
  if (!recipe.format) return plan;
  if (plan.has_windows) {
    plan.kernel = KernelOf(LinesOf(recipe));
    plan.scaled_block = static_cast<std::size_t>(recipe.scale_window);
    return plan;
  }
  const Dialect& d = *recipe.format;
  if (d.scale_encoding == ScaleEncoding::kBinary32) {
    plan.scaled_block = static_cast<std::size_t>(d.block_cols);
  }
  plan.kernel = KernelOf(recipe);
  if (plan.kernel == OperandKernel::kUnits) plan.format = d;
  plan.has_tensor_amax = HasTensorScale(d) && !d.row_scaled;
  plan.has_row_scales = HasTensorScale(d) && d.row_scaled;
  plan.has_alpha = plan.has_tensor_amax || (!d.row_scaled && d.prescale != 1.0f);
  plan.needs_amax = plan.has_tensor_amax && d.nan != NanRule::kTensor;
  return plan;
}

PairPlan PlanOf(const OperandRecipe& row, const OperandRecipe& column) {
  const IeeeArithmetic ieee;
  PairPlan pair{.row = PlanOf(row), .column = PlanOf(column)};
  pair.amax = AmaxOf(pair, row, column);
  pair.together = IsTogether(pair, row, column);
  pair.knows_column_amax = !pair.column.needs_amax || pair.amax != PairAmax::kApart;
  return pair;
}

}  // namespace fp4lab::gpu
