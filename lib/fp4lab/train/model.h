// The decoder: forward and backward over one micro-batch, in memory that is allocated once.
//
//   x = embedding[token]
//   each block:  x = x + out(attention(rope(qkv(rmsnorm(x)))))
//                x = x + down(activation(up(rmsnorm(x))))
//   logits = head(rmsnorm(x))
//
// Shapes: B sequences, T tokens each, R = B * T rows, C = d_model, F = ffn, V = vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/aligned.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/nn/attention.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/nn/rope.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/linear_plan.h"
#include "fp4lab/train/shapes.h"

namespace fp4lab {

// Initial weights. Matrices ~ N(0, 2 / (5 d_model)) (small init, Nguyen and Salazar, arXiv
// 1910.05895; a standard deviation of 0.02 at d 1024), with the standard deviation of matrices that
// write to the residual stream (attention.out, mlp.down) divided by sqrt(2 layers); gains 1.
// Box-Muller in double from Philox, rounded to binary32: a function of (model, seed) alone. Then
// the first gain of block 0 is moved by config.nudge_ulps: every recipe keeps gains in FP32, so
// that the first backward pass already differs, where one ulp of a matrix would be rounded away.
void InitializeParameters(const TrainConfig& config, std::span<float> parameters);

// The three GEMMs of a linear (nn/linear_recipe.h).
enum class LinearGemm { kFprop, kDgrad, kWgrad };
// "fprop", "dgrad" or "wgrad".
std::string_view GemmName(LinearGemm gemm);

// A GEMM's result under a linear's recipe, and the result of the same tensors under Recipe::rest,
// where nothing is quantized.
struct ObservedProduct {
  LinearGemm gemm = LinearGemm::kFprop;
  MatrixView<const float> quantized, plain;
};
// Called with every GEMM of a linear whose recipe is not Recipe::rest, and the linear's name.
using ProductObserver =
    std::function<void(const std::string& linear, const ObservedProduct& product)>;

class Model {
 public:
  // Every pass reads `parameters` (MakeLayout(config).total), and reads and writes `amax_histories`
  // (AmaxHistoryFloats(config, recipe)); both must stay where they are.
  Model(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
        std::size_t max_sequences, std::span<float> amax_histories = {});
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ParameterLayout& Layout() const { return layout_; }
  std::uint32_t TensorsPerPass() const { return plan_.TensorsPerPass(); }

  // Changes to another recipe with the same Recipe::rest.
  void UseRecipe(const Recipe& recipe) { plan_.UseRecipe(recipe); }

  // Advances the histories of operands with delayed scaling, at the end of a step.
  void AdvanceAmaxHistories();

  // From now on, passes that are not in high precision show their products; null: no longer. Each
  // GEMM is then computed three times.
  void ObserveProducts(const ProductObserver* observer) { products_ = observer; }

  // Must follow any change of the parameters: quantized weights are made anew.
  void ParametersChanged();

  // tokens (R), R a multiple of T and at most max_sequences * T. Keeps the logits and all tensors
  // that Backward needs.
  void Forward(const Pass& pass, std::span<const std::uint16_t> tokens);

  // After Forward: row_loss (R) in nats. Returns the mean of row_loss.
  double Loss(std::span<const std::uint16_t> targets, std::span<double> row_loss);

  // After Forward, instead of Loss: adds loss_scale * d(sum of row losses)/d(parameters) to
  // `gradients`. Returns the mean loss.
  double Backward(const Pass& pass, std::span<const std::uint16_t> tokens,
                  std::span<const std::uint16_t> targets, float loss_scale,
                  std::span<double> row_loss, std::span<float> gradients);

 private:
  using View = MatrixView<float>;
  // The tensors of a block that the forward pass keeps for the backward pass.
  struct BlockActivations {
    View x, attention_norm, qkv, attention, mid, mlp_norm, up, activated;
    std::span<float> attention_inverse_rms, attention_statistics, mlp_inverse_rms;
  };

  void SetRows(std::size_t rows);
  View Take(std::size_t rows, std::size_t cols, std::size_t* used);
  View Slice(const View& qkv, int part) const;  // 0: queries, 1: keys, 2: values
  View QueriesAndKeys(const View& qkv) const;

  // Calls step(first row, shape of its rows) for each sequence, on any thread. If there are too few
  // sequences for the threads, one call covers all sequences, and the threads share out the heads.
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

  // In the following functions `linear` is an index of LinearPlan.
  //
  // The number of rows of x that fit an L1 cache.
  static std::size_t PieceRows(const View& x);
  // Calls make(first, rows, bf16), which writes these rows of `out`, piece by piece. If the
  // linear's recipe rounds, make rounds the rows to BF16 and returns their amax. For tensors that
  // only this linear reads.
  using MakeRows = std::function<float(std::size_t first, std::size_t rows, bool bf16)>;
  LinearInput MakeRounded(const Pass& pass, std::size_t linear, std::size_t piece_rows, View out,
                          const MakeRows& make);
  // RmsNorm of x as the linear's input; x is also copied to `copy`, unless that is null.
  void MakeNorm(const Pass& pass, std::size_t linear, View x, std::span<const float> gain, View out,
                std::span<float> inverse_rms, float* copy);
  void RunLinear(const Pass& pass, std::size_t linear, Write write, View y);
  void RunLinearBackward(const Pass& pass, std::size_t linear, const LinearInput& dy, View dx,
                         std::span<float> gradients);
  bool ShowsProducts(const Pass& pass, std::size_t linear) const;
  // Compute the GEMMs of a linear again, under its recipe and under Recipe::rest, for products_.
  void ShowForward(const Pass& pass, std::size_t linear);
  void ShowBackward(const Pass& pass, std::size_t linear, const LinearInput& dy);
  void Inspect(const Pass& pass, int block, const char* name, MatrixView<const float> x) const;

  ModelConfig config_;
  LinearPlan plan_;
  ParameterLayout layout_;
  std::span<const float> parameters_;
  std::span<float> amax_histories_;
  RopeTable rope_;
  std::vector<LinearWeight> weights_;  // one per linear
  std::vector<LinearInput> inputs_;    // one per linear, of the last Forward
  LinearScratch scratch_;
  std::vector<float> piece_amax_;
  const ProductObserver* products_ = nullptr;
  FloatBuffer memory_;

  // Views into memory_ for the rows of the last Forward.
  std::size_t rows_ = 0;
  AttentionShape attention_shape_;
  std::vector<BlockActivations> blocks_;
  View last_, final_norm_, logits_;
  std::span<float> final_inverse_rms_;
  View d_residual_, d_narrow_, d_wide_, d_up_, d_qkv_;  // gradients of the backward pass
};

}  // namespace fp4lab
