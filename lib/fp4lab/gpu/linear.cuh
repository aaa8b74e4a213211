// nn/linear.h on the device: what a recipe says about one linear, by quantizers and cuBLASLt.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/gpu/gemm.cuh"
#include "fp4lab/gpu/kernels.cuh"
#include "fp4lab/gpu/memory.cuh"
#include "fp4lab/gpu/quantize.cuh"
#include "fp4lab/nn/linear.h"

namespace fp4lab::gpu {

// An operand as a GEMM takes it; it lies in memory as what it was made from.
template <class T>
struct Operand {
  const T* values = nullptr;
  const std::uint32_t* amax = nullptr;  // float bits, where the format has a tensor scale
  const float* row_decode = nullptr;    // D of each row, where the format has one a row
};

// Amax and D of the rows of an operand whose format has one a row.
struct RowScales {
  DeviceArray<float> memory;  // taken when first needed

  float* Amax(std::size_t rows) {
    if (memory.size() < 2 * rows) memory = DeviceArray<float>(2 * rows);
    return memory.data();
  }
  float* Decode(std::size_t rows) { return Amax(rows) + rows; }
};

// A weight (out, in) and its operands, kept until it changes: micro-batches share them.
template <class T>
struct DeviceWeight {
  const float* w = nullptr;
  std::size_t out = 0, in = 0;
  LinearRecipe made_for;
  DeviceArray<T> rounded, fprop, dgrad;  // taken when first needed
  bool has_rounded = false, has_fprop = false, has_dgrad = false;
  std::uint32_t* amax = nullptr;  // of fprop and dgrad
  RowScales fprop_rows, dgrad_rows;

  void Changed() { has_rounded = has_fprop = has_dgrad = false; }
};

// Memory that linears share.
template <class T>
struct DeviceScratch {
  DeviceArray<T> a, b;  // (most tokens, widest linear) each
  // Taken when first needed: where an operand has a scale a row.
  RowScales a_rows, b_rows;
  DeviceArray<float> product;  // before those scales
};

// One use of a linear.
struct DeviceCall {
  RandomStream random;
  const OperandObserver* observer = nullptr;
  AmaxHistories histories = {};   // on the device; where an operand has delayed scaling
  std::uint32_t* amax = nullptr;  // kLinearOperands zeroed places
  float* alpha = nullptr;         // 3 places
  cudaStream_t stream = nullptr;
  Gemms* gemms = nullptr;
};

// Where who makes x (tokens, in), or dy (tokens, out), leaves its largest magnitudes: those of them
// that the recipe wants and that AmaxPlaces (kernels.cuh) can be asked for. `amax` as in
// DeviceCall.
template <class T>
AmaxPlaces InputAmax(const LinearRecipe& recipe, std::uint32_t* amax, std::size_t tokens,
                     std::size_t in, bool trains);
template <class T>
AmaxPlaces GradientAmax(const LinearRecipe& recipe, std::uint32_t* amax, std::size_t tokens,
                        std::size_t out);

// y (tokens, out) = x w^T, plus c where that is not null. x (tokens, in) holds rounded values.
// `trains`: a backward pass with the same x and call.amax will follow; then, if it `may_replace` x
// and one kernel makes both operands of it, x becomes wgrad's operand, and the result is true.
// `measured`: places that are filled already.
template <class T>
bool LinearForward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                   bool trains, const AmaxPlaces& measured, T* x, bool may_replace,
                   DeviceWeight<T>* weight, DeviceScratch<T>* scratch, const float* c, float* y);

// dx (tokens, in) = dy w, binary32 or rounded to D; dw (out, in) += dy^T x. dy (tokens, out) holds
// rounded values. `x_is_operand`: what LinearForward said.
template <class T, class D>
void LinearBackward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                    const AmaxPlaces& measured, const T* x, bool x_is_operand,
                    DeviceWeight<T>* weight, const T* dy, DeviceScratch<T>* scratch, D* dx,
                    float* dw);

}  // namespace fp4lab::gpu
