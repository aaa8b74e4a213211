// train/parts on the device: the same parts, by the same names.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "fp4lab/gpu/engine/linears.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/parameters.h"

namespace fp4lab::gpu {

// A part in one block and one pass (PartUse).
template <class T>
struct DevicePartUse {
  const Pass& pass;
  std::size_t block = 0;
  DeviceLinears<T>* linears = nullptr;
  std::size_t first_linear = 0;             // the part's first, an index of LinearPlan
  std::span<const ParameterSlice> gains;    // Part::gains
  const ParameterSlice* balance = nullptr;  // Part::balance, if it has any

  std::size_t Linear(std::size_t i) const { return first_linear + i; }
  AmaxPlaces InputPlaces(std::size_t i) const { return linears->InputPlaces(pass, Linear(i)); }
  AmaxPlaces GradientPlaces(std::size_t i) const {
    return linears->GradientPlaces(pass, Linear(i));
  }
  template <class X>
  void Inspect(const char* name, const X* x, std::size_t cols) const {
    linears->InspectIn(pass, static_cast<int>(block), name, x, cols);
  }
};

// Memory of the backward pass (PartGradients).
template <class T>
struct DevicePartGradients {
  float* d_residual = nullptr;      // in: the gradient of the part's result; out: that of its x
  T* d_residual_rounded = nullptr;  // the same, rounded to T; null if T is float
  float* d_narrow = nullptr;        // (rows, d_model), for the moment
  float* gain_partials = nullptr;   // of the part's first gain; (GainChunks(rows), its size)
  std::size_t gain_stride = 0;      // from the partials of a gain to those of the next
  float loss_scale = 1.0f;          // of one token's loss, for losses that a part adds
  AmaxPlaces next;                  // where the amax of the part's d_residual is measured

  float* GainPartials(std::size_t i) const { return gain_partials + i * gain_stride; }

  // The gradient of the part's result as a linear's dy, rounded to T.
  const T* Residual() const {
    if constexpr (std::is_same_v<T, float>) {
      return d_residual;
    } else {
      return d_residual_rounded;
    }
  }
};

// RMSNorm backward of d_narrow, by the part's gain i: adds to d_residual, and rounds it.
template <class T>
void BackwardNorm(const DevicePartUse<T>& use, std::size_t i, const float* x,
                  const float* inverse_rms, const DevicePartGradients<T>& g) {
  const ParameterSlice& gain = use.gains[i];
  const std::size_t rows = use.linears->Rows(), d = gain.cols;
  RmsNormBackward(x, use.linears->Parameter(gain), inverse_rms, g.d_narrow, true, rows, d,
                  g.d_residual, g.d_residual_rounded, g.GainPartials(i), use.linears->Stream(),
                  g.next);
}

// A part in all blocks, with the tensors that its forward pass keeps.
template <class T>
class DevicePart {
 public:
  virtual ~DevicePart() = default;

  // Memory for `rows` rows of each block i that has the part: has[i].
  virtual void TakeMemory(const std::vector<bool>& has, std::size_t rows) = 0;

  // The linear of the part whose dy is the gradient of the residual stream, if there is one.
  virtual std::optional<std::size_t> ResidualLinear() const = 0;

  // out = x + the part's result. x stays as it is.
  virtual void Forward(const DevicePartUse<T>& use, const float* x, float* out) = 0;
  // After Forward in all blocks.
  virtual void Backward(const DevicePartUse<T>& use, const float* x,
                        const DevicePartGradients<T>& gradients) = 0;
};

// A row of the table. `tensor_cores`: attention multiplies BF16 on tensor cores; T is Bf16.
struct DevicePartRow {
  std::string_view name;  // of the row in train/parts
  std::unique_ptr<DevicePart<float>> (*make_float)(const ModelConfig& config,
                                                   cudaStream_t stream) = nullptr;
  std::unique_ptr<DevicePart<Bf16>> (*make_bf16)(const ModelConfig& config, bool tensor_cores,
                                                 cudaStream_t stream) = nullptr;
};

// The row of a part that tensor cores do not change.
template <template <class T> class Runner>
constexpr DevicePartRow RowOf(std::string_view name) {
  return {name,
          [](const ModelConfig& config, cudaStream_t stream) -> std::unique_ptr<DevicePart<float>> {
            return std::make_unique<Runner<float>>(config, stream);
          },
          [](const ModelConfig& config, bool,
             cudaStream_t stream) -> std::unique_ptr<DevicePart<Bf16>> {
            return std::make_unique<Runner<Bf16>>(config, stream);
          }};
}

}  // namespace fp4lab::gpu
