#include "fp4lab/train/model/memory.h"

#include <algorithm>
#include <cstdio>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/parts/parts.h"
#include "fp4lab/train/start/teacher.h"

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
  double gains = 0.0;
  for (const Part* part : PartsOf(c)) {
    for (const LinearShape& linear : part->linears(c)) {
      const double size = static_cast<double>(linear.in) * static_cast<double>(linear.out);
      sizes.blocks += size * c.layers;
      sizes.largest = std::max(sizes.largest, size);
    }
    for (const GainShape& gain : part->gains(c)) gains += static_cast<double>(gain.size);
    if (part->balance != nullptr) gains += static_cast<double>(part->balance(c));
  }
  sizes.parameters = sizes.blocks + (c.tied_head ? 1 : 2) * head + gains * c.layers + d;
  return sizes;
}

// The floats that Model::SetRows lays out for each token of a micro-batch.
double FloatsPerToken(const ModelConfig& c) {
  const double d = c.d_model;
  const auto sum = [](const std::vector<std::size_t>& columns) {
    double all = 0.0;
    for (const std::size_t n : columns) all += static_cast<double>(n);
    return all;
  };
  double block = 0.0, wide = c.vocabulary;  // wide: the logits, or the largest gradients of a part
  for (const Part* part : PartsOf(c)) {
    block += d + sum(part->activations(c));
    wide = std::max(wide, sum(part->gradients(c)));
  }
  return block * c.layers + 4 * d + 1 + wide;
}

// Bytes of the weights' operands. FP4 weights are kept as integers of a byte and a scale every 16
// or 32, once for each GEMM that needs its own operand; other operands are made for each use.
double OperandBytes(const TrainConfig& config, const Sizes& sizes) {
  const Recipe& recipe = config.recipe;
  const auto integers = [](const GemmRecipe& gemm) {
    return gemm.a.format && gemm.b.format && gemm.b.format->element == FormatId::kE2M1;
  };
  const auto kept = [&](const LinearRecipe& linear) {
    const bool two = integers(linear.dgrad) && !(linear.dgrad.b == linear.fprop.b);
    return (integers(linear.fprop) ? 1.0 : 0.0) + (two ? 1.0 : 0.0);
  };
  double elements = kept(recipe.linear) * sizes.blocks;
  if (!recipe.rules.empty()) {
    elements = 0.0;
    const auto add = [&](const Recipe& state) {
      const LinearPlan plan(config.model, state);
      double all = 0.0;
      for (std::size_t linear = 0; linear < plan.Head(); ++linear) {
        all += kept(plan.RecipeOf({}, linear)) * static_cast<double>(plan.Weight(linear).size());
      }
      elements = std::max(elements, all);
    };
    add(recipe);
    for (const RecipeChange& change : recipe.then) add(change.recipe);
  }
  return elements * 1.125 + (recipe.rest.bf16 ? sizes.largest * kFloat : 0.0);
}

// Bytes of the buffers of side terms (nn/side/side_term.h), which all linears share: what is left
// of a tensor, once for each operand of wgrad that is split, BF16 copies of the tensors that the
// terms multiply, and, for hot channels, their columns and products.
double SideBytes(const TrainConfig& config, double tokens) {
  if (!SideTermPlace(config.recipe)) return 0.0;
  double rest_a = 0.0, rest_b = 0.0, side_a = 0.0, side_b = 0.0, other = 0.0, product = 0.0;
  const auto take = [](double* most, double floats) { *most = std::max(*most, floats); };
  const auto add = [&](const OperandRecipe& operand, double channels, double others,
                       bool along_channels, double* rest, double* side) {
    if (!operand.side) return;
    const auto hot =
        static_cast<double>(HotChannelCount(operand.side, static_cast<std::size_t>(channels)));
    take(rest, tokens * channels);
    take(side, tokens * hot);
    if (along_channels) {
      take(&other, others * (hot > 0.0 ? hot : channels));
    } else {
      take(&other, tokens * others);
      take(&product, hot * others);
    }
  };
  const auto add_state = [&](const Recipe& state) {
    const LinearPlan plan(config.model, state);
    for (std::size_t l = 0; l < plan.Head(); ++l) {
      const LinearRecipe& linear = plan.RecipeOf({}, l);
      const auto out = static_cast<double>(plan.Weight(l).rows);
      const auto in = static_cast<double>(plan.Weight(l).cols);
      add(linear.fprop.a, in, out, true, &rest_a, &side_a);
      add(linear.dgrad.a, out, in, true, &rest_a, &side_a);
      add(linear.wgrad.a, out, in, false, &rest_a, &side_a);
      add(linear.wgrad.b, in, out, false, &rest_b, &side_b);
    }
  };
  add_state(config.recipe);
  for (const RecipeChange& change : config.recipe.then) add_state(change.recipe);
  return kFloat * (rest_a + rest_b + side_a + side_b + other + product);
}

// Bytes of the buffers of windows of scales: the largest operand in binary32 before it becomes
// integers, and the bands in which a product adds its windows (nn/linear_operand.cc).
double WindowBytes(const TrainConfig& config, double tokens) {
  if (!ScaleWindowPlace(config.recipe)) return 0.0;
  constexpr double kBands = 2 * (1 << 18);
  double largest = 0.0;
  const auto add_state = [&](const Recipe& state) {
    const LinearPlan plan(config.model, state);
    for (std::size_t l = 0; l < plan.Head(); ++l) {
      const LinearRecipe& linear = plan.RecipeOf({}, l);
      const auto out = static_cast<double>(plan.Weight(l).rows);
      const auto in = static_cast<double>(plan.Weight(l).cols);
      const double sizes[] = {tokens * in, out * in,     tokens * out,
                              out * in,    tokens * out, tokens * in};
      std::size_t i = 0;
      for (const OperandRecipe* operand : OperandsOf(linear)) {
        if (operand->scale_window > 0) largest = std::max(largest, sizes[i]);
        ++i;
      }
    }
  };
  add_state(config.recipe);
  for (const RecipeChange& change : config.recipe.then) add_state(change.recipe);
  return kFloat * (largest + kBands);
}

double StatesOf(const TrainConfig& c) {
  return static_cast<double>(OptimizerOf(c.optimizer).states);
}

std::string Gibibytes(double bytes) {
  char text[64];
  std::snprintf(text, sizeof text, bytes < 0x1p37 ? "%.2f GiB" : "%.0f GiB", bytes / 0x1p30);
  return text;
}

// Bytes that a run's teacher needs on the CPU: weights, activations of kTeacherTokens, and the
// logits of a micro-batch.
double TeacherBytes(const TrainConfig& c) {
  if (!c.teacher.Asked()) return 0.0;
  const TrainConfig teacher = TeacherRun(c);
  const MemoryNeed need = EstimateMemory(teacher);
  const double tokens = static_cast<double>(TokensPerStep(c)) / c.micro_batches;
  return 4.0 * static_cast<double>(ParameterCount(teacher.model)) + need.operands +
         need.activations + tokens * (4.0 * c.model.vocabulary + 8.0);
}

}  // namespace

MemoryNeed EstimateMemory(const TrainConfig& c) {
  const IeeeArithmetic ieee;
  const Sizes sizes = SizesOf(c.model);
  const auto step = static_cast<double>(TokensPerStep(c));
  const double tokens = step / c.micro_batches;
  return {.weights = (2 + StatesOf(c)) * kFloat * sizes.parameters,
          .operands = OperandBytes(c, sizes),
          .activations = kFloat * tokens * FloatsPerToken(c.model) + 4 * step +
                         SideBytes(c, tokens) + WindowBytes(c, tokens),
          .teacher = TeacherBytes(c)};
}

void CheckMemory(const TrainConfig& config, const std::string& where, int runs, double states) {
  const IeeeArithmetic ieee;
  if (config.device != Device::kCpu) return;
  const MemoryNeed need = EstimateMemory(config);
  const double kept = 1 + StatesOf(config);  // gradients are not part of a checkpoint
  const double state = kept * need.weights / (kept + 1) * states;
  const double all = runs * (need.Total() + state);
  const MemoryRoom room = AvailableMemory();
  if (all <= static_cast<double>(room.bytes)) return;
  const bool by_batch = need.activations > need.weights + need.operands + state;
  const Json empty = Json::object();
  const std::string count =
      runs > 1 ? std::to_string(runs) + " runs at a time need" : "a run needs";
  const std::string parts = "weights and moments " + Gibibytes(runs * need.weights) +
                            ", activations " + Gibibytes(runs * need.activations) + ", the rest " +
                            Gibibytes(runs * (need.operands + need.teacher + state));
  throw Error(JsonObject(empty, where).Where(by_batch ? "batch" : "model"),
              count + " about " + Gibibytes(all) + " of memory (" + parts + "), and " + room.of +
                  " has " + Gibibytes(static_cast<double>(room.bytes)) + " left; " +
                  (runs > 1 ? "fewer --jobs, " : "") +
                  (by_batch ? "more micro_batches, a smaller batch or a shorter sequence"
                            : "fewer layers, a smaller d_model, ffn or vocabulary") +
                  " would need less");
}

}  // namespace fp4lab
