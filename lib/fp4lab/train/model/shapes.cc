#include "fp4lab/train/model/shapes.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/attention/tensor_core_attention.h"
#include "fp4lab/train/model/outlier_fit.h"
#include "fp4lab/train/model/recipe_fit.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/parts/attention_widths.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

// Whether a block is the N-th, 2 N-th, ... of the model.
bool IsEvery(int n, int block) { return n > 0 && (block + 1) % n == 0; }

}  // namespace

std::size_t KvHeads(const ModelConfig& c) {
  return static_cast<std::size_t>(c.kv_heads > 0 ? c.kv_heads : c.heads);
}
std::size_t HeadDim(const ModelConfig& c) {
  return static_cast<std::size_t>(c.head_dim > 0 ? c.head_dim : c.d_model / c.heads);
}
std::size_t AttentionHeadDim(const ModelConfig& c) {
  if (std::count(c.parts.begin(), c.parts.end(), "mla") == 0) return HeadDim(c);
  const MlaWidths w(c);
  return std::max(w.Head(), w.value);
}
bool HasTensorCoreAttention(const ModelConfig& c) {
  const auto has = [&](const char* part) {
    return std::count(c.parts.begin(), c.parts.end(), part) > 0;
  };
  if (has("mla")) return TensorCoreHeadDim(AttentionHeadDim(c)) > 0;  // its heads are padded
  return !has("attention") || HasTensorCoreAttention(HeadDim(c));
}
std::size_t QueryWidth(const ModelConfig& c) {
  return static_cast<std::size_t>(c.heads) * HeadDim(c);
}
std::size_t KvWidth(const ModelConfig& c) { return KvHeads(c) * HeadDim(c); }

std::size_t WindowOf(const ModelConfig& c, int block) {
  return IsEvery(c.full_attention_every, block) ? 0 : static_cast<std::size_t>(c.window);
}
bool HasNoRope(const ModelConfig& c, int block) { return IsEvery(c.no_rope_every, block); }

double WidthRatio(const ModelConfig& c) {
  const IeeeArithmetic ieee;
  return c.mup.base_d_model > 0 ? 1.0 * c.d_model / c.mup.base_d_model : 1.0;
}

float LogitMultiplier(const ModelConfig& c) {
  const IeeeArithmetic ieee;
  return static_cast<float>(1.0 / WidthRatio(c));
}

float ScoreScale(const ModelConfig& c, std::size_t head_dim) {
  const IeeeArithmetic ieee;
  const auto size = static_cast<double>(head_dim);
  if (c.mup.base_d_model == 0 || c.mup.base_head_dim == size) return 0.0f;
  return static_cast<float>(std::sqrt(double{c.mup.base_head_dim}) / size);
}

std::span<const ParameterSlice> ParameterLayout::GainsOf(const PlacedPart& placed) const {
  const auto next = static_cast<std::size_t>(&placed - parts.data()) + 1;
  const std::size_t end = next < parts.size() ? parts[next].first_gain : gains.size();
  return std::span(gains).subspan(placed.first_gain, end - placed.first_gain);
}

ParameterLayout MakeLayout(const ModelConfig& c) {
  const IeeeArithmetic ieee;
  ParameterLayout layout;
  const auto add = [&](std::string name, std::size_t rows, std::size_t cols, ParameterRole role) {
    layout.slices.push_back({std::move(name), layout.total, rows, cols, role});
    layout.total += rows * cols;
    return layout.slices.back();
  };
  const auto d = static_cast<std::size_t>(c.d_model);
  const auto vocabulary = static_cast<std::size_t>(c.vocabulary);
  constexpr ParameterRole kEmbedding = ParameterRole::kEmbedding, kGain = ParameterRole::kGain;
  layout.embedding = add("embedding.weight", vocabulary, d, kEmbedding);
  layout.head = c.tied_head ? layout.embedding : add("head.weight", vocabulary, d, kEmbedding);
  const std::size_t embeddings = layout.total;
  const std::vector<const Part*> parts = PartsOf(c);
  for (int i = 0; i < c.layers; ++i) {
    for (const Part* part : PartsOfBlock(c, i)) {
      const auto index = std::find(parts.begin(), parts.end(), part) - parts.begin();
      layout.parts.push_back({part, i, static_cast<std::size_t>(index)});
    }
  }
  const auto name = [](const PlacedPart& placed, const std::string& of) {
    return "blocks." + std::to_string(placed.block) + "." + of;
  };
  for (PlacedPart& placed : layout.parts) {
    placed.first_linear = layout.block_linears.size();
    for (const LinearShape& linear : placed.part->linears(c)) {
      add(name(placed, linear.name + ".weight"), linear.out, linear.in,
          linear.router        ? ParameterRole::kRouter
          : linear.to_residual ? ParameterRole::kResidualMatrix
                               : ParameterRole::kMatrix);
      layout.slices.back().stacked = linear.stacked;
      layout.block_linears.push_back(layout.slices.back());
      layout.block_of_linear.push_back(placed.block);
    }
  }
  layout.matrices = layout.total;
  for (PlacedPart& placed : layout.parts) {
    placed.first_gain = layout.gains.size();
    for (const GainShape& gain : placed.part->gains(c)) {
      layout.gains.push_back(add(name(placed, gain.name), 1, gain.size, kGain));
    }
  }
  layout.final_gain = add("final_norm.gain", 1, d, kGain);
  layout.trained = layout.total;
  for (PlacedPart& placed : layout.parts) {
    const std::size_t size = placed.part->balance == nullptr ? 0 : placed.part->balance(c);
    if (size == 0) continue;
    placed.balance = layout.balances.size();
    layout.balances.push_back(add(name(placed, std::string(placed.part->name) + ".router.bias"), 1,
                                  size, ParameterRole::kBalance));
  }
  const auto ratio = static_cast<float>(WidthRatio(c));
  layout.groups = {{ParameterKind::kEmbeddings, 0, embeddings},
                   {.kind = ParameterKind::kMatrices,
                    .first = embeddings,
                    .size = layout.matrices - embeddings,
                    .rate = 1.0f / ratio,
                    .decay = ratio},
                   {ParameterKind::kGains, layout.matrices, layout.trained - layout.matrices}};
  if (!layout.balances.empty()) {
    layout.groups.push_back({ParameterKind::kBalance,
                             layout.trained,
                             layout.total - layout.trained,
                             {},
                             c.moe.bias_rate});
  }
  for (ParameterGroup& group : layout.groups) {
    for (const ParameterSlice& slice : layout.slices) {
      const bool inside = slice.offset >= group.first && slice.offset < group.first + group.size;
      if (inside) group.slices.push_back(slice);
    }
  }
  return layout;
}

std::int64_t ParameterCount(const ModelConfig& c) {
  return static_cast<std::int64_t>(MakeLayout(c).total);
}

std::int64_t BlockParameterCount(const ModelConfig& c) {
  std::int64_t count = 0;
  for (const Part* part : PartsOf(c)) {
    for (const LinearShape& linear : part->linears(c)) {
      count += static_cast<std::int64_t>(linear.in * linear.out) * BlocksWith(c, *part);
    }
  }
  return count;
}

void CheckDevice(const TrainConfig& c, const std::string& where,
                 const std::string& optimizer_where) {
  const IeeeArithmetic ieee;
  if (c.device != Device::kCuda) return;
  const Json empty = Json::object();
  const std::string cpu = "\"; the CPU does (\"device\": \"cpu\" or --device cpu)";
  if (!OptimizerOf(c.optimizer).on_gpu) {
    throw Error(JsonObject(empty, optimizer_where).Where("optimizer") + "/name",
                "the GPU does not train with the optimizer \"" + c.optimizer.name + cpu);
  }
  const std::string model = JsonObject(empty, where).Where("model");
  for (const Part* part : PartsOf(c.model, model)) {
    if (part->on_gpu) continue;
    throw Error(model + "/parts",
                "the GPU does not train the part \"" + std::string(part->name) + cpu);
  }
}

void CheckShapes(const TrainConfig& c, const std::string& where) {
  const Json empty = Json::object();
  CheckShapes(c, where, JsonObject(empty, where).Where("recipe"));
}

void CheckShapes(const TrainConfig& c, const std::string& where, const std::string& recipe_where) {
  const Json empty = Json::object();
  const JsonObject root(empty, where);
  const std::string model = root.Where("model");
  OptimizerNamed(c.optimizer.name, root.Where("optimizer") + "/name");
  const std::vector<const Part*> parts = PartsOf(c.model, model);
  for (const Part* part : parts) {
    if (part->check != nullptr) part->check(c.model, model);
  }
  CheckOutliers(c.model, model);
  if (c.model.mup.base_d_model > 0 && c.optimizer.name != OptimizerConfig().name) {
    throw Error(model + "/mup", "its rates are those of \"" + OptimizerConfig().name +
                                    "\"; the optimizer \"" + c.optimizer.name + "\" has none");
  }
  if (c.optimizer.loss_scaling.kind == LossScalingKind::kDynamic &&
      AmaxHistoryFloats(c.recipe) > 0) {
    throw Error(root.Where("optimizer") + "/loss_scaling/kind",
                "\"dynamic\" skips steps, whose amaxes delayed scaling would keep; use \"static\"");
  }
  for (const auto& [key, value] :
       {std::pair{"batch", c.batch}, {"micro_batches", c.micro_batches}}) {
    if (value < 1) throw Error(root.Where(key), "must be at least 1");
  }
  if (TokensPerStep(c) > kMostTokensPerStep) {
    throw Error(root.Where("batch"), "a step of " + std::to_string(TokensPerStep(c)) +
                                         " tokens is too large; at most " +
                                         std::to_string(kMostTokensPerStep));
  }
  if (c.batch % c.micro_batches != 0) {
    throw Error(
        root.Where("micro_batches"),
        std::to_string(c.micro_batches) + " do not divide the batch of " + std::to_string(c.batch));
  }
  CheckRecipeFits(c, where, recipe_where);
  if (TotalSteps(c) < 1) {
    throw Error(root.Where("tokens"), std::to_string(c.tokens) + " are fewer than the " +
                                          std::to_string(TokensPerStep(c)) + " of one step");
  }
  if (c.model.outliers.step >= TotalSteps(c)) {
    throw Error(model + "/outliers/step",
                "is " + std::to_string(c.model.outliers.step) + ", and the run ends after " +
                    std::to_string(TotalSteps(c)) + " steps; name an earlier step");
  }
  if (TotalSteps(c) > kMostSteps) {
    throw Error(root.Where("tokens"), std::to_string(c.tokens) + " are " +
                                          std::to_string(TotalSteps(c)) + " steps; at most " +
                                          std::to_string(kMostSteps));
  }
}

}  // namespace fp4lab
