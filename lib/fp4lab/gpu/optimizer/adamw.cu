// AdamW in the order of nn/optimizer/optimizer.cc.
#include "fp4lab/base/elementary.h"
#include "fp4lab/gpu/optimizer/adamw.cuh"
#include "fp4lab/gpu/optimizer/optimizer.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;

__global__ void AdamWKernel(AdamW o, float correction1, float correction2, std::size_t size,
                            const float* gradient, float* weight, float* m, float* v) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  const float new1 = 1.0f - o.beta1, new2 = 1.0f - o.beta2;
  const float g = gradient[i] * o.gradient_scale;
  const float m_new = o.beta1 * m[i] + new1 * g;
  const float v_new = o.beta2 * v[i] + new2 * (g * g);
  const float root = sqrtf(correction2 * v_new);
  const float update = (correction1 * m_new) / (root + o.epsilon);
  const float w = weight[i];
  weight[i] = w - o.learning_rate * (update + o.weight_decay * w);
  m[i] = m_new;
  v[i] = v_new;
}

float BiasCorrection(float beta, std::int64_t step) {
  return static_cast<float>(1.0 / (1.0 - IntegerPower(beta, step)));
}

class AdamWOptimizer final : public DeviceOptimizer {
 public:
  AdamWOptimizer(const OptimizerConfig& config, cudaStream_t stream)
      : config_(config), stream_(stream) {}

  void Update(const UpdateStep& step, const ParameterGroup& group,
              const DeviceOptimizerNumbers& numbers) override {
    AdamWUpdate(config_, step, group, numbers, stream_);
  }

 private:
  OptimizerConfig config_;
  cudaStream_t stream_;
};

std::unique_ptr<DeviceOptimizer> Make(const OptimizerConfig& config,
                                      std::span<const ParameterGroup> /*groups*/,
                                      cudaStream_t stream) {
  return std::make_unique<AdamWOptimizer>(config, stream);
}

}  // namespace

void AdamWStep(const AdamW& options, std::size_t size, const float* gradient, float* weight,
               float* m, float* v, cudaStream_t stream) {
  if (size == 0) return;
  AdamWKernel<<<Blocks(size, kThreads), kThreads, 0, stream>>>(
      options, BiasCorrection(options.beta1, options.step),
      BiasCorrection(options.beta2, options.step), size, gradient, weight, m, v);
  CheckLaunch("AdamWStep");
}

void AdamWUpdate(const OptimizerConfig& config, const UpdateStep& step, const ParameterGroup& group,
                 const DeviceOptimizerNumbers& numbers, cudaStream_t stream) {
  const AdamW adam{.learning_rate = LearningRateOf(config, step.learning_rate, group),
                   .beta1 = config.beta1,
                   .beta2 = config.beta2,
                   .epsilon = config.epsilon,
                   .weight_decay = WeightDecayOf(config, group),
                   .gradient_scale = step.gradient_scale,
                   .step = step.step};
  AdamWStep(adam, group.size, numbers.gradients + group.first, numbers.parameters + group.first,
            numbers.states[0].data() + group.first, numbers.states[1].data() + group.first, stream);
}

extern const DeviceOptimizerRow kDeviceAdamW;
const DeviceOptimizerRow kDeviceAdamW{"adamw", Make};

}  // namespace fp4lab::gpu
