// x + down(activation(up(rmsnorm(x)))). SwiGLU: up's rows are the gate's, then the others.
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/train/parts/part.h"
#include "fp4lab/train/parts/part_runner.h"

namespace fp4lab {
namespace {

using View = MatrixView<float>;

enum LinearIndex { kUp, kDown };
enum ActivationIndex { kNorm, kUpResult, kActivated, kInverseRms };
enum GradientIndex { kWide, kUpGradient };

std::size_t Width(const ModelConfig& c) { return static_cast<std::size_t>(c.d_model); }
std::size_t Ffn(const ModelConfig& c) { return static_cast<std::size_t>(c.ffn); }
std::size_t UpWidth(const ModelConfig& c) {
  return c.activation == Activation::kSwiglu ? 2 * Ffn(c) : Ffn(c);
}

std::vector<PartWidth> Widths(const ModelConfig& c) { return {{"ffn", "ffn", c.ffn}}; }

std::vector<LinearShape> LinearsOf(const ModelConfig& c) {
  LinearShape up{"mlp.up", Width(c), UpWidth(c)};
  if (c.activation == Activation::kSwiglu) up.stacked = {Ffn(c), Ffn(c)};
  return {up, {"mlp.down", Ffn(c), Width(c), true}};
}

std::vector<GainShape> Gains(const ModelConfig& c) { return {{"mlp_norm.gain", Width(c)}}; }

std::vector<std::size_t> Activations(const ModelConfig& c) {
  return {Width(c), UpWidth(c), Ffn(c), 1};
}

// Without a gate, the gradients before and after the activation share their place.
std::vector<std::size_t> Gradients(const ModelConfig& c) {
  if (c.activation != Activation::kSwiglu) return {Ffn(c)};
  return {Ffn(c), UpWidth(c)};
}

std::vector<ChannelScale> NormScales(const ModelConfig& /*config*/, std::size_t channel) {
  return {{ChannelScale::kGain, 0, channel, 1.0}, {ChannelScale::kColumn, kUp, channel, -1.0}};
}

// A channel between both matrices. SwiGLU is linear in the rows behind the gate's; a squared ReLU
// squares the factor of its row.
std::vector<ChannelScale> HiddenScales(const ModelConfig& c, std::size_t channel) {
  const bool gate = c.activation == Activation::kSwiglu;
  return {{ChannelScale::kRow, kUp, (gate ? Ffn(c) : 0) + channel, gate ? 1.0 : 0.5},
          {ChannelScale::kColumn, kDown, channel, -1.0}};
}

// GELU scales with no factor of its input.
std::vector<OutlierPlace> Outliers(const ModelConfig& c) {
  std::vector<OutlierPlace> places = {{"norm", Width(c), NormScales}};
  if (c.activation != Activation::kGelu) places.push_back({"hidden", Ffn(c), HiddenScales});
  return places;
}

class Runner final : public PartRunner {
 public:
  explicit Runner(const ModelConfig& config) : config_(config) {}

  void Forward(const PartUse& use, View x, View out) override {
    const View norm = use.activations[kNorm], up = use.activations[kUpResult],
               activated = use.activations[kActivated];
    Linears& linears = *use.linears;
    linears.MakeNorm(use.pass, use.Linear(kUp), x, use.Gain(0), config_.norm_epsilon, norm,
                     use.Column(kInverseRms), out.data);
    use.Inspect("mlp_norm.output", norm);
    linears.Run(use.pass, use.Linear(kUp), Write::kOverwrite, up);
    use.Inspect("mlp.up.output", up);
    linears.SetInput(
        use.Linear(kDown),
        linears.MakeRounded(use.pass, use.Linear(kDown), Linears::PieceRows(activated), activated,
                            [&](std::size_t first, std::size_t rows, bool bf16) {
                              return Activate(up, activated, first, rows, bf16);
                            }));
    use.Inspect("mlp.activation.output", activated);
    linears.Run(use.pass, use.Linear(kDown), Write::kAccumulate, out);
    use.Inspect("mlp.down.output", out);
  }

  void Backward(const PartUse& use, View x, const PartGradients& g) override {
    const View up = use.activations[kUpResult], d_wide = g.wide[kWide],
               d_up = g.wide.size() > 1 ? g.wide[kUpGradient] : d_wide;
    Linears& linears = *use.linears;
    linears.RunBackward(use.pass, use.Linear(kDown), {g.d_residual}, d_wide, g.parameters);
    const LinearInput dy =
        linears.MakeRounded(use.pass, use.Linear(kUp), Linears::PieceRows(d_up), d_up,
                            [&](std::size_t first, std::size_t rows, bool bf16) {
                              return ActivateBackward(up, d_wide, d_up, first, rows, bf16);
                            });
    use.Inspect("mlp.up.output.gradient", d_up);
    linears.RunBackward(use.pass, use.Linear(kUp), dy, g.d_narrow, g.parameters);
    RmsNormBackward(x, use.Gain(0), use.Column(kInverseRms), g.d_narrow, Write::kAccumulate,
                    g.d_residual, g.Gain(use.gains[0]));
    use.Inspect("mlp_norm.input.gradient", g.d_residual);
  }

 private:
  float Activate(const View& up_result, const View& activated, std::size_t first, std::size_t rows,
                 bool bf16) const {
    const std::size_t f = activated.cols;
    const View out = activated.Block(first, 0, rows, f);
    const View up = up_result.Block(first, 0, rows, up_result.cols);
    switch (config_.activation) {
      case Activation::kSquaredRelu:
        if (bf16) return SquaredReluToBf16(up, out);
        SquaredRelu(up, out);
        return 0.0f;
      case Activation::kGelu:
        if (bf16) return GeluToBf16(up, out);
        Gelu(up, out);
        return 0.0f;
      case Activation::kSwiglu:
        Swiglu(up.Block(0, 0, rows, f), up.Block(0, f, rows, f), out);
        return bf16 ? RoundBf16(out, out) : 0.0f;
    }
    return 0.0f;
  }

  float ActivateBackward(const View& up_result, const View& d_wide, const View& d_result,
                         std::size_t first, std::size_t rows, bool bf16) const {
    const std::size_t f = d_wide.cols;
    const View up = up_result.Block(first, 0, rows, up_result.cols),
               dy = d_wide.Block(first, 0, rows, f);
    const View d_up = d_result.Block(first, 0, rows, d_result.cols);
    switch (config_.activation) {
      case Activation::kSquaredRelu:
        if (bf16) return SquaredReluBackwardToBf16(up, dy, d_up);
        SquaredReluBackward(up, dy, d_up);
        return 0.0f;
      case Activation::kGelu:
        if (bf16) return GeluBackwardToBf16(up, dy, d_up);
        GeluBackward(up, dy, d_up);
        return 0.0f;
      case Activation::kSwiglu:
        SwigluBackward(up.Block(0, 0, rows, f), up.Block(0, f, rows, f), dy,
                       d_up.Block(0, 0, rows, f), d_up.Block(0, f, rows, f));
        return bf16 ? RoundBf16(d_up, d_up) : 0.0f;
    }
    return 0.0f;
  }

  ModelConfig config_;
};

}  // namespace

extern const Part kMlp;
const Part kMlp{.name = "mlp",
                .widths = Widths,
                .linears = LinearsOf,
                .gains = Gains,
                .activations = Activations,
                .gradients = Gradients,
                .outliers = Outliers,
                .on_gpu = true,
                .make = MakeRunner<Runner>};

}  // namespace fp4lab
