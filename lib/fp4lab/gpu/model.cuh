// train/model.h on the device: forward and backward over one micro-batch.
//
// T: the type of linears' operands (Bf16 where the recipe rounds them); A: that of attention.
// Everything runs on one stream and returns at once, but for passes that are looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/gpu/attention.cuh"
#include "fp4lab/gpu/delayed_scaling.cuh"
#include "fp4lab/gpu/kernels.cuh"
#include "fp4lab/gpu/linear.cuh"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model.h"
#include "fp4lab/train/shapes.h"

namespace fp4lab::gpu {

// One micro-batch in device memory.
struct DeviceBatch {
  std::size_t rows = 0;
  const std::uint16_t *inputs = nullptr, *targets = nullptr;
  bool trains = false;       // a backward pass follows the forward pass
  TokenSegments segments{};  // of inputs: Backward reads it
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

  std::uint32_t TensorsPerPass() const {
    return static_cast<std::uint32_t>(weights_.size()) * kLinearOperands;
  }
  void ParametersChanged();
  // Another recipe, of the same Recipe::rest.
  void UseRecipe(const Recipe& recipe);
  // At the end of a step, for operands with delayed scaling.
  void AdvanceAmaxHistories();

  void Forward(const Pass& pass, const DeviceBatch& batch);
  // After Forward. row_loss (rows), on the device.
  void Losses(const DeviceBatch& batch, double* row_loss);
  // After Forward, instead of Losses: adds to the gradients.
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
  std::size_t Index(int block, BlockLinear linear) const;
  std::size_t HeadIndex() const { return weights_.size() - 1; }
  std::string LinearName(std::size_t linear) const;
  const LinearRecipe& RecipeFor(const Pass& pass, std::size_t linear) const;

  void BeginPass(const DeviceBatch& batch);
  DeviceCall CallOf(const Pass& pass, std::size_t linear, OperandObserver* observer);
  // `measured`: what the maker of x, or of dy, has left there.
  // `keeps`: x is wanted after the forward pass too, as it is.
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
  // The residual's gradient as a linear's operand.
  const T* ResidualGradient() const;
  template <class X>
  void Inspect(const Pass& pass, const std::string& name, const X* x, std::size_t rows,
               std::size_t cols) const;
  template <class X>
  void InspectIn(const Pass& pass, int block, const char* name, const X* x, std::size_t cols) const;

  TrainConfig config_;
  ParameterLayout layout_;
  std::vector<const LinearRecipe*> recipes_;
  const float* parameters_;
  float *gradients_, *amax_histories_;
  std::size_t amax_history_floats_;      // of an operand
  DeviceArray<DelayedScaling> delayed_;  // of all operands; empty where no recipe has it
  cudaStream_t stream_;
  std::size_t d_, ffn_, up_width_, qkv_width_, vocabulary_, norms_;
  Gemms gemms_;
  std::vector<DeviceWeight<T>> weights_;  // the blocks' linears in order, then the head
  struct Input {
    const T* x = nullptr;
    bool is_operand = false;  // of wgrad
  };
  std::vector<Input> inputs_;  // a linear each, of the last Forward
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
