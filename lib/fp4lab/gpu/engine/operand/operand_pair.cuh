// The functions by which linear.cu makes the two operands of one tensor: along its rows, and down
// its columns.
#pragma once

#include <type_traits>

#include "fp4lab/gpu/engine/operand/operand.cuh"

namespace fp4lab::gpu {

// The places that the producer of a tensor (tokens, cols) fills for its row and column operands.
template <class T>
AmaxPlaces PlacesOf(const OperandRecipe& row, const OperandRecipe& column, std::size_t tokens,
                    std::size_t cols, std::uint32_t* plain, std::uint32_t* transformed) {
  if (!std::is_same_v<T, Bf16> || tokens % kAmaxRows != 0 || cols % 2 != 0) return {};
  const PairPlan plan = PlanOf(row, column);
  if (!plan.row.needs_amax || row.hadamard != 0 || plan.row.has_delayed_scaling) return {};
  if (row.side) return {};
  const bool both =
      plan.amax == PairAmax::kOnePass && column.hadamard == static_cast<int>(kAmaxRows);
  return {plain, both ? transformed : nullptr};
}

// One tensor (tokens, cols) as two operands: along its rows, and down its columns.
struct Pair {
  const OperandRecipe &row, &column;
  LinearOperand row_operand, column_operand;
  std::size_t tokens, cols;
  PairPlan plan = PlanOf(row, column);
};

// Measures the amax of x for both operands unless x's producer has measured them.
template <class T>
void MeasureBothOf(const Pair& pair, const DeviceCall& call, const T* x,
                   const AmaxPlaces& measured) {
  if (measured.transformed != nullptr) return;
  const QuantizeJob job =
      JobOf(pair.column, pair.column_operand, call, {pair.tokens, pair.cols, true});
  MeasureBoth(job, x, call.amax + pair.row_operand, call.amax + pair.column_operand, call.stream);
}

// Whether one kernel makes both operands.
template <class T>
bool QuantizesTogether(const PairPlan& plan, const DeviceCall& call) {
  return std::is_same_v<T, Bf16> && plan.together && call.observer == nullptr;
}

// Makes both operands in one kernel, which also writes the two alphas and sets their `to` to null.
template <class T>
void QuantizeTogether(const Pair& pair, const DeviceCall& call, const T* x, AlphaJob* row_alpha,
                      T* row_out, AlphaJob* column_alpha, T* column_out) {
  if constexpr (std::is_same_v<T, Bf16>) {
    QuantizeBoth(JobOf(pair.row, pair.row_operand, call, {pair.tokens, pair.cols, false}),
                 call.amax + pair.row_operand, *row_alpha, row_out,
                 JobOf(pair.column, pair.column_operand, call, {pair.tokens, pair.cols, true}),
                 call.amax + pair.column_operand,
                 column_alpha != nullptr ? *column_alpha : AlphaJob{}, column_out, x, call.stream);
    row_alpha->to = nullptr;
    if (column_alpha != nullptr) column_alpha->to = nullptr;
  }
}

// The place of the amax of wgrad's input.
inline std::uint32_t* WgradInputAmax(const LinearRecipe& recipe, const DeviceCall& call) {
  const bool shares = PlanOf(recipe.fprop.a, recipe.wgrad.b).amax == PairAmax::kOne;
  return call.amax + (shares ? kFpropInput : kWgradInput);
}

}  // namespace fp4lab::gpu
