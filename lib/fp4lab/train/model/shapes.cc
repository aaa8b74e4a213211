#include "fp4lab/train/model/shapes.h"

#include <algorithm>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

// The numbers of which the axes of a linear's matrices must be multiples.
struct Multiples {
  int in = 1, out = 1, tokens = 1;
};

void AddOperand(const OperandRecipe& operand, int* reduction, int* other) {
  if (operand.hadamard > 0) *reduction = std::lcm(*reduction, operand.hadamard);
  if (!operand.format || operand.format->block_cols == 0) return;
  *reduction = std::lcm(*reduction, operand.format->block_cols);
  *other = std::lcm(*other, operand.format->block_rows);
}

void AddLinear(const LinearRecipe& recipe, Multiples* all) {
  Multiples& m = *all;
  AddOperand(recipe.fprop.a, &m.in, &m.tokens);
  AddOperand(recipe.fprop.b, &m.in, &m.out);
  AddOperand(recipe.dgrad.a, &m.out, &m.tokens);
  AddOperand(recipe.dgrad.b, &m.out, &m.in);
  AddOperand(recipe.wgrad.a, &m.tokens, &m.out);
  AddOperand(recipe.wgrad.b, &m.tokens, &m.in);
}

// The multiples of all recipes that the run will have.
Multiples MultiplesOf(const Recipe& recipe) {
  Multiples m;
  AddLinear(recipe.linear, &m);
  for (const RecipeChange& change : recipe.then) AddLinear(change.recipe.linear, &m);
  return m;
}

void CheckMultiple(const std::string& where, std::string_view what, std::int64_t value,
                   int multiple) {
  if (value % multiple == 0) return;
  throw Error(where, std::string(what) + " " + std::to_string(value) +
                         " is not a multiple of the recipe's block of " + std::to_string(multiple));
}

// Throws Error for a pattern that matches no linear: it would silently select, or exclude, nothing.
void CheckPatterns(const std::vector<std::string>& patterns, const ModelConfig& m,
                   const std::string& where) {
  std::vector<std::string> names;
  std::string known;
  for (const Part* part : PartsOf(m)) {
    for (const LinearShape& linear : part->linears(m)) {
      if (linear.router) continue;
      known += (known.empty() ? "blocks.N." : ", blocks.N.") + linear.name;
      for (int i = 0; i < m.layers; ++i) {
        names.push_back("blocks." + std::to_string(i) + "." + linear.name);
      }
    }
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const auto holds = [&](const std::string& name) { return Matches(patterns[i], name); };
    if (std::any_of(names.begin(), names.end(), holds)) continue;
    throw Error(where + "/" + std::to_string(i),
                "\"" + patterns[i] + "\" matches no linear; there are " + known + ", N from 0 to " +
                    std::to_string(m.layers - 1));
  }
}

void CheckSelection(const Recipe& recipe, const ModelConfig& m, const std::string& where) {
  const std::string most = "more blocks in BF16 than the model's " + std::to_string(m.layers);
  for (const RecipeChange& change : recipe.then) {
    CheckSelection(change.recipe, m, where + "/then/recipe");
  }
  if (recipe.first_blocks_bf16 > m.layers) throw Error(where + "/first_blocks_bf16", most);
  if (recipe.last_blocks_bf16 > m.layers - recipe.first_blocks_bf16) {
    throw Error(
        where + "/last_blocks_bf16",
        most + (recipe.first_blocks_bf16 > 0
                    ? ", the first " + std::to_string(recipe.first_blocks_bf16) + " included"
                    : ""));
  }
  CheckPatterns(recipe.include, m, where + "/include");
  CheckPatterns(recipe.exclude, m, where + "/exclude");
}

// Whether a block is the N-th, 2 N-th, ... of the model.
bool IsEvery(int n, int block) { return n > 0 && (block + 1) % n == 0; }

}  // namespace

std::size_t KvHeads(const ModelConfig& c) {
  return static_cast<std::size_t>(c.kv_heads > 0 ? c.kv_heads : c.heads);
}
std::size_t HeadDim(const ModelConfig& c) {
  return static_cast<std::size_t>(c.head_dim > 0 ? c.head_dim : c.d_model / c.heads);
}
std::size_t QueryWidth(const ModelConfig& c) {
  return static_cast<std::size_t>(c.heads) * HeadDim(c);
}
std::size_t KvWidth(const ModelConfig& c) { return KvHeads(c) * HeadDim(c); }

std::size_t WindowOf(const ModelConfig& c, int block) {
  return IsEvery(c.full_attention_every, block) ? 0 : static_cast<std::size_t>(c.window);
}
bool HasNoRope(const ModelConfig& c, int block) { return IsEvery(c.no_rope_every, block); }

std::span<const ParameterSlice> ParameterLayout::GainsOf(const PlacedPart& placed) const {
  const auto next = static_cast<std::size_t>(&placed - parts.data()) + 1;
  const std::size_t end = next < parts.size() ? parts[next].first_gain : gains.size();
  return std::span(gains).subspan(placed.first_gain, end - placed.first_gain);
}

ParameterLayout MakeLayout(const ModelConfig& c) {
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
    for (std::size_t p = 0; p < parts.size(); ++p) layout.parts.push_back({parts[p], i, p});
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
  layout.groups = {{ParameterKind::kEmbeddings, 0, embeddings},
                   {ParameterKind::kMatrices, embeddings, layout.matrices - embeddings},
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
  std::size_t count = 0;
  for (const Part* part : PartsOf(c)) {
    for (const LinearShape& linear : part->linears(c)) count += linear.in * linear.out;
  }
  return static_cast<std::int64_t>(count) * c.layers;
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
  const Multiples m = MultiplesOf(c.recipe);
  CheckMultiple(model + "/d_model", "d_model", c.model.d_model, std::lcm(m.in, m.out));
  for (const Part* part : parts) {
    for (const PartWidth& w : part->widths(c.model)) {
      const int multiple =
          w.tokens ? m.tokens : std::lcm(w.reduces ? m.in : 1, w.remains ? m.out : 1);
      CheckMultiple(model + "/" + std::string(w.key), w.what, w.value, multiple);
    }
  }
  CheckMultiple(root.Where("batch"), "tokens in a micro-batch:", TokensPerStep(c) / c.micro_batches,
                m.tokens);
  CheckSelection(c.recipe, c.model, recipe_where);
  if (TotalSteps(c) < 1) {
    throw Error(root.Where("tokens"), std::to_string(c.tokens) + " are fewer than the " +
                                          std::to_string(TokensPerStep(c)) + " of one step");
  }
  if (TotalSteps(c) > kMostSteps) {
    throw Error(root.Where("tokens"), std::to_string(c.tokens) + " are " +
                                          std::to_string(TotalSteps(c)) + " steps; at most " +
                                          std::to_string(kMostSteps));
  }
}

}  // namespace fp4lab
