// train/model/linears.h on the device: the linears of a model in one pass. `linear` is an index of
// LinearPlan. All work is enqueued without waiting, except in passes with an inspector or observer:
// on one stream, but for linears that Fork lets run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "fp4lab/gpu/engine/linear.cuh"
#include "fp4lab/gpu/engine/stream.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/quantize/delayed_scaling.cuh"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"

namespace fp4lab::gpu {

// Rows that a linear sees, and the lane of DeviceLinears::Fork on which it runs.
struct RowsOnLane {
  std::size_t rows = 0, lane = 0;
};

// T: the type of linears' operands (Bf16 if the recipe rounds them).
template <class T>
class DeviceLinears {
 public:
  // `parameters`, `gradients` and `amax_histories` as in DeviceModel.
  DeviceLinears(const TrainConfig& config, const float* parameters, float* gradients,
                float* amax_histories, cudaStream_t stream);
  DeviceLinears(const DeviceLinears&) = delete;
  DeviceLinears& operator=(const DeviceLinears&) = delete;

  const LinearPlan& Plan() const { return plan_; }
  cudaStream_t Stream() const { return stream_; }
  // Of a lane of Fork.
  cudaStream_t StreamOf(std::size_t lane) const {
    return lane == 0 ? stream_ : lanes_[lane - 1].stream.get();
  }
  std::size_t Rows() const { return rows_; }  // of the pass
  const float* Parameter(const ParameterSlice& slice) const { return parameters_ + slice.offset; }
  float* Gradient(const ParameterSlice& slice) const { return gradients_ + slice.offset; }

  // Room for the operands of `rows` rows, and of as many with an expert's padding.
  void TakeMemory(std::size_t rows);
  // Changes to another recipe with the same Recipe::rest.
  void UseRecipe(const Recipe& recipe);
  void AdvanceAmaxHistories();
  void ParametersChanged();

  // Begins a forward pass over `rows` rows, which a backward pass follows if it trains.
  void BeginPass(std::size_t rows, bool trains);

  // Begins work on several streams at once: experts, which need nothing of each other. Returns the
  // number of lanes; lane 0 is Stream(). The lanes begin after what Stream() has, and Join makes
  // Stream() wait for them. One lane where times or tensors are looked at in between.
  std::size_t Fork(const Pass& pass);
  void Join(std::size_t lanes);

  // The places where the producer of the linear's x, or of its dy, measures the amax.
  AmaxPlaces InputPlaces(const Pass& pass, std::size_t linear) const {
    return InputPlaces(pass, linear, rows_);
  }
  AmaxPlaces GradientPlaces(const Pass& pass, std::size_t linear) const {
    return GradientPlaces(pass, linear, rows_);
  }
  // The same for a linear that sees `rows` rows.
  AmaxPlaces InputPlaces(const Pass& pass, std::size_t linear, std::size_t rows) const;
  AmaxPlaces GradientPlaces(const Pass& pass, std::size_t linear, std::size_t rows) const;

  // RMSNorm of x (rows, cols) as y, the input of `linear`, with the amaxes that the linear needs.
  void Normalize(const Pass& pass, const float* x, const ParameterSlice& gain, float epsilon,
                 float* inverse_rms, T* y, std::size_t linear);
  // y = x w^T, plus `add` if it is not null. `measured`: the amax places that the producer of x has
  // filled. `keeps`: x is read after the forward pass and must not be overwritten.
  void Run(const Pass& pass, std::size_t linear, T* x, const float* add, float* y,
           const AmaxPlaces& measured, bool keeps = false) {
    RunRows(pass, linear, {rows_}, x, add, y, measured, keeps);
  }
  // D: float, or Bf16 with T = Bf16. `measured`: as above, of dy.
  template <class D>
  void RunBackward(const Pass& pass, std::size_t linear, const T* dy, D* dx,
                   const AmaxPlaces& measured = {}) {
    RunBackwardRows(pass, linear, {rows_}, dy, dx, measured);
  }

  // The same for a linear that sees `on.rows` rows: an expert's, padding included.
  void RunRows(const Pass& pass, std::size_t linear, const RowsOnLane& on, T* x, const float* add,
               float* y, const AmaxPlaces& measured = {}, bool keeps = false);
  template <class D>
  void RunBackwardRows(const Pass& pass, std::size_t linear, const RowsOnLane& on, const T* dy,
                       D* dx, const AmaxPlaces& measured = {});

  // Inspects what a backward pass of a linear wrote.
  template <class D>
  void InspectGradients(const Pass& pass, std::size_t linear, std::size_t rows, const D* dx) const;

  // Copies a tensor to the host for the pass's inspector, if it has one.
  template <class X>
  void Inspect(const Pass& pass, const std::string& name, const X* x, std::size_t rows,
               std::size_t cols) const {
    if (pass.inspector == nullptr) return;
    (*pass.inspector)(name, Fetched(x, rows, cols, stream_).View());
  }
  // Inspects a tensor of Rows() rows, by its name within `block`; -1: a tensor outside the blocks.
  template <class X>
  void InspectIn(const Pass& pass, int block, const char* name, const X* x,
                 std::size_t cols) const {
    const std::string prefix = block < 0 ? "" : "blocks." + std::to_string(block) + ".";
    Inspect(pass, prefix + name, x, rows_, cols);
  }

 private:
  // A stream beside stream_, with scratch memory that grows with what runs on it.
  struct Lane {
    gpu::Stream stream;
    Event done;
    DeviceScratch<T> scratch;
  };

  DeviceCall CallOf(const Pass& pass, std::size_t linear, const RowsOnLane& on,
                    OperandObserver* observer);
  DeviceScratch<T>& ScratchOf(std::size_t linear, const RowsOnLane& on);

  LinearPlan plan_;
  std::size_t pad_;  // MoeConfig::pad_tokens
  const float* parameters_;
  float *gradients_, *amax_histories_;
  DeviceArray<DelayedScaling> delayed_;  // plan_.Delayed(); empty without delayed scaling
  cudaStream_t stream_;
  Gemms gemms_;
  std::vector<DeviceWeight<T>> weights_;  // one per linear
  struct Input {
    const T* x = nullptr;
    InputHolds holds = InputHolds::kTensor;
  };
  std::vector<Input> inputs_;  // one per linear, of the last forward pass
  DeviceScratch<T> scratch_;
  std::deque<Lane> lanes_;  // made by the first Fork
  Event forked_;
  DeviceArray<std::uint32_t> weight_amax_, amax_;
  DeviceArray<float> alpha_;
  std::size_t rows_ = 0;
  bool trains_ = false;
};

}  // namespace fp4lab::gpu
