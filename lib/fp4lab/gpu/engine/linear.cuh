// nn/linear.h on the device: the three GEMMs of one linear under its recipe, by quantizers and
// cuBLASLt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fp4lab/gpu/engine/device_call.cuh"
#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/engine/side.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/nn/linear_recipe.h"

namespace fp4lab::gpu {

// Whether the recipe rounds tensors to BF16 but has an operand whose values are not BF16 numbers:
// products of an element and a binary32 block scale or the outer scale of a window. Where blocks
// and windows fit the products of gemm/scaled_gemm.cuh, such scales stay apart from BF16 values.
// Else all operands of the linear are stored and multiplied in binary32.
bool HasWideOperands(const LinearRecipe& recipe);

// A weight (out, in) and its operands, which micro-batches share until the weight changes.
template <class T>
struct DeviceWeight {
  const float* w = nullptr;
  std::size_t out = 0, in = 0;
  LinearRecipe made_for;
  DeviceArray<T> rounded, fprop, dgrad;  // allocated on first use
  bool has_rounded = false, has_fprop = false, has_dgrad = false;
  std::uint32_t* amax = nullptr;  // 2 places: of the fprop and of the dgrad operand
  RowScales fprop_rows, dgrad_rows;
  // The binary32 weight that linears with wide operands use instead; allocated on first use.
  std::unique_ptr<DeviceWeight<float>> wide;

  void Changed() {
    has_rounded = has_fprop = has_dgrad = false;
    if (wide != nullptr) wide->Changed();
  }
};

// Scratch memory that linears share.
template <class T>
struct DeviceScratch {
  DeviceArray<T> a, b;  // (most tokens, widest linear) each
  // Allocated on first use: for operands with scales of rows.
  RowScales a_rows, b_rows;
  DeviceArray<float> product;  // a product before row scales or rounding
  // Allocated on first use: for linears with wide operands if T is Bf16.
  std::unique_ptr<DeviceScratch<float>> wide;
  DeviceArray<float> wide_x, wide_dy;
  // Allocated on first use: for operands with a side term.
  std::unique_ptr<DeviceSide<T>> side;
};

// The places where the producer of x (tokens, in), or of dy (tokens, out), writes its amaxes: those
// that the recipe needs and that AmaxPlaces (kernels.cuh) has a field for. `amax` as in DeviceCall.
template <class T>
AmaxPlaces InputAmax(const LinearRecipe& recipe, std::uint32_t* amax, std::size_t tokens,
                     std::size_t in, bool trains);
template <class T>
AmaxPlaces GradientAmax(const LinearRecipe& recipe, std::uint32_t* amax, std::size_t tokens,
                        std::size_t out);

// The content of the memory of a linear's x after LinearForward.
enum class InputHolds : std::uint8_t { kTensor, kFpropOperand, kWgradOperand };

// y (tokens, out) = x w^T, plus c if c is not null. x (tokens, in) holds rounded values. `trains`:
// a backward pass with the same x and call.amax will follow. In this case, if `may_replace`, x is
// overwritten with wgrad's operand if one kernel makes both operands of x, or with fprop's operand
// if wgrad's is made of its values. `measured`: the places that the producer of x has filled.
template <class T>
InputHolds LinearForward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                         bool trains, const AmaxPlaces& measured, T* x, bool may_replace,
                         DeviceWeight<T>* weight, DeviceScratch<T>* scratch, const float* c,
                         float* y);

// dx (tokens, in) = dy w, binary32 or rounded to D; dw (out, in) += dy^T x. dy (tokens, out) holds
// rounded values. `holds`: the result of LinearForward. `measured`: the places that the producer
// of dy has filled.
template <class T, class D>
void LinearBackward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                    const AmaxPlaces& measured, const T* x, InputHolds holds,
                    DeviceWeight<T>* weight, const T* dy, DeviceScratch<T>* scratch, D* dx,
                    float* dw);

}  // namespace fp4lab::gpu
