// The functions by which linear.cu makes an operand of a tensor.
#pragma once

#include <type_traits>

#include "fp4lab/gpu/engine/device_call.cuh"
#include "fp4lab/gpu/engine/operand/observe_operand.cuh"
#include "fp4lab/gpu/engine/operand/operand_place.cuh"
#include "fp4lab/gpu/gemm/scaled_gemm.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/quantize/delayed_scaling.cuh"
#include "fp4lab/gpu/quantize/dialect_operand.cuh"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/gpu/quantize/operand_plan.h"
#include "fp4lab/gpu/quantize/quantize.cuh"
#include "fp4lab/gpu/quantize/scale_windows.cuh"

namespace fp4lab::gpu {

inline QuantizeJob JobOf(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                         const Place& place) {
  const OperandPlan plan = PlanOf(recipe);
  return {.rows = place.rows,
          .cols = place.cols,
          .along_rows = place.along_rows,
          .format = plan.format,
          .random = RandomSourceOf(recipe, operand, call).stream,
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
                          .source = RandomSourceOf(recipe, operand, call),
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
// written if a tuned kernel runs, whereupon alpha->to becomes null. `decode`: the tensor is x
// decoded (TransformGroups), and the operand's transform is a pass of its own.
template <class T>
Operand<T> Prepare(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                   const Place& place, const T* x, std::uint32_t* amax, T* out, RowScales* rows,
                   bool measured = false, AlphaJob* alpha = nullptr,
                   const std::optional<TensorDecode>& decode = {}) {
  const OperandPlan plan = PlanOf(recipe);
  Expects(!decode || plan.transforms_apart, "a transform that decodes");
  if (plan.is_plain) return {x, nullptr};
  const T* from = x;
  if (plan.transforms_apart) {
    measured = plan.needs_amax && !plan.has_windows;
    TransformGroups(TransformOf(recipe, call), HadamardWay::kForth, place.rows, place.cols,
                    place.along_rows, x, out, measured ? amax : nullptr, call.stream, decode);
    from = out;
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

// The values of fprop's operand in `memory`, decoded, with its transform undone, and rounded to
// BF16 if `bf16`. `place`: the layout of its tensor, fprop's reduction axis along cols. The operand
// may lie in `memory`.
template <class T>
const T* Decode(const OperandRecipe& fprop, bool bf16, const DeviceCall& call, const Place& place,
                const Operand<T>& made, T* memory) {
  const bool has_windows = fprop.scale_window != 0;
  if (!has_windows || made.scales.scales != nullptr) {
    DecodeValues(has_windows ? std::nullopt : fprop.format, bf16, made.amax, made.row_decode,
                 made.scales, place.rows, place.cols, made.values, memory, call.stream);
  } else if constexpr (std::is_same_v<T, float>) {  // windows have multiplied it already
    if (bf16) RoundTo(memory, place.rows * place.cols, memory, call.stream);
  }
  if (fprop.hadamard != 0) {
    TransformGroups(TransformOf(fprop, call), HadamardWay::kBack, place.rows, place.cols, false,
                    memory, memory, nullptr, call.stream);
  }
  return memory;
}

// Prepare of the values of fprop's operand `made`, which Decode would decode in `memory`. A
// transform before the quantizer decodes them as it reads, if they have one scale.
template <class T>
Operand<T> PrepareDecoded(const OperandRecipe& fprop, const Operand<T>& made, bool bf16, T* memory,
                          const OperandRecipe& recipe, LinearOperand operand,
                          const DeviceCall& call, const Place& place, std::uint32_t* amax, T* out,
                          RowScales* rows, bool measured = false) {
  const bool has_one_scale = fprop.format && fprop.scale_window == 0 && fprop.hadamard == 0 &&
                             made.row_decode == nullptr && made.scales.scales == nullptr;
  if (std::is_same_v<T, Bf16> && has_one_scale && PlanOf(recipe).transforms_apart &&
      made.amax != amax && call.observer == nullptr) {
    return Prepare(recipe, operand, call, place, made.values, amax, out, rows, measured, nullptr,
                   TensorDecode{*fprop.format, made.amax});
  }
  const T* const from = Decode(fprop, bf16, call, {place.rows, place.cols, false}, made, memory);
  return Prepare(recipe, operand, call, place, from, amax, out, rows, measured);
}

// The tensor from which a backward operand that is made of fprop's values starts: fprop's operand
// of x, decoded in `memory`, or x itself if that operand is plain. The random bits are those of
// fprop's operand in this call. *amax (zeroed, or that operand's) and `rows` hold the operand's
// amax and scales. Otherwise as Decode.
template <class T>
const T* DecodedOf(const OperandRecipe& fprop, bool bf16, LinearOperand operand,
                   const DeviceCall& call, const Place& place, const T* x, std::uint32_t* amax,
                   T* memory, RowScales* rows) {
  if (PlanOf(fprop).is_plain) return x;
  DeviceCall unseen = call;
  unseen.observer = nullptr;
  const Operand<T> made = Prepare(fprop, operand, unseen, place, x, amax, memory, rows);
  return Decode(fprop, bf16, call, place, made, memory);
}

}  // namespace fp4lab::gpu
