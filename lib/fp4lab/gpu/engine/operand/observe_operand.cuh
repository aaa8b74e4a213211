// Operands as an observer sees them: tensors, values, codes and scales on the host.
#pragma once

#include "fp4lab/gpu/engine/device_call.cuh"
#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/engine/operand/operand_place.cuh"
#include "fp4lab/gpu/gemm/gemm_problem.cuh"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::gpu {

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
  DialectOptions options{.source = RandomSourceOf(recipe, operand, call)};
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

}  // namespace fp4lab::gpu
