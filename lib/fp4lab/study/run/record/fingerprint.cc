#include "fp4lab/study/run/record/fingerprint.h"

#include <map>
#include <mutex>

#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/trainer.h"
#include "fp4lab/train/world.h"

namespace fp4lab::study {
namespace {

constexpr std::int64_t kSteps = 4;  // enough for a recipe with a change ("then") to change

// Applies the recipe to all linears, whatever the depth of the model.
void SelectAll(Recipe* recipe) {
  recipe->layers = "all";
  recipe->first_blocks_bf16 = recipe->last_blocks_bf16 = 0;
  recipe->first_percent_bf16 = recipe->last_percent_bf16 = 0.0;
  recipe->include.clear();
  recipe->exclude.clear();
  for (RecipeChange& change : recipe->then) SelectAll(&change.recipe);
}

// The configuration of the short run. The dimensions of the linears' GEMMs (width, FFN, tokens) are
// multiples of 128, the largest block and transform of recipes.
TrainConfig Short(const TrainConfig& config) {
  TrainConfig c;
  c.device = config.device;
  c.model = {.layers = 2, .d_model = 128, .heads = 4, .ffn = 256, .sequence = 64};
  c.model.activation = config.model.activation;
  c.model.tied_head = config.model.tied_head;
  c.recipe = config.recipe;
  SelectAll(&c.recipe);
  c.data.source = "synthetic";
  c.data.synthetic_bytes = 20'000;
  c.evaluation = {.tokens = 128, .chunk_tokens = 128};
  c.seed = 1;
  c.batch = 2;
  c.micro_batches = 1;
  c.tokens = kSteps * c.batch * c.model.sequence;
  return c;
}

std::string Measure(const TrainConfig& config, const std::string& where, int local) {
  const Corpus corpus = LoadCorpus(config.data);
  Trainer trainer(config, corpus, where, World{.local = local});
  std::vector<double> losses;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    trainer.UseRecipeOf(step, kSteps);
    losses.push_back(trainer.Step(1e-3).loss);
  }
  losses.push_back(trainer.Evaluate(EvaluationPrecision::kTraining).loss);
  losses.push_back(trainer.Evaluate(EvaluationPrecision::kHigh).loss);
  const std::vector<float> numbers = ReadCheckpoint(trainer.SaveState(), where).payload;
  Sha256Stream hash;
  hash.Add(std::as_bytes(std::span(losses)));
  hash.Add(std::as_bytes(std::span(numbers)));
  return hash.Hex();
}

// Of a list: the hash of its recipes' fingerprints, in order, "rest" last. Each is measured in all
// linears, so that none depends on the depth and the parts of the model.
std::string OfList(const TrainConfig& config, const std::string& where, int local) {
  Sha256Stream hash;
  const auto add = [&](const Recipe& recipe) {
    TrainConfig one = config;
    one.recipe = recipe;
    const std::string fingerprint = NumericsFingerprint(one, where, local);
    hash.Add(std::as_bytes(std::span(fingerprint)));
  };
  for (const RecipeRule& rule : config.recipe.rules) add(rule.recipe);
  add(RestOf(config.recipe));
  return hash.Hex();
}

}  // namespace

std::string NumericsFingerprint(const TrainConfig& config, const std::string& where, int local) {
  const IeeeArithmetic ieee;
  if (!config.recipe.rules.empty()) return OfList(config, where, local);
  static std::mutex mutex;
  static std::map<std::string, std::string> measured;
  const TrainConfig run = Short(config);
  const std::string key = ToJson(run).dump();
  const std::lock_guard lock(mutex);
  const auto found = measured.find(key);
  if (found != measured.end()) return found->second;
  return measured[key] = Measure(run, where, local);
}

}  // namespace fp4lab::study
