// train/model/model.h on the device: forward and backward over one micro-batch.
//
// T is the type of linears' operands (Bf16 if the recipe rounds them). All work is enqueued on one
// stream without waiting, except in passes with an inspector or observer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fp4lab/gpu/engine/linears.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/parts/device_part.cuh"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab::gpu {

// One micro-batch in device memory.
struct DeviceBatch {
  std::size_t rows = 0;
  const std::uint16_t *inputs = nullptr, *targets = nullptr;
  bool trains = false;       // a backward pass follows the forward pass
  TokenSegments segments{};  // of `inputs`, for Backward
};

template <class T>
class DeviceModel {
 public:
  // `parameters` and `gradients` (MakeLayout(config.model).total) and `amax_histories`
  // (AmaxHistoryFloats(config.model, config.recipe)) are on the device. `tensor_cores`: attention's
  // products on tensor cores, with T = Bf16.
  DeviceModel(const TrainConfig& config, bool tensor_cores, const float* parameters,
              float* gradients, float* amax_histories, std::size_t max_sequences,
              cudaStream_t stream);
  DeviceModel(const DeviceModel&) = delete;
  DeviceModel& operator=(const DeviceModel&) = delete;

  std::uint32_t TensorsPerPass() const { return linears_.Plan().TensorsPerPass(); }
  void ParametersChanged() { linears_.ParametersChanged(); }
  // Changes to another recipe with the same Recipe::rest.
  void UseRecipe(const Recipe& recipe) { linears_.UseRecipe(recipe); }
  // Advances the histories of operands with delayed scaling, at the end of a step.
  void AdvanceAmaxHistories() { linears_.AdvanceAmaxHistories(); }

  void Forward(const Pass& pass, const DeviceBatch& batch);
  // After Forward: the loss of each row. row_loss (rows) is on the device.
  void Losses(const DeviceBatch& batch, double* row_loss);
  const float* Logits() const { return logits_.data(); }  // (rows, vocabulary), of the last Forward
  // After Forward, instead of Losses: writes row_loss (rows, on the device) and adds loss_scale *
  // d(sum of row losses)/d(parameters) to the gradients, with the teacher's loss if there is one.
  void Backward(const Pass& pass, const DeviceBatch& batch, float loss_scale, double* row_loss,
                const DeviceTeacherLoss& teacher = {});

 private:
  void TakeMemory(std::size_t rows);
  DevicePart<T>& PartAt(std::size_t placed) const { return *parts_[layout_.parts[placed].index]; }
  DevicePartUse<T> UseOf(const Pass& pass, std::size_t placed);
  // The places for the amax of the gradient of the residual stream before part `placed`, which
  // part placed - 1 reads; none before the first part.
  AmaxPlaces PlacesBefore(const Pass& pass, std::size_t placed) const;
  // The partial sums of the gradient of gain i of all norms.
  float* GainPartials(std::size_t i) const { return gain_partials_.data() + i * GainStride(); }
  std::size_t GainStride() const { return GainChunks(rows_) * widest_gain_; }

  ModelConfig config_;
  ParameterLayout layout_;
  float* gradients_;
  cudaStream_t stream_;
  std::size_t d_, vocabulary_;
  float logit_multiplier_;
  std::size_t norms_, widest_gain_;
  DeviceArray<GainPlace> gain_places_;  // the final norm's gain last
  DeviceLinears<T> linears_;
  std::vector<std::unique_ptr<DevicePart<T>>> parts_;  // of a block

  std::size_t rows_ = 0;               // of the last Forward
  std::vector<DeviceArray<float>> x_;  // of ParameterLayout::parts
  DeviceArray<float> last_, final_inverse_rms_, logits_;
  DeviceArray<T> final_norm_, dlogits_, d_residual_rounded_;
  DeviceArray<float> d_residual_, d_narrow_, gain_partials_, embedding_partials_;
};

}  // namespace fp4lab::gpu
