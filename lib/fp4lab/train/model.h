// The decoder: forward and backward over one micro-batch, in memory that is taken once.
//
//   x = embedding[token]
//   a block:  x = x + out(attention(rope(qkv(rmsnorm(x)))));  x = x +
//   down(activation(up(rmsnorm(x)))) logits = head(rmsnorm(x))
//
// Shapes: B sequences, T tokens each, R = B * T rows, C = d_model, F = ffn, V = vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/aligned.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/nn/attention.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/nn/rope.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/shapes.h"

namespace fp4lab {

// Matrices ~ N(0, 2 / (5 d_model)) (small init, Nguyen and Salazar, arXiv 1910.05895; 0.02 at d
// 1024), those that write to the residual stream (attention.out, mlp.down) divided by
// sqrt(2 layers); gains 1. Box-Muller in double from Philox, rounded to binary32: a
// function of (config, seed) alone.
void InitializeParameters(const ModelConfig& config, std::uint64_t seed,
                          std::span<float> parameters);

// Sees every tensor right after it was computed, by name ("blocks.2.mlp.down.output").
using TensorInspector = std::function<void(const std::string& name, MatrixView<const float>)>;
// Sees every operand that a linear quantizes ("blocks.2.mlp.down").
using LinearObserver =
    std::function<void(const std::string& linear, LinearOperand, MatrixView<const float> before,
                       MatrixView<const float> values, const Dialect&, const DialectOptions&)>;

// How a pass computes. random.tensor is the pass's first: operand k of linear l (blocks' linears in
// order, then the head) takes random.tensor + l * kLinearOperands + k.
struct Pass {
  bool high_precision = false;  // Recipe::rest everywhere
  RandomStream random;
  bool records = false;  // delayed scaling: the pass's amaxes become part of the histories
  const TensorInspector* inspector = nullptr;
  const LinearObserver* observer = nullptr;
};

// Floats that a run keeps for delayed scaling: of all operands of all linears, in the order of
// Pass::random; 0 where the recipe, and the one that it changes to, has none.
std::size_t AmaxHistoryFloats(const ModelConfig& config, const Recipe& recipe);

class Model {
 public:
  // `parameters` (MakeLayout(config).total) is read at every pass and must stay where it is, as
  // must `amax_histories`, AmaxHistoryFloats(config, recipe) of them, which passes read and write.
  Model(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
        std::size_t max_sequences, std::span<float> amax_histories = {});
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ParameterLayout& Layout() const { return layout_; }
  std::uint32_t TensorsPerPass() const;

  // Another recipe, of the same Recipe::rest.
  void UseRecipe(const Recipe& recipe);

  // At the end of a step, for operands with delayed scaling.
  void AdvanceAmaxHistories();

  // After any change of the parameters: quantized weights are made anew.
  void ParametersChanged();

  // tokens (R), R a multiple of T and at most max_sequences * T. Leaves the logits and everything
  // that Backward needs.
  void Forward(const Pass& pass, std::span<const std::uint16_t> tokens);

  // After Forward. row_loss (R): nats. Returns their mean.
  double Loss(std::span<const std::uint16_t> targets, std::span<double> row_loss);

  // After Forward, instead of Loss: adds loss_scale * d(sum of row losses)/d(parameters) to
  // `gradients`. Returns the mean loss.
  double Backward(const Pass& pass, std::span<const std::uint16_t> tokens,
                  std::span<const std::uint16_t> targets, float loss_scale,
                  std::span<double> row_loss, std::span<float> gradients);

 private:
  using View = MatrixView<float>;
  // What the forward pass leaves of a block for the backward pass.
  struct BlockActivations {
    View x, attention_norm, qkv, attention, mid, mlp_norm, up, activated;
    std::span<float> attention_inverse_rms, attention_statistics, mlp_inverse_rms;
  };

  void SetRows(std::size_t rows);
  View Take(std::size_t rows, std::size_t cols, std::size_t* used);
  View Slice(const View& qkv, int part) const;  // 0: queries, 1: keys, 2: values
  View QueriesAndKeys(const View& qkv) const;

  // step(first row, shape of its rows): for each sequence, on any thread; for all of them at once
  // where there are too few for the threads, whose heads are shared out instead.
  using SequenceStep = std::function<void(std::size_t row, const AttentionShape& shape)>;
  void ForEachSequence(const SequenceStep& step) const;
  bool SharesOutSequences() const;
  static std::span<float> StatisticsOf(const BlockActivations& a, std::size_t row,
                                       const AttentionShape& shape);

  std::span<const float> Gain(const ParameterSlice& slice) const;
  View Gradient(std::span<float> gradients, const ParameterSlice& slice) const;

  void ForwardBlock(const Pass& pass, int block, View out);
  void ForwardAttention(const BlockActivations& a) const;
  float Activate(const BlockActivations& a, std::size_t first, std::size_t rows, bool bf16) const;
  float ActivateBackward(const BlockActivations& a, std::size_t first, std::size_t rows,
                         bool bf16) const;
  void BackwardMlp(const Pass& pass, int block, std::span<float> gradients);
  void BackwardSequences(const BlockActivations& a, std::size_t row,
                         const AttentionShape& shape) const;
  void BackwardAttention(const Pass& pass, int block, std::span<float> gradients);
  double BackwardHead(const Pass& pass, std::span<const std::uint16_t> targets, float loss_scale,
                      std::span<double> row_loss, std::span<float> gradients);

  // `linear` counts the blocks' linears in order, then the head.
  std::size_t Index(int block, BlockLinear linear) const;
  std::size_t HeadIndex() const { return weights_.size() - 1; }
  std::string LinearName(std::size_t linear) const;
  const LinearRecipe& RecipeFor(const Pass& pass, std::size_t linear) const;
  // `observer`: memory for the linear's own, of the pass's.
  LinearCall CallOf(const Pass& pass, std::size_t linear, OperandObserver* observer);
  // Rows of x that fit a first-level cache.
  static std::size_t PieceRows(const View& x);
  // make(first, rows, bf16) writes those rows of `out`, piece by piece: rounded to BF16 if the
  // linear's recipe rounds, and then it returns their largest magnitude. For tensors that only this
  // linear reads.
  using MakeRows = std::function<float(std::size_t first, std::size_t rows, bool bf16)>;
  LinearInput MakeRounded(const Pass& pass, std::size_t linear, std::size_t piece_rows, View out,
                          const MakeRows& make);
  // RmsNorm of x as the linear's input; x also goes to `copy`, if given.
  void MakeNorm(const Pass& pass, std::size_t linear, View x, std::span<const float> gain, View out,
                std::span<float> inverse_rms, float* copy);
  void RunLinear(const Pass& pass, std::size_t linear, Write write, View y);
  void RunLinearBackward(const Pass& pass, std::size_t linear, const LinearInput& dy, View dx,
                         std::span<float> gradients);
  void Inspect(const Pass& pass, int block, const char* name, MatrixView<const float> x) const;

  ModelConfig config_;
  Recipe recipe_;                             // in use
  std::vector<const LinearRecipe*> recipes_;  // a linear each: recipe_.linear or recipe_.rest
  ParameterLayout layout_;
  std::span<const float> parameters_;
  std::span<float> amax_histories_;
  std::size_t amax_history_floats_;  // of an operand
  RopeTable rope_;
  std::vector<LinearWeight> weights_;  // the blocks' linears in order, then the head
  std::vector<LinearInput> inputs_;    // a linear each, of the last Forward
  LinearScratch scratch_;
  std::vector<float> piece_amax_;
  FloatBuffer memory_;

  // Views into memory_ for the rows of the last Forward.
  std::size_t rows_ = 0;
  AttentionShape attention_shape_;
  std::vector<BlockActivations> blocks_;
  View last_, final_norm_, logits_;
  std::span<float> final_inverse_rms_;
  View d_residual_, d_narrow_, d_wide_, d_up_, d_qkv_;  // gradients on their way back
};

}  // namespace fp4lab
