#include "fp4lab/train/memory.h"

#include <algorithm>
#include <cstdio>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/train/shapes.h"

namespace fp4lab {
namespace {

constexpr double kFloat = sizeof(float);

struct Sizes {
  // Elements of all parameters, of the matrices inside the blocks, and of the largest matrix.
  double parameters = 0.0, blocks = 0.0, largest = 0.0;
};

Sizes SizesOf(const ModelConfig& c) {
  const auto d = static_cast<double>(c.d_model), head = static_cast<double>(c.vocabulary) * d;
  Sizes sizes{.largest = head};
  for (const LinearShape& linear : BlockLinears(c)) {
    const double size = static_cast<double>(linear.in) * static_cast<double>(linear.out);
    sizes.blocks += size * c.layers;
    sizes.largest = std::max(sizes.largest, size);
  }
  sizes.parameters = sizes.blocks + (c.tied_head ? 1 : 2) * head + (2.0 * c.layers + 1) * d;
  return sizes;
}

// The floats that Model::SetRows lays out for each token of a micro-batch.
double FloatsPerToken(const ModelConfig& c) {
  const double d = c.d_model, f = c.ffn;
  const std::vector<LinearShape> linears = BlockLinears(c);
  const auto qkv = static_cast<double>(linears[kQkv].out),
             up = static_cast<double>(linears[kUp].out);
  const double block = 5 * d + qkv + up + f + 2 + 2.0 * c.heads;
  const double wide = c.activation == Activation::kSwiglu ? f + up : f;
  return block * c.layers + 4 * d + 1 + std::max({static_cast<double>(c.vocabulary), wide, qkv});
}

// Bytes of the weights' operands. FP4 weights are kept as integers of a byte and a scale every 16
// or 32, once for each GEMM that needs its own operand; other operands are made for each use.
double OperandBytes(const Recipe& recipe, const Sizes& sizes) {
  const auto integers = [](const GemmRecipe& gemm) {
    return gemm.a.format && gemm.b.format && gemm.b.format->element == FormatId::kE2M1;
  };
  const LinearRecipe& linear = recipe.linear;
  const bool two = integers(linear.dgrad) && !(linear.dgrad.b == linear.fprop.b);
  const double kept = (integers(linear.fprop) ? 1 : 0) + (two ? 1 : 0);
  return kept * sizes.blocks * 1.125 + (recipe.rest.bf16 ? sizes.largest * kFloat : 0.0);
}

std::string Gibibytes(double bytes) {
  char text[64];
  std::snprintf(text, sizeof text, bytes < 0x1p37 ? "%.2f GiB" : "%.0f GiB", bytes / 0x1p30);
  return text;
}

}  // namespace

MemoryNeed EstimateMemory(const TrainConfig& c) {
  const IeeeArithmetic ieee;
  const Sizes sizes = SizesOf(c.model);
  const auto step = static_cast<double>(TokensPerStep(c));
  const double tokens = step / c.micro_batches;
  return {.weights = 4 * kFloat * sizes.parameters,
          .operands = OperandBytes(c.recipe, sizes),
          .activations = kFloat * tokens * FloatsPerToken(c.model) + 4 * step};
}

void CheckMemory(const TrainConfig& config, const std::string& where, int runs, double states) {
  const IeeeArithmetic ieee;
  if (config.device != Device::kCpu) return;
  const MemoryNeed need = EstimateMemory(config);
  const double state = 3 * need.weights / 4 * states, all = runs * (need.Total() + state);
  const MemoryRoom room = AvailableMemory();
  if (all <= static_cast<double>(room.bytes)) return;
  const bool by_batch = need.activations > need.weights + need.operands + state;
  const Json empty = Json::object();
  const std::string count =
      runs > 1 ? std::to_string(runs) + " runs at a time need" : "a run needs";
  const std::string parts = "weights and moments " + Gibibytes(runs * need.weights) +
                            ", activations " + Gibibytes(runs * need.activations) + ", the rest " +
                            Gibibytes(runs * (need.operands + state));
  throw Error(JsonObject(empty, where).Where(by_batch ? "batch" : "model"),
              count + " about " + Gibibytes(all) + " of memory (" + parts + "), and " + room.of +
                  " has " + Gibibytes(static_cast<double>(room.bytes)) + " left; " +
                  (runs > 1 ? "fewer --jobs, " : "") +
                  (by_batch ? "more micro_batches, a smaller batch or a shorter sequence"
                            : "fewer layers, a smaller d_model, ffn or vocabulary") +
                  " would need less");
}

}  // namespace fp4lab
