#include "fp4lab/train/flops.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

// The forward pass computes one product per linear, the backward pass two.
constexpr double kFlopsPerProduct = 3.0 * 2.0;

// Half the square of a sequence without a window, as causal masks are counted; with a window, half
// the square of its first keys and a window for each query behind them.
double KeysSeen(const ModelConfig& model, int block) {
  const auto sequence = static_cast<double>(model.sequence);
  const std::size_t window = WindowOf(model, block);
  const double keys = window == 0 ? sequence : std::min(sequence, static_cast<double>(window));
  return 0.5 * keys * keys + (sequence - keys) * keys;
}

}  // namespace

double StepFlops(const TrainConfig& config) {
  const IeeeArithmetic ieee;
  const ModelConfig& model = config.model;
  double products = static_cast<double>(model.d_model) * model.vocabulary;  // per token
  double scores = 0.0;                                                      // per sequence
  for (const Part* part : PartsOf(model)) {
    const int blocks = BlocksWith(model, *part);
    for (const LinearShape& linear : part->linears(model)) {
      products += blocks * linear.share * static_cast<double>(linear.in * linear.out);
    }
    if (part->attention_columns == nullptr) continue;
    const auto columns = static_cast<double>(part->attention_columns(model));
    for (int block = 0; block < model.layers; ++block) {
      if (HasPart(model, block, *part)) scores += columns * KeysSeen(model, block);
    }
  }
  return kFlopsPerProduct *
         (products * static_cast<double>(TokensPerStep(config)) + scores * config.batch);
}

}  // namespace fp4lab
