// The decoder: forward and backward over one micro-batch, in memory that is allocated once.
//
//   x = embedding[token]
//   each block:  x = x + part(x) for each of its parts (parts/parts.h)
//   logits = head(rmsnorm(x)), under muP times base_d_model / d_model
//
// Shapes: B sequences, T tokens each, R = B * T rows, C = d_model, V = vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/model/linears.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/parts/part_runner.h"

namespace fp4lab {

// Initial weights. Matrices ~ N(0, 2 / (5 d_model)) (small init, Nguyen and Salazar, arXiv
// 1910.05895; a standard deviation of 0.02 at d 1024), with the standard deviation of matrices that
// write to the residual stream (LinearShape::to_residual) divided by the square root of the number
// of parts that do (2 layers with attention and mlp); gains 1. Under muP with the ratio r of
// widths, embedding and head have sqrt(r) times this standard deviation, so that it does not depend
// on the width, and routers 1 / sqrt(r) times. Box-Muller in double from Philox, rounded to
// binary32: a function of (model, seed) alone. Then the first gain is moved by config.nudge_ulps:
// every recipe keeps gains in FP32, so that the first backward pass already differs, where one ulp
// of a matrix would be rounded away.
void InitializeParameters(const TrainConfig& config, std::span<float> parameters);

class Model {
 public:
  // Every pass reads `parameters` (MakeLayout(config).total), and reads and writes `amax_histories`
  // (AmaxHistoryFloats(config, recipe)); both must stay where they are.
  Model(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
        std::size_t max_sequences, std::span<float> amax_histories = {});
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ParameterLayout& Layout() const { return layout_; }
  std::uint32_t TensorsPerPass() const { return linears_.Plan().TensorsPerPass(); }

  // Changes to another recipe with the same Recipe::rest.
  void UseRecipe(const Recipe& recipe) { linears_.UseRecipe(recipe); }

  // Advances the histories of operands with delayed scaling, at the end of a step.
  void AdvanceAmaxHistories() { linears_.AdvanceAmaxHistories(); }

  // From now on, passes that are not in high precision show their products; null: no longer. Each
  // GEMM is then computed three times.
  void ObserveProducts(const ProductObserver* observer) { linears_.ObserveProducts(observer); }

  // Must follow any change of the parameters: quantized weights are made anew.
  void ParametersChanged() { linears_.ParametersChanged(); }

  // tokens (R), R a multiple of T and at most max_sequences * T. Keeps the logits and all tensors
  // that Backward needs.
  void Forward(const Pass& pass, std::span<const std::uint16_t> tokens);

  // After Forward: the logits (R, V). Until Backward.
  MatrixView<const float> Logits() const { return logits_; }

  // After Forward: row_loss (R) in nats. Returns the mean of row_loss.
  double Loss(std::span<const std::uint16_t> targets, std::span<double> row_loss);

  // After Forward, instead of Loss: adds loss_scale * d(sum of row losses)/d(parameters) to
  // `gradients`. Returns the mean loss. With pass.teacher the gradient is that of its loss, too
  // (nn/loss.h); row_loss and the result are the cross-entropy.
  double Backward(const Pass& pass, std::span<const std::uint16_t> tokens,
                  std::span<const std::uint16_t> targets, float loss_scale,
                  std::span<double> row_loss, std::span<float> gradients);

 private:
  using View = MatrixView<float>;
  // What the forward pass keeps of a part in its block for the backward pass: its x, and
  // Part::activations.
  struct PartActivations {
    View x;
    std::vector<View> kept;
  };

  void SetRows(std::size_t rows);
  View Take(std::size_t rows, std::size_t cols, std::size_t* used);
  PartUse UseOf(const Pass& pass, std::size_t placed);
  double BackwardHead(const Pass& pass, std::span<const std::uint16_t> tokens,
                      std::span<const std::uint16_t> targets, float loss_scale,
                      std::span<double> row_loss, std::span<float> gradients);

  ModelConfig config_;
  ParameterLayout layout_;
  std::span<const float> parameters_;
  Linears linears_;
  float logit_multiplier_;                            // LogitMultiplier
  std::vector<const Part*> parts_;                    // of a block
  std::vector<std::unique_ptr<PartRunner>> runners_;  // of parts_
  FloatBuffer memory_;

  // Views into memory_ for the rows of the last Forward.
  std::size_t rows_ = 0;
  std::vector<PartActivations> activations_;  // of ParameterLayout::parts
  View last_, final_norm_, logits_;
  std::span<float> final_inverse_rms_;
  View d_residual_, d_narrow_;           // gradients of the backward pass
  std::vector<std::vector<View>> wide_;  // of parts_: Part::gradients
};

}  // namespace fp4lab
