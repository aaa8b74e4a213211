// train/model.h on the device: forward and backward over one micro-batch.
//
// T is the type of linears' operands (Bf16 if the recipe rounds them), A the type of attention's.
// All work is enqueued on one stream without waiting, except in passes with an inspector or
// observer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/gpu/attention/attention.cuh"
#include "fp4lab/gpu/engine/linear.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/quantize/delayed_scaling.cuh"
#include "fp4lab/train/config.h"
#include "fp4lab/train/linear_plan.h"
#include "fp4lab/train/shapes.h"

namespace fp4lab::gpu {

// One micro-batch in device memory.
struct DeviceBatch {
  std::size_t rows = 0;
  const std::uint16_t *inputs = nullptr, *targets = nullptr;
  bool trains = false;       // a backward pass follows the forward pass
  TokenSegments segments{};  // of `inputs`, for Backward
};

template <class T, class A>
class DeviceModel {
 public:
  // `parameters` and `gradients` (MakeLayout(config.model).total) and `amax_histories`
  // (AmaxHistoryFloats(config.model, config.recipe)) are on the device.
  DeviceModel(const TrainConfig& config, const float* parameters, float* gradients,
              float* amax_histories, std::size_t max_sequences, cudaStream_t stream);
  DeviceModel(const DeviceModel&) = delete;
  DeviceModel& operator=(const DeviceModel&) = delete;

  std::uint32_t TensorsPerPass() const { return plan_.TensorsPerPass(); }
  void ParametersChanged();
  // Changes to another recipe with the same Recipe::rest.
  void UseRecipe(const Recipe& recipe);
  // Advances the histories of operands with delayed scaling, at the end of a step.
  void AdvanceAmaxHistories();

  void Forward(const Pass& pass, const DeviceBatch& batch);
  // After Forward: the loss of each row. row_loss (rows) is on the device.
  void Losses(const DeviceBatch& batch, double* row_loss);
  // After Forward, instead of Losses: writes row_loss (rows, on the device) and adds loss_scale *
  // d(sum of row losses)/d(parameters) to the gradients.
  void Backward(const Pass& pass, const DeviceBatch& batch, float loss_scale, double* row_loss);

 private:
  struct Block {
    DeviceArray<float> x, attention_inverse_rms, statistics, mid, mlp_inverse_rms, up;
    DeviceArray<T> attention_norm, attention_rounded, mlp_norm, activated;
    DeviceArray<A> qkv, attention;
  };

  void TakeMemory(std::size_t rows);
  AttentionShape ShapeOfAttention() const;
  RopeShape ShapeOfRope() const;
  const float* Parameter(const ParameterSlice& slice) const { return parameters_ + slice.offset; }
  float* Gradient(const ParameterSlice& slice) const { return gradients_ + slice.offset; }
  T* AttentionOperand(Block& block);

  void BeginPass(const DeviceBatch& batch);
  DeviceCall CallOf(const Pass& pass, std::size_t linear, OperandObserver* observer);
  // `measured`: the amax places that the producer of x, or of dy, has filled. `keeps`: x is read
  // after the forward pass and must not be overwritten.
  void RunLinear(const Pass& pass, std::size_t linear, T* x, const float* add, float* y,
                 const AmaxPlaces& measured, bool keeps = false);
  template <class D>
  void RunLinearBackward(const Pass& pass, std::size_t linear, const T* dy, D* dx,
                         const AmaxPlaces& measured = {});
  AmaxPlaces InputPlaces(const Pass& pass, std::size_t linear) const;
  AmaxPlaces GradientPlaces(const Pass& pass, std::size_t linear) const;
  void Normalize(const Pass& pass, const float* x, const ParameterSlice& gain, float* inverse_rms,
                 T* y, std::size_t linear);
  void ForwardBlock(const Pass& pass, int block, float* out);
  void BackwardMlp(const Pass& pass, int block);
  void BackwardAttention(const Pass& pass, int block);
  void BackwardNorm(const float* x, const ParameterSlice& gain, const float* inverse_rms,
                    bool accumulate, std::size_t norm, const AmaxPlaces& amax = {});
  // The gradient of the residual stream as a linear's dy, rounded to T.
  const T* ResidualGradient() const;
  // Copies a tensor to the host for the pass's inspector, if it has one.
  template <class X>
  void Inspect(const Pass& pass, const std::string& name, const X* x, std::size_t rows,
               std::size_t cols) const {
    if (pass.inspector == nullptr) return;
    (*pass.inspector)(name, Fetched(x, rows, cols, stream_).View());
  }
  // Inspects a tensor of rows_ rows, by its name within `block`; -1: a tensor outside the blocks.
  template <class X>
  void InspectIn(const Pass& pass, int block, const char* name, const X* x,
                 std::size_t cols) const {
    const std::string prefix = block < 0 ? "" : "blocks." + std::to_string(block) + ".";
    Inspect(pass, prefix + name, x, rows_, cols);
  }

  ModelConfig config_;
  LinearPlan plan_;
  ParameterLayout layout_;
  const float* parameters_;
  float *gradients_, *amax_histories_;
  DeviceArray<DelayedScaling> delayed_;  // plan_.Delayed(); empty without delayed scaling
  cudaStream_t stream_;
  std::size_t d_, ffn_, up_width_, qkv_width_, vocabulary_, norms_;
  Gemms gemms_;
  std::vector<DeviceWeight<T>> weights_;  // one per linear
  struct Input {
    const T* x = nullptr;
    bool is_operand = false;  // x has become wgrad's operand
  };
  std::vector<Input> inputs_;  // one per linear, of the last Forward
  DeviceScratch<T> scratch_;
  DeviceArray<std::uint32_t> weight_amax_, amax_;
  DeviceArray<float> alpha_, cos_, sin_;

  std::size_t rows_ = 0;  // of the last Forward
  bool trains_ = false;   // a Backward follows it
  std::vector<Block> blocks_;
  DeviceArray<float> last_, final_inverse_rms_, logits_, qkv_;
  DeviceArray<T> final_norm_, dlogits_, d_residual_rounded_, d_up_, d_qkv_rounded_;
  DeviceArray<float> d_residual_, d_narrow_, d_wide_, d_qkv_, dots_, gain_partials_,
      embedding_partials_;
  DeviceArray<A> d_attention_;
};

}  // namespace fp4lab::gpu
