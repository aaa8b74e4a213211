// Attention of one or several heads: the operands that a scheme makes, the exact answer, and the
// answers that a kernel may give.
//
// The operands are exact: what a scheme's quantizers return. From them a device computes logits,
// weights and sums in binary32. Every answer between `low` and `high` of AttentionRange is allowed:
//
// logits: a sum of D products (and the mean's part) in any order, as the any-order bound of
//   products/gemm.h, then factors with a relative error of 2^-22 of each logit and of the largest.
// weights: p = top exp(y - m), relative error 2^-19 beyond that of y and m (ex2.approx errs by
//   2^-22), and results below 2^-126 may be zero. P is any code that a weight within its error
//   rounds to, under any scale that its block's weights lead to (softmax_weights.h): a code beside
//   a tie is free, all others are not.
// sums: of P V and of p in any order in binary32; a tile adds a relative error of 2^-19 to all
//   before it. The ends of P V and of the sum of p are divided, and rounded to the output, RNE.
//
// A row whose logits have a NaN or +infinity is NaN, and so is a channel that a NaN or infinity of
// V reaches. A row without a visible key is 0. With a causal mask, query i of M sees the keys up to
// i + N - M of N.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/judge/attention/attention_scheme.h"
#include "fp4lab/judge/attention/softmax_weights.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/tensor/mma/mma_operand.h"
#include "fp4lab/tensor/tensor_core_gemm.h"

namespace fp4lab {

// The task of an attention kernel. Heads of Q share heads of K and V: head h of Q takes head
// h / (heads / kv_heads). Batches are more heads.
struct AttentionInputs {
  std::size_t heads = 1, kv_heads = 1;
  Matrix<float> q = {};  // (heads * queries, D), BF16 numbers or rounded to them
  Matrix<float> k = {};  // (kv_heads * keys, D)
  Matrix<float> v = {};  // (kv_heads * keys, D)
  double scale = 0.0;    // of the logits; 0: 1 / sqrt(D)
  bool causal = false;
  GemmOutput output = GemmOutput::kBf16;

  std::size_t Queries() const { return q.rows / heads; }
  std::size_t Keys() const { return k.rows / kv_heads; }
};

// Throws Error(where, ...) for shapes that do not fit each other or the scheme's blocks.
void CheckAttention(const AttentionInputs& in, const AttentionScheme& scheme,
                    std::string_view where);

// One operand of one head: codes and scales, and the factor of a row that no code holds.
struct AttentionOperand {
  MmaOperand codes = {};            // (rows, D); V along keys: (D, keys)
  std::vector<double> decode = {};  // of each row of codes; empty: 1
  bool decoded_to_bf16 = false;     // the kernel multiplies decoded values, rounded to BF16
};
// The values that are multiplied, of the shape of the codes; decode is left out unless values are
// decoded, as it belongs to the logits or the result.
Matrix<double> ValuesOf(const AttentionOperand& x);

// How a kernel keeps the sums of P V.
enum class WeightedSums : std::uint8_t { kFp32, kBf16, kFp16 };

// A kernel as a plan. A wrong kernel is a changed plan.
struct AttentionPlan {
  AttentionScheme scheme = {};
  AttentionInputs in = {};                               // as given: Q, K and V before quantization
  std::vector<AttentionOperand> q = {}, k = {}, v = {};  // a head each
  bool operands_given = false;  // they are not made of `in`, which has shapes alone
  // The mean's part of the logits, (groups of q_mean_rows, keys) a head; empty: none.
  std::vector<Matrix<double>> correction = {};
  std::vector<std::size_t> kv_of = {};  // of each head of Q
  double scale = 1.0;
  bool causal = false;
  std::ptrdiff_t diagonal = 0;  // query i sees keys up to i + diagonal
  GemmOutput output = GemmOutput::kBf16;
  std::size_t keys = 0;         // that the kernel reads
  std::size_t padded_keys = 0;  // zeros behind them that it counts
  // The deviations of wrong kernels.
  double exponent_factor = 1.0;  // exp(factor * (y - m))
  bool subtracts_max = true;
  bool rescales = true, rescales_sum = true;
  bool rounds_weights = true;
  bool weights_along_queries = false;  // blocks of P are 16 queries of a key
  bool sums_rounded_weights = false;
  bool normalizes = true;
  double result_factor = 1.0;
  bool empty_row_is_nan = false;
  bool truncates_output = false;
  WeightedSums sums = WeightedSums::kFp32;
};
// The right kernel of a scheme. The inputs must pass CheckAttention.
AttentionPlan PlanOf(const AttentionInputs& in, const AttentionScheme& scheme);

// The answers of a plan, (heads * queries, D). Where `exact` is NaN, NaN is the only answer.
struct AttentionRange {
  Matrix<float> answer;     // exact rounded to the output
  Matrix<float> low, high;  // numbers of the output's type
  Matrix<double> exact;     // in binary64
  bool Allows(std::size_t i, float got) const {
    const float x = answer.values[i];
    return x != x ? got != got : low.values[i] <= got && got <= high.values[i];
  }
};
// The same bits for any number of threads.
AttentionRange EvaluateAttention(const AttentionPlan& plan);
bool AllAllowed(const AttentionRange& range, MatrixView<const float> o);

struct AttentionElement {
  std::size_t head = 0, query = 0, channel = 0;
  float got = 0, want = 0, low = 0, high = 0;
  double exact = 0;
};
struct AttentionJudgement {
  std::size_t different = 0;       // elements that are not `exact` rounded
  std::size_t outside = 0;         // elements that are not allowed
  std::vector<std::size_t> heads;  // with one
  Rectangle outside_in = {};       // queries and channels of all heads with one
  AttentionElement first = {};     // outside, else different
  double largest_distance = 0;     // |got - exact| / (high - low), at most 1 inside
};
// o: (heads * queries, D).
AttentionJudgement JudgeAttention(const AttentionRange& range, std::size_t heads,
                                  MatrixView<const float> o);

}  // namespace fp4lab
