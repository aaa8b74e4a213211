// How the GPU makes the operands of a linear: which kernels, and which amaxes in one pass. Host
// code without CUDA: operand.cuh and linear.cu follow these plans.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/nn/linear_recipe.h"
#include "fp4lab/quantize/implementation.h"

namespace fp4lab::gpu {

// The kernels that quantize an operand, as a table in the order in which they are tried. A row says
// why it does not make a recipe's operand, or nothing.
enum class OperandKernel {
  kUnits,     // quantize.cuh: quantization and transform in one launch
  kDialects,  // dialect_operand.cuh: any dialect, after any transform
};
struct OperandKernelRow {
  OperandKernel kernel;
  std::string_view name;
  std::string_view (*why_not)(const OperandRecipe& recipe);  // whose format is set
};
std::span<const OperandKernelRow> OperandKernels();

// How one operand is made.
struct OperandPlan {
  // The kernel that quantizes; nullopt: the operand is not quantized, or no kernel of the table
  // computes its dialect.
  std::optional<OperandKernel> kernel;
  bool is_plain = false;  // the operand is its tensor without change
  // A transform that hadamard.cuh makes in a launch of its own, before the operand's kernel.
  bool transforms_apart = false;
  int hadamard = 0;                    // the transform that quantize.cuh makes: 0, 16 or 32
  std::optional<Dialect> format = {};  // the dialect if kUnits quantizes
  bool has_tensor_amax = false;        // the operand has one tensor scale
  bool has_row_scales = false;         // the operand has a scale for each row
  bool has_alpha = false;              // a factor of alpha: a tensor scale or a prescale
  bool needs_amax = false;             // the tensor's amax without NaN, which its producer can
                                       // measure
  bool has_delayed_scaling = false;
  // The operand has an outer scale for each window, which its values in binary32 contain: it has
  // neither a tensor amax nor scales of rows nor a factor of alpha.
  bool has_windows = false;
  // Elements along the reduction axis that share a scale in binary32, of a block or a window; 0:
  // there is none.
  std::size_t scaled_block = 0;
};
OperandPlan PlanOf(const OperandRecipe& recipe);

// How the matrix whose rows are the windows of an operand is quantized. recipe.scale_window must
// not be 0.
OperandRecipe LinesOf(const OperandRecipe& recipe);

// The amaxes of two operands of one tensor, both measured in this call.
enum class PairAmax {
  kApart,    // each operand measures what it needs
  kOne,      // both have the same amax
  kOnePass,  // one pass measures both, along the tensor's rows and down its columns
};

// How two operands of one tensor are made: `row` along its rows, `column` down its columns.
struct PairPlan {
  OperandPlan row, column;
  PairAmax amax = PairAmax::kApart;
  // One kernel makes both from a BF16 tensor, unless an observer sees them.
  bool together = false;
  bool knows_column_amax = false;  // the column's amax is known once the row's operand is made
};
PairPlan PlanOf(const OperandRecipe& row, const OperandRecipe& column);

}  // namespace fp4lab::gpu
