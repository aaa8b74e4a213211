// train/parts/mlp.cc on the device.
#include <vector>

#include "fp4lab/gpu/parts/device_part.cuh"

namespace fp4lab::gpu {
namespace {

enum LinearIndex { kUp, kDown };

template <class T>
class Mlp final : public DevicePart<T> {
 public:
  Mlp(const ModelConfig& config, cudaStream_t stream)
      : config_(config),
        stream_(stream),
        d_(static_cast<std::size_t>(config.d_model)),
        ffn_(static_cast<std::size_t>(config.ffn)),
        up_width_(config.activation == Activation::kSwiglu ? 2 * ffn_ : ffn_) {}

  void TakeMemory(const std::vector<bool>& has, std::size_t rows) override {
    const auto floats = [&](std::size_t cols) { return DeviceArray<float>(rows * cols); };
    const auto operand = [&](std::size_t cols) { return DeviceArray<T>(rows * cols); };
    blocks_.resize(has.size());
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (!has[i]) continue;
      Block& b = blocks_[i];
      b.norm = operand(d_);
      b.inverse_rms = floats(1);
      b.up = floats(up_width_);
      b.activated = operand(ffn_);
    }
    d_wide_ = floats(ffn_);
    d_up_ = operand(up_width_);
  }

  std::optional<std::size_t> ResidualLinear() const override { return kDown; }

  void Forward(const DevicePartUse<T>& use, const float* x, float* out) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t up = use.Linear(kUp), down = use.Linear(kDown), rows = linears.Rows();
    linears.Normalize(use.pass, x, use.gains[0], config_.norm_epsilon, b.inverse_rms.data(),
                      b.norm.data(), up);
    use.Inspect("mlp_norm.output", b.norm.data(), d_);
    linears.Run(use.pass, up, b.norm.data(), nullptr, b.up.data(), use.InputPlaces(kUp));
    use.Inspect("mlp.up.output", b.up.data(), up_width_);
    const Activation activation = config_.activation;
    const AmaxPlaces amax = MeasuredBy(activation, use.InputPlaces(kDown));
    Activate(activation, b.up.data(), rows, ffn_, b.activated.data(), stream_, amax);
    use.Inspect("mlp.activation.output", b.activated.data(), ffn_);
    linears.Run(use.pass, down, b.activated.data(), x, out, amax);
    use.Inspect("mlp.down.output", out, d_);
  }

  void Backward(const DevicePartUse<T>& use, const float* x,
                const DevicePartGradients<T>& g) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t up = use.Linear(kUp), down = use.Linear(kDown), rows = linears.Rows();
    linears.RunBackward(use.pass, down, g.Residual(), d_wide_.data(), use.GradientPlaces(kDown));
    const Activation activation = config_.activation;
    const AmaxPlaces amax = MeasuredBy(activation, use.GradientPlaces(kUp));
    ActivateBackward(activation, b.up.data(), d_wide_.data(), rows, ffn_, d_up_.data(), stream_,
                     amax);
    use.Inspect("mlp.up.output.gradient", d_up_.data(), up_width_);
    linears.RunBackward(use.pass, up, d_up_.data(), g.d_narrow, amax);
    BackwardNorm(use, 0, x, b.inverse_rms.data(), g);
    use.Inspect("mlp_norm.input.gradient", g.d_residual, d_);
  }

 private:
  struct Block {
    DeviceArray<float> inverse_rms, up;
    DeviceArray<T> norm, activated;
  };

  ModelConfig config_;
  cudaStream_t stream_;
  std::size_t d_, ffn_, up_width_;
  std::vector<Block> blocks_;
  DeviceArray<float> d_wide_;
  DeviceArray<T> d_up_;
};

}  // namespace

extern const DevicePartRow kDeviceMlp;
const DevicePartRow kDeviceMlp = RowOf<Mlp>("mlp");

}  // namespace fp4lab::gpu
