// The backward pass of Model.
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/attention.h"
#include "fp4lab/nn/embedding.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/train/model.h"

namespace fp4lab {

Model::View Model::Gradient(std::span<float> gradients, const ParameterSlice& slice) const {
  return {gradients.data() + slice.offset, slice.rows, slice.cols};
}

void Model::ShowBackward(const Pass& pass, std::size_t linear, const LinearInput& dy) {
  Pass unseen = pass;
  unseen.observer = nullptr;
  unseen.records = false;
  const LinearCall call = plan_.CallOf(unseen, linear, amax_histories_.data(), nullptr);
  const auto& w = weights_[linear].w;
  struct Gradients {
    Matrix<float> dx, dw;
  };
  LinearScratch scratch;
  const auto multiply = [&](const LinearRecipe& recipe) {
    Gradients g{Matrix<float>(dy.x.rows, w.cols), Matrix<float>(w.rows, w.cols)};
    LinearWeight weight;
    weight.w = w;
    LinearBackward(recipe, call, inputs_[linear], &weight, dy, &scratch, g.dx.View(), g.dw.View());
    return g;
  };
  const Gradients quantized = multiply(plan_.RecipeOf(pass, linear));
  const Gradients plain = multiply(plan_.Rest());
  const std::string& name = plan_.Name(linear);
  (*products_)(name, {LinearGemm::kDgrad, quantized.dx.View(), plain.dx.View()});
  (*products_)(name, {LinearGemm::kWgrad, quantized.dw.View(), plain.dw.View()});
}

void Model::RunLinearBackward(const Pass& pass, std::size_t linear, const LinearInput& dy, View dx,
                              std::span<float> gradients) {
  if (ShowsProducts(pass, linear)) ShowBackward(pass, linear, dy);
  OperandObserver observer;
  const LinearCall call = plan_.CallOf(pass, linear, amax_histories_.data(), &observer);
  const View dw = Gradient(gradients, plan_.Weight(linear));
  LinearBackward(plan_.RecipeOf(pass, linear), call, inputs_[linear], &weights_[linear], dy,
                 &scratch_, dx, dw);
  if (pass.inspector == nullptr) return;
  (*pass.inspector)(plan_.Name(linear) + ".input.gradient", dx);
  (*pass.inspector)(plan_.Name(linear) + ".weight.gradient", dw);
}

double Model::Loss(std::span<const std::uint16_t> targets, std::span<double> row_loss) {
  const IeeeArithmetic ieee;
  return CrossEntropy(logits_, targets, row_loss);
}

double Model::BackwardHead(const Pass& pass, std::span<const std::uint16_t> targets,
                           float loss_scale, std::span<double> row_loss,
                           std::span<float> gradients) {
  const LinearInput d_logits =
      MakeRounded(pass, plan_.Head(), PieceRows(logits_), logits_,
                  [&](std::size_t first, std::size_t rows, bool bf16) {
                    const View piece = logits_.Block(first, 0, rows, logits_.cols);
                    CrossEntropyGradient(piece, targets.subspan(first, rows), loss_scale,
                                         row_loss.subspan(first, rows), piece);
                    return bf16 ? RoundBf16(piece, piece) : 0.0f;
                  });
  Inspect(pass, -1, "head.output.gradient", logits_);
  RunLinearBackward(pass, plan_.Head(), d_logits, d_narrow_, gradients);
  const ParameterSlice& gain = layout_.final_gain;
  RmsNormBackward(last_, Gain(gain), final_inverse_rms_, d_narrow_, Write::kOverwrite, d_residual_,
                  gradients.subspan(gain.offset, gain.size()));
  Inspect(pass, -1, "final_norm.input.gradient", d_residual_);
  return std::accumulate(row_loss.begin(), row_loss.end(), 0.0) /
         static_cast<double>(row_loss.size());
}

float Model::ActivateBackward(const BlockActivations& a, std::size_t first, std::size_t rows,
                              bool bf16) const {
  const std::size_t f = a.activated.cols;
  const View up = a.up.Block(first, 0, rows, a.up.cols), dy = d_wide_.Block(first, 0, rows, f);
  const View d_up = d_up_.Block(first, 0, rows, d_up_.cols);
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

void Model::BackwardMlp(const Pass& pass, int block, std::span<float> gradients) {
  const BlockActivations& a = blocks_[static_cast<std::size_t>(block)];
  RunLinearBackward(pass, plan_.Index(block, kDown), {d_residual_}, d_wide_, gradients);
  const LinearInput d_up = MakeRounded(pass, plan_.Index(block, kUp), PieceRows(d_up_), d_up_,
                                       [&](std::size_t first, std::size_t rows, bool bf16) {
                                         return ActivateBackward(a, first, rows, bf16);
                                       });
  Inspect(pass, block, "mlp.up.output.gradient", d_up_);
  RunLinearBackward(pass, plan_.Index(block, kUp), d_up, d_narrow_, gradients);
  const ParameterSlice& gain = layout_.mlp_gains[static_cast<std::size_t>(block)];
  RmsNormBackward(a.mid, Gain(gain), a.mlp_inverse_rms, d_narrow_, Write::kAccumulate, d_residual_,
                  gradients.subspan(gain.offset, gain.size()));
  Inspect(pass, block, "mlp_norm.input.gradient", d_residual_);
}

void Model::BackwardSequences(const BlockActivations& a, std::size_t row,
                              const AttentionShape& shape) const {
  const auto rows = [&](const View& x) { return x.Block(row, 0, shape.Rows(), x.cols); };
  const View qkv = rows(a.qkv), d_qkv = rows(d_qkv_);
  AttentionBackward(shape, Slice(qkv, 0), Slice(qkv, 1), Slice(qkv, 2), rows(a.attention),
                    StatisticsOf(a, row, shape), rows(d_narrow_),
                    {Slice(d_qkv, 0), Slice(d_qkv, 1), Slice(d_qkv, 2)});
}

void Model::BackwardAttention(const Pass& pass, int block, std::span<float> gradients) {
  const BlockActivations& a = blocks_[static_cast<std::size_t>(block)];
  RunLinearBackward(pass, plan_.Index(block, kOut), {d_residual_}, d_narrow_, gradients);
  const bool together = SharesOutSequences();
  if (!together) BackwardSequences(a, 0, attention_shape_);
  AttentionShape one = attention_shape_;
  one.batch = 1;
  const LinearInput d_qkv = MakeRounded(pass, plan_.Index(block, kQkv), one.sequence, d_qkv_,
                                        [&](std::size_t first, std::size_t rows, bool bf16) {
                                          if (together) BackwardSequences(a, first, one);
                                          const View piece =
                                              d_qkv_.Block(first, 0, rows, d_qkv_.cols);
                                          RopeBackward(rope_, QueriesAndKeys(piece));
                                          return bf16 ? RoundBf16(piece, piece) : 0.0f;
                                        });
  Inspect(pass, block, "attention.qkv.output.gradient", d_qkv_);
  RunLinearBackward(pass, plan_.Index(block, kQkv), d_qkv, d_narrow_, gradients);
  const ParameterSlice& gain = layout_.attention_gains[static_cast<std::size_t>(block)];
  RmsNormBackward(a.x, Gain(gain), a.attention_inverse_rms, d_narrow_, Write::kAccumulate,
                  d_residual_, gradients.subspan(gain.offset, gain.size()));
  Inspect(pass, block, "attention_norm.input.gradient", d_residual_);
}

double Model::Backward(const Pass& pass, std::span<const std::uint16_t> tokens,
                       std::span<const std::uint16_t> targets, float loss_scale,
                       std::span<double> row_loss, std::span<float> gradients) {
  const IeeeArithmetic ieee;
  Expects(tokens.size() == rows_ && targets.size() == rows_ && gradients.size() == layout_.total,
          "Model::Backward: the tokens of the last Forward, all gradients");
  const double loss = BackwardHead(pass, targets, loss_scale, row_loss, gradients);
  for (int b = config_.layers - 1; b >= 0; --b) {
    BackwardMlp(pass, b, gradients);
    BackwardAttention(pass, b, gradients);
  }
  EmbeddingBackward(tokens, d_residual_, Gradient(gradients, layout_.embedding));
  Inspect(pass, -1, "embedding.weight.gradient", Gradient(gradients, layout_.embedding));
  return loss;
}

}  // namespace fp4lab
