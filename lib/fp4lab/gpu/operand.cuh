// How linear.cu makes a tensor into an operand of a product, or into two.
#pragma once

#include <type_traits>
#include <vector>

#include "fp4lab/dialect/tuned.h"
#include "fp4lab/gpu/linear.cuh"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::gpu {

// Whether quantizing the transpose gives the transposed values; nn/linear.cc.
inline bool SharesTranspose(const OperandRecipe& a, const OperandRecipe& b) {
  if (!(a == b) || a.hadamard != 0) return false;
  return !a.format || (!TakesRandomBits(*a.format) && !a.format->row_scaled &&
                       a.format->block_rows == a.format->block_cols);
}

inline bool NeedsAmax(const OperandRecipe& recipe) {
  return recipe.format && HasLevelTwo(*recipe.format);
}

// The kernel of an operand's format; engine.cu has refused recipes with others.
inline std::optional<TunedQuantizer> KernelFor(const OperandRecipe& recipe) {
  if (!recipe.format) return std::nullopt;
  const std::optional<TunedQuantizer> tuned = TunedFor(*recipe.format);
  Expects(tuned.has_value(), "a format that the GPU has a kernel for");
  return tuned;
}
inline std::optional<BlockFormat> BlockFormatOf(const OperandRecipe& recipe) {
  const std::optional<TunedQuantizer> kernel = KernelFor(recipe);
  if (!kernel) return std::nullopt;
  return kernel->format;
}

// Where an operand lies: (rows, cols), the reduction axis along rows or along cols.
struct Place {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
};

// Copies the operand and its values to the host, for diagnostics.
template <class T>
void Observe(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
             const Place& place, const T* x, const T* values, const std::uint32_t* amax) {
  const auto fetch = [&](const T* from) {
    std::vector<T> raw(place.rows * place.cols);
    Check(cudaMemcpyAsync(raw.data(), from, raw.size() * sizeof(T), cudaMemcpyDeviceToHost,
                          call.stream),
          "copy from the GPU");
    Check(cudaStreamSynchronize(call.stream), "training");
    Matrix<float> matrix(place.rows, place.cols);
    for (std::size_t i = 0; i < raw.size(); ++i) matrix.values[i] = ToFloat(raw[i]);
    return matrix;
  };
  Matrix<float> before = fetch(x), after = fetch(values);
  const auto oriented = [&](Matrix<float>& m) {
    return place.along_rows ? m.View().Transposed() : m.View();
  };
  if (recipe.hadamard != 0) {
    const std::uint32_t signs = recipe.hadamard == 16 ? kTeSignMask16 : kTeSignMask32;
    RandomHadamard(oriented(before), recipe.hadamard, signs, oriented(before));
  }
  DialectOptions options{.source = RandomSource{call.random, recipe.random}};
  options.source->stream.tensor += static_cast<std::uint32_t>(operand);
  if (NeedsAmax(recipe)) {
    options.amax.resize(1);
    Check(cudaMemcpy(options.amax.data(), amax, sizeof(float), cudaMemcpyDeviceToHost),
          "copy from the GPU");
  }
  (*call.observer)(operand, oriented(before), oriented(after), *recipe.format, options);
}

inline QuantizeJob JobOf(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                         const Place& place) {
  const std::optional<TunedQuantizer> kernel = KernelFor(recipe);
  QuantizeJob job{.rows = place.rows,
                  .cols = place.cols,
                  .along_rows = place.along_rows,
                  .format = BlockFormatOf(recipe),
                  .rounding = kernel ? kernel->rounding : Rounding::kNearestEven,
                  .random = call.random,
                  .hadamard = recipe.hadamard};
  job.random.tensor += static_cast<std::uint32_t>(operand);
  return job;
}

// x holds rounded values. Nothing is copied that can be used as it is. `measured`: *amax is there.
// `alpha` is done where a kernel runs, and is then no longer wanted.
template <class T>
Operand<T> Prepare(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                   const Place& place, const T* x, std::uint32_t* amax, T* out,
                   bool measured = false, AlphaJob* alpha = nullptr) {
  if (!recipe.format && recipe.hadamard == 0) return {x, nullptr};
  const QuantizeJob job = JobOf(recipe, operand, call, place);
  if (NeedsAmax(recipe) && !measured) MeasureAmax(job, x, amax, call.stream);
  QuantizeToValues(job, x, amax, out, call.stream, alpha != nullptr ? *alpha : AlphaJob{});
  if (alpha != nullptr) alpha->to = nullptr;
  if (call.observer != nullptr && recipe.format) {
    Observe(recipe, operand, call, place, x, out, amax);
  }
  return {out, amax};
}

// Whether the amax of both operands of one tensor, along its rows and down its columns, come from
// one pass over it.
inline bool MeasuresBoth(const OperandRecipe& row, const OperandRecipe& column) {
  return NeedsAmax(row) && NeedsAmax(column) && row.hadamard == 0 && column.hadamard != 0;
}
// Whether both have one amax.
inline bool SharesAmax(const OperandRecipe& row, const OperandRecipe& column) {
  return NeedsAmax(row) && row.hadamard == 0 && NeedsAmax(column) && column.hadamard == 0;
}

template <class T>
AmaxPlaces PlacesOf(const OperandRecipe& row, const OperandRecipe& column, std::size_t tokens,
                    std::size_t cols, std::uint32_t* plain, std::uint32_t* transformed) {
  if (!std::is_same_v<T, Bf16> || tokens % kAmaxRows != 0 || cols % 2 != 0) return {};
  if (!NeedsAmax(row) || row.hadamard != 0) return {};
  const bool both = MeasuresBoth(row, column) && column.hadamard == static_cast<int>(kAmaxRows);
  return {plain, both ? transformed : nullptr};
}

// One tensor (tokens, cols) as two operands: along its rows, and down its columns.
struct Pair {
  const OperandRecipe &row, &column;
  LinearOperand row_operand, column_operand;
  std::size_t tokens, cols;
};

// The largest magnitudes of x for both operands, those that are not there yet.
template <class T>
void MeasureBothOf(const Pair& pair, const DeviceCall& call, const T* x,
                   const AmaxPlaces& measured) {
  if (measured.transformed != nullptr) return;
  const QuantizeJob job =
      JobOf(pair.column, pair.column_operand, call, {pair.tokens, pair.cols, true});
  MeasureBoth(job, x, call.amax + pair.row_operand, call.amax + pair.column_operand, call.stream);
}

// Whether one kernel makes both operands: the largest magnitudes are known, and nobody looks.
template <class T>
bool QuantizesTogether(const Pair& pair, const DeviceCall& call) {
  const bool known =
      MeasuresBoth(pair.row, pair.column) || (!NeedsAmax(pair.row) && !NeedsAmax(pair.column));
  return std::is_same_v<T, Bf16> && known && call.observer == nullptr &&
         QuantizesBoth(JobOf(pair.row, pair.row_operand, call, {}),
                       JobOf(pair.column, pair.column_operand, call, {}));
}

// The two alphas are done, and then no longer wanted.
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

// Where the largest magnitude of wgrad's input is, and whether the forward pass has left it there.
inline bool KnowsWgradInputAmax(const LinearRecipe& recipe) {
  return !NeedsAmax(recipe.wgrad.b) || SharesAmax(recipe.fprop.a, recipe.wgrad.b) ||
         MeasuresBoth(recipe.fprop.a, recipe.wgrad.b);
}
inline std::uint32_t* WgradInputAmax(const LinearRecipe& recipe, const DeviceCall& call) {
  const bool shares = SharesAmax(recipe.fprop.a, recipe.wgrad.b);
  return call.amax + (shares ? kFpropInput : kWgradInput);
}

}  // namespace fp4lab::gpu
