// The functions by which linear.cu makes one operand, or two operands, of a tensor.
#pragma once

#include <type_traits>
#include <vector>

#include "fp4lab/gpu/engine/device_call.cuh"
#include "fp4lab/gpu/gemm/scaled_gemm.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/quantize/delayed_scaling.cuh"
#include "fp4lab/gpu/quantize/dialect_operand.cuh"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/gpu/quantize/operand_plan.h"
#include "fp4lab/gpu/quantize/quantize.cuh"
#include "fp4lab/gpu/quantize/scale_windows.cuh"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::gpu {

// The layout of an operand in memory: (rows, cols), with the reduction axis along cols or, if
// `along_rows`, along rows.
struct Place {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
  std::size_t QuantizedRows() const { return along_rows ? cols : rows; }
  std::size_t Length() const { return along_rows ? rows : cols; }  // of the reduction axis
};

// Codes and scales of the values that the GPU made of `before`, since the GPU keeps none: those
// that the host computes and, where the GPU has another value, the code nearest to it.
inline Quantized QuantizedOf(const Dialect& dialect, MatrixView<const float> before,
                             const DialectOptions& options, MatrixView<const float> values) {
  Quantized q = QuantizeAs(dialect, before, options);
  const BlockGrid grid(dialect, q.rows, q.cols);
  const Format& element = FormatOf(dialect.element);
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      const float scale = ScaleAt(dialect, grid, q, r, c);
      std::uint8_t& code = q.codes[r * q.cols + c];
      if (scale == 0.0f || Decode(element, code) * scale == values(r, c)) continue;
      code = static_cast<std::uint8_t>(Encode(element, values(r, c) / scale));
    }
  }
  return q;
}

// The shape of the blocks' scales that QuantizeToValues keeps apart, as a matrix (blocks along the
// reduction axis, blocks of rows).
struct ScaleShape {
  std::size_t blocks = 0, rows = 0, block_rows = 1;
};
inline ScaleShape ScaleShapeOf(const Dialect& d, const Place& place) {
  const auto block_rows = static_cast<std::size_t>(d.block_rows);
  return {DivideUp(place.Length(), static_cast<std::size_t>(d.block_cols)),
          DivideUp(place.QuantizedRows(), block_rows), block_rows};
}

// x (rows, length) *= the scales of its blocks.
inline void MultiplyByScales(const BlockScales& s, const ScaleShape& shape, cudaStream_t stream,
                             MatrixView<float> x) {
  const Matrix<float> scales = Fetched(s.scales, shape.blocks, shape.rows, stream);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) x(r, c) *= scales(c / s.block, r / s.rows);
  }
}

// Copies the operand's tensor and values to the host for the observer. `amax`: the amax of the
// tensor, or of each row of the quantized matrix, as floats in device memory. `scales`: those that
// the values do not contain.
template <class T>
void Observe(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
             const Place& place, const T* x, const T* values, const void* amax,
             const BlockScales& scales = {}) {
  Matrix<float> before = Fetched(x, place.rows, place.cols, call.stream);
  Matrix<float> after = Fetched(values, place.rows, place.cols, call.stream);
  const auto oriented = [&](Matrix<float>& m) {
    return place.along_rows ? m.View().Transposed() : m.View();
  };
  if (scales.scales != nullptr) {
    MultiplyByScales(scales, ScaleShapeOf(*recipe.format, place), call.stream, oriented(after));
  }
  if (recipe.hadamard != 0) {
    RandomHadamard(oriented(before), TransformOf(recipe, call), oriented(before));
  }
  DialectOptions options{.source = RandomSourceOf(recipe, operand, call.random)};
  if (HasTensorScale(*recipe.format)) {
    options.amax.resize(recipe.format->row_scaled ? place.QuantizedRows() : 1);
    Check(cudaMemcpy(options.amax.data(), amax, options.amax.size() * sizeof(float),
                     cudaMemcpyDeviceToHost),
          "copy from the GPU");
  }
  const Dialect& dialect = *recipe.format;
  const Quantized quantized = QuantizedOf(dialect, oriented(before), options, oriented(after));
  (*call.observer)({operand, oriented(before), oriented(after), dialect, options, quantized});
}

inline QuantizeJob JobOf(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                         const Place& place) {
  const OperandPlan plan = PlanOf(recipe);
  return {.rows = place.rows,
          .cols = place.cols,
          .along_rows = place.along_rows,
          .format = plan.format,
          .random = RandomSourceOf(recipe, operand, call.random).stream,
          .hadamard = plan.hadamard};
}

// With delayed scaling, replaces *amax, the tensor's, by the amax to quantize with (DelayedAmax of
// nn/linear/operand.h).
inline void DelayAmax(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                      std::uint32_t* amax) {
  if (recipe.delayed.length == 0) return;
  TakeDelayedAmax(call.histories.Of(operand), IsWeight(operand) || call.histories.records, amax,
                  call.stream);
}

inline WindowShape WindowsOf(const OperandRecipe& recipe, const Place& place) {
  return {place.rows, place.cols, place.along_rows, static_cast<std::size_t>(recipe.scale_window)};
}

// The operand that Prepare has made, or makes, in `values`, `amax` and `rows`.
template <class T>
Operand<T> OperandOf(const OperandRecipe& recipe, const Place& place, const T* values,
                     const std::uint32_t* amax, RowScales* rows) {
  const OperandPlan plan = PlanOf(recipe);
  Operand<T> operand{values, amax};
  if (plan.has_row_scales) operand.row_decode = rows->Decode(place.QuantizedRows());
  const bool apart = plan.scaled_block != 0 && plan.scaled_block % kScaledStep == 0;
  if (!apart || !std::is_same_v<T, Bf16>) return operand;
  if (plan.has_windows) {
    const WindowShape shape = WindowsOf(recipe, place);
    operand.turned = place.along_rows;
    operand.scales = {rows->Decode(shape.Lines()), 1, shape.window, shape.WindowsOfRow(), 1};
    return operand;
  }
  const ScaleShape shape = ScaleShapeOf(*recipe.format, place);
  operand.scales = {Reserve(&rows->blocks, shape.blocks * shape.rows), shape.block_rows,
                    plan.scaled_block, 1, shape.rows};
  return operand;
}

// Prepare for a dialect that no kernel of quantize.cuh computes. Any transform that these kernels
// lack has been applied to x.
template <class T>
Operand<T> PrepareAnyDialect(const OperandRecipe& recipe, LinearOperand operand,
                             const DeviceCall& call, const Place& place, const T* x,
                             std::uint32_t* amax, T* out, bool measured, RowScales* rows) {
  const Dialect& d = *recipe.format;
  const OperandPlan plan = PlanOf(recipe);
  const QuantizeJob job = JobOf(recipe, operand, call, place);  // for the transform only
  const T* from = x;
  if (job.hadamard != 0) {
    QuantizeToValues(job, x, nullptr, out, call.stream);
    from = out;
  }
  const Operand<T> made = OperandOf(recipe, place, out, amax, rows);
  float* numbers = reinterpret_cast<float*>(amax);
  if (plan.has_row_scales) numbers = rows->Amax(place.QuantizedRows());
  if (HasTensorScale(d) && !(measured && plan.needs_amax)) {
    MeasureTensorAmaxes(d, from, place.rows, place.cols, place.along_rows, numbers, call.stream);
  }
  DelayAmax(recipe, operand, call, amax);
  cuda::QuantizeToValues(d,
                         {.x = MatrixOf(from, place.rows, place.cols),
                          .transposed = place.along_rows,
                          .amax = numbers,
                          .source = RandomSourceOf(recipe, operand, call.random),
                          .values = out,
                          .scales = made.scales.scales != nullptr ? rows->blocks.data() : nullptr},
                         call.stream);
  if (plan.has_row_scales) {
    const std::size_t count = place.QuantizedRows();
    DecodeRows(d, numbers, count, rows->Decode(count), call.stream);
  }
  return made;
}

// Prepare without an observer. Any transform that the kernels of quantize.cuh lack has been applied
// to x.
template <class T>
Operand<T> PrepareUnseen(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                         const Place& place, const T* x, std::uint32_t* amax, T* out,
                         RowScales* rows, bool measured, AlphaJob* alpha) {
  const OperandPlan plan = PlanOf(recipe);
  Expects(!recipe.format || plan.kernel, "a dialect that a kernel computes");
  if (plan.kernel == OperandKernel::kDialects) {
    return PrepareAnyDialect(recipe, operand, call, place, x, amax, out, measured, rows);
  }
  const QuantizeJob job = JobOf(recipe, operand, call, place);
  if (!job.format && job.hadamard == 0) return {x, nullptr};
  if (plan.needs_amax && !measured) {
    if (plan.has_delayed_scaling) {  // *amax may hold the amax of an earlier use
      Check(cudaMemsetAsync(amax, 0, sizeof *amax, call.stream), "memset");
    }
    MeasureAmax(job, x, amax, call.stream);
  }
  DelayAmax(recipe, operand, call, amax);
  QuantizeToValues(job, x, amax, out, call.stream, alpha != nullptr ? *alpha : AlphaJob{});
  if (alpha != nullptr) alpha->to = nullptr;
  return {out, amax};
}

// Prepare for an operand with windows of scales, whose transform has been applied to x. In
// binary32: its values times the scales of their windows. In BF16: the matrix of its windows, which
// must be whole, and their scales apart.
template <class T>
Operand<T> PrepareWindows(const OperandRecipe& recipe, LinearOperand operand,
                          const DeviceCall& call, const Place& place, const T* x,
                          std::uint32_t* amax, T* out, RowScales* rows) {
  constexpr bool kApart = std::is_same_v<T, Bf16>;
  const OperandRecipe recipe_of_lines = LinesOf(recipe);
  const WindowShape shape = WindowsOf(recipe, place);
  const Place lines{shape.Lines(), shape.window, false};
  const std::size_t size = lines.rows * lines.cols;
  T* values = out;
  if (!shape.LiesAsLines()) {
    T* const moved = rows->template Lines<T>(size);
    ToLines(shape, x, moved, call.stream);
    x = moved;
    if (!kApart) values = moved;
  }
  DeviceArray<T> apart;  // an observer sees both x and the values
  if (call.observer != nullptr) {
    apart = DeviceArray<T>(size);
    values = apart.data();
  }
  const Operand<T> made =
      PrepareUnseen(recipe_of_lines, operand, call, lines, x, amax, values, rows, false, nullptr);
  if (call.observer != nullptr) {
    Observe(recipe_of_lines, operand, call, lines, x, values, rows->Amax(lines.rows));
  }
  if constexpr (kApart) {
    if (values != out) {
      Check(cudaMemcpyAsync(out, values, size * sizeof(T), cudaMemcpyDeviceToDevice, call.stream),
            "copy on the GPU");
    }
    return OperandOf<T>(recipe, place, out, nullptr, rows);
  } else {
    FromLines(shape, values, made.row_decode, out, call.stream);
    return {out, nullptr};
  }
}

// Makes an operand of x, which holds rounded values. The result is x itself if the recipe changes
// nothing, else `out`, which may be x unless there is an observer. `measured`: *amax has been
// measured, if the operand needs it (OperandPlan). `rows`: room for scales of rows. `alpha`:
// written if a tuned kernel runs, whereupon alpha->to becomes null.
template <class T>
Operand<T> Prepare(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                   const Place& place, const T* x, std::uint32_t* amax, T* out, RowScales* rows,
                   bool measured = false, AlphaJob* alpha = nullptr) {
  const OperandPlan plan = PlanOf(recipe);
  if (plan.is_plain) return {x, nullptr};
  const T* from = x;
  if (plan.transforms_apart) {
    TransformGroups(TransformOf(recipe, call), HadamardWay::kForth, place.rows, place.cols,
                    place.along_rows, x, out, call.stream);
    from = out;
    measured = false;
  }
  if (plan.has_windows) return PrepareWindows(recipe, operand, call, place, from, amax, out, rows);
  const Operand<T> made =
      PrepareUnseen(recipe, operand, call, place, from, amax, out, rows, measured, alpha);
  if (call.observer != nullptr && recipe.format) {
    const void* const numbers =
        plan.has_row_scales ? static_cast<const void*>(rows->Amax(place.QuantizedRows())) : amax;
    Observe(recipe, operand, call, place, x, out, numbers, made.scales);
  }
  return made;
}

// The tensor from which a backward operand that is made of fprop's values starts: fprop's operand
// of x, decoded in `memory`, or x itself if that operand is plain. `place`: the layout of x,
// fprop's reduction axis along cols. Decoded values are rounded to BF16 if `bf16`. The random bits
// are those of fprop's operand in this call. *amax (zeroed, or that operand's) and `rows` hold the
// operand's amax and scales.
template <class T>
const T* DecodedOf(const OperandRecipe& fprop, bool bf16, LinearOperand operand,
                   const DeviceCall& call, const Place& place, const T* x, std::uint32_t* amax,
                   T* memory, RowScales* rows) {
  if (PlanOf(fprop).is_plain) return x;
  DeviceCall unseen = call;
  unseen.observer = nullptr;
  const Operand<T> made = Prepare(fprop, operand, unseen, place, x, amax, memory, rows);
  const bool has_windows = fprop.scale_window != 0;
  if (!has_windows || made.scales.scales != nullptr) {
    DecodeValues(has_windows ? std::nullopt : fprop.format, bf16, made.amax, made.row_decode,
                 made.scales, place.rows, place.cols, memory, call.stream);
  } else if constexpr (std::is_same_v<T, float>) {  // windows have multiplied it already
    if (bf16) RoundTo(memory, place.rows * place.cols, memory, call.stream);
  }
  if (fprop.hadamard != 0) {
    TransformGroups(TransformOf(fprop, call), HadamardWay::kBack, place.rows, place.cols, false,
                    memory, memory, call.stream);
  }
  return memory;
}

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
