// The choice of experts for each token: scores, the top k, their weights, and gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

enum class RouterScore {
  kSoftmax,  // over the experts (GShard, Qwen3, gpt-oss before its choice)
  kSigmoid   // of each expert by itself (DeepSeek-V3)
};

struct RouterOptions {
  RouterScore score = RouterScore::kSoftmax;
  std::size_t top_k = 1;
  bool normalize = true;  // the weights of a token's experts add up to `scale`
  float scale = 1.0f;     // factor of the weights
  float balance_loss = 0.0f;
};

// What Route decides for R tokens and E experts. A token's choices are in descending order of score
// plus bias; of equal ones the expert of the lower number comes first.
struct Routing {
  Matrix<float> scores;               // (R, E)
  std::vector<std::uint32_t> chosen;  // (R, top_k), experts
  Matrix<float> weights;              // (R, top_k)
  std::vector<std::size_t> counts;    // (E), tokens of each expert
};

// logits (R, E); bias (E), added to the scores for the choice alone, or empty. With s the scores:
//   softmax: s_e = exp(z_e - max) / sum, sigmoid: s_e = 1 / (1 + exp(-z_e))
//   weight = scale * s_e, or scale * s_e / (sum of the token's chosen s) if `normalize`
// in double, each result rounded once (base/elementary.h: the same bits everywhere). No token is
// dropped: an expert takes as many as chose it. In a row with a NaN all weights are NaN.
void Route(const RouterOptions& options, MatrixView<const float> logits,
           std::span<const float> bias, Routing* routing);

// d_logits (R, E) from d_weights (R, top_k), the gradient of the loss. Adds the gradient of
//   balance_loss * E * sum_e f_e P_e,  f_e = counts_e / (top_k R),  P_e = mean over tokens of p_e
// with p the scores (sigmoid: divided by their sum in the token), f without gradient (Switch
// Transformers, arXiv 2101.03961, for top_k experts). `loss_scale`: of one token's loss.
void RouteBackward(const RouterOptions& options, const Routing& routing,
                   MatrixView<const float> d_weights, float loss_scale, MatrixView<float> d_logits);

}  // namespace fp4lab
