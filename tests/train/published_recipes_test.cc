// Every published recipe is read, written, read again and trained; every dialect trains.
#include "fp4lab/recipe/published_recipes.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"

namespace fp4lab {
namespace {

Recipe Read(const Json& json) { return ReadRecipe(json, "test"); }

TEST_CASE("Every published recipe reads, and its resolved JSON reads back as the same", "[train]") {
  std::set<std::string> names;
  CHECK(PublishedRecipes().size() > 100);
  for (const PublishedRecipe& row : PublishedRecipes()) {
    CAPTURE(row.name);
    CHECK(names.insert(row.name).second);
    CHECK_FALSE(row.title.empty());
    CHECK_FALSE(row.source.empty());
    const Recipe recipe = Read(row.name);
    CHECK(recipe.base == row.name);
    const Json json = ToJson(recipe);
    CHECK(ToJson(Read(json)) == json);
  }
}

TEST_CASE("Published rows that have a base recipe's name are that recipe", "[train]") {
  std::size_t shared = 0;
  for (const std::string& name : RecipeNames()) {
    const PublishedRecipe* row = FindPublishedRecipe(name);
    if (row == nullptr) continue;
    CAPTURE(name);
    ++shared;
    CHECK(Read(row->recipe).linear == Read(name).linear);
  }
  CHECK(shared >= 4);
}

TEST_CASE("An operand of a published recipe can be overridden", "[train]") {
  const Recipe recipe = Read({{"base", "quartet2"}, {"fprop", {{"input", {{"format", "none"}}}}}});
  CHECK_FALSE(recipe.linear.fprop.a.format.has_value());
  CHECK(recipe.linear.wgrad == Read("quartet2").linear.wgrad);
}

TrainConfig TinyConfig(int width, int sequences, int layers) {
  TrainConfig c;
  c.model.layers = layers;
  c.model.d_model = width;
  c.model.heads = 2;
  c.model.ffn = width;
  c.model.sequence = 32;
  c.batch = sequences;
  c.schedule.warmup_steps = 2;
  c.tokens = 1'000'000;
  c.evaluation.tokens = 64;
  return c;
}

const Corpus& TinyCorpus() {
  static const Corpus corpus = [] {
    DataConfig data;
    data.source = "synthetic";
    data.synthetic_bytes = 60'000;
    return LoadCorpus(data);
  }();
  return corpus;
}

// The loss of each step.
std::vector<double> Losses(TrainConfig config, const Recipe& recipe, int steps) {
  config.recipe = recipe;
  Trainer trainer(config, TinyCorpus());
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    trainer.UseRecipeOf(i, steps);
    const StepResult result = trainer.Step(2e-3);
    if (result.non_finite) {
      losses.push_back(NAN);
      break;
    }
    losses.push_back(result.loss);
  }
  return losses;
}

Recipe AllOperands(const Dialect& d) {
  const Json plain{{"format", d.name}};
  Json gradient = plain;
  if (d.rounding == ElementRounding::kNearestEven) gradient["rounding"] = "stochastic";
  return Read({{"base", "bf16"},
               {"fprop", {{"input", plain}, {"weight", plain}}},
               {"dgrad", {{"grad", gradient}, {"weight", plain}}},
               {"wgrad", {{"grad", gradient}, {"input", plain}}}});
}

TEST_CASE("Every dialect in all operands trains 30 steps", "[train]") {
  for (const Dialect& d : Dialects()) {
    if (d.block_cols > 32) continue;  // wider than this model: fp8_block recipes train with them
    CAPTURE(d.name);
    const std::vector<double> losses = Losses(TinyConfig(32, 2, 1), AllOperands(d), 30);
    REQUIRE(losses.size() == 30);
    for (const double loss : losses) CHECK(std::isfinite(loss));
    CHECK(losses.back() < losses.front());
  }
}

TEST_CASE("Every published recipe trains, with the same losses for any threads and SIMD target",
          "[train]") {
  const int threads = Threads();
  for (const PublishedRecipe& row : PublishedRecipes()) {
    CAPTURE(row.name);
    const Recipe recipe = Read(row.name);
    const int kept = recipe.first_blocks_bf16 + recipe.last_blocks_bf16;
    // A list of recipes is for parts that not every model has; its model has two blocks, so that
    // shares of blocks leave one.
    TrainConfig config = TinyConfig(128, 4, recipe.rules.empty() ? kept + 1 : 2);
    if (!recipe.rules.empty()) {
      config.model.parts = {"attention", "mlp", "moe"};
      config.model.moe.experts = 2;
      config.model.moe.top_k = 1;
    }
    SetThreads(1);
    const std::vector<double> one = Losses(config, recipe, 4);
    CHECK(one.size() == 4);
    for (const double loss : one) CHECK(std::isfinite(loss));
    SetThreads(3);
    CHECK(Losses(config, recipe, 4) == one);
    PinSimdTarget(SimdTargets().at(kLeastTargets - 1));  // the best but one, if there are two
    CHECK(Losses(config, recipe, 2) == std::vector<double>(one.begin(), one.begin() + 2));
    PinSimdTarget("best");
    const std::vector<double> more = Losses(config, recipe, 30);
    for (const double loss : more) CHECK(std::isfinite(loss));
    CHECK(more.back() < more.front());
  }
  SetThreads(threads);
}

TEST_CASE("A recipe that changes during the run does so at its share of the steps", "[train]") {
  const Recipe recipe = Read({{"base", "te_nvfp4"}, {"then", {{"at", 0.75}, {"recipe", "bf16"}}}});
  CHECK(LastChange(recipe, 8) == 6);
  CHECK(&RecipeAt(recipe, 5, 8) == &recipe);
  CHECK(&RecipeAt(recipe, 6, 8) == &recipe.then[0].recipe);
  const TrainConfig config = TinyConfig(32, 2, 1);
  const std::vector<double> changed = Losses(config, recipe, 8);
  const std::vector<double> quantized = Losses(config, Read("te_nvfp4"), 8);
  CHECK(std::vector<double>(changed.begin(), changed.begin() + 6) ==
        std::vector<double>(quantized.begin(), quantized.begin() + 6));
  CHECK(changed[6] != quantized[6]);
}

TEST_CASE("Blocks kept in BF16 may be a share of the model's, rounded up", "[train]") {
  const Recipe recipe = Read({{"base", "te_nvfp4"}, {"last_blocks_bf16", "15%"}});
  const auto quantized = [&](int block, int blocks) {
    return &RecipeOf(recipe, "blocks.0.mlp.up", block, blocks) == &recipe.linear;
  };
  CHECK(quantized(43, 52));  // 7.8 of 52: the last eight stay
  CHECK_FALSE(quantized(44, 52));
  CHECK(quantized(4, 6));
  CHECK_FALSE(quantized(5, 6));
}

TEST_CASE("What contradicts itself in a recipe is refused at its pointer", "[train]") {
  const auto error = [](const Json& json) -> std::string {
    try {
      ReadRecipe(json, "f#/r");
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  const auto format = [&](const Json& f) {
    return error({{"base", "bf16"}, {"fprop", {{"input", {{"format", f}}}}}});
  };
  const std::string at = "f#/r/fprop/input/format";
  CHECK(format({{"like", "nvfp5"}}).find(at + "/like: unknown format") == 0);
  CHECK(format({{"like", "nvfp4.te"}, {"block", {1, 20}}}).find(at + "/block: must be") == 0);
  CHECK(format({{"like", "nvfp4.te"}, {"block", {2, 16}}}).find(at + "/block: must be") == 0);
  CHECK(format({{"like", "nvfp4.te.2d"}, {"row_scaled", true}}).find(at + "/row_scaled: a block") ==
        0);
  CHECK(format({{"like", "mxfp4.even"}, {"target", 5}}).find(at + "/target: is for") == 0);
  CHECK(format({{"like", "mxfp4.even"}, {"unbias", "ms_eden"}}).find(at + "/unbias: MS-EDEN") == 0);
  CHECK(format({{"like", "mxfp4.even"}, {"adaptive", "mse"}}).find(at + "/adaptive: four over") ==
        0);
  CHECK(
      format({{"like", "nvfp4.te"}, {"factor", "power_of_two"}}).find(at + "/factor: the factor") ==
      0);
  CHECK(format({{"like", "nvfp4.te"}, {"prescale", 0}}).find(at + "/prescale: must be") == 0);
  for (const char* key : {"prescale", "target"}) {
    CHECK(format({{"like", "nvfp4.te"}, {key, 1e300}}).find(at + "/" + key + ": must be") == 0);
  }
  CHECK(format({{"like", "nvfp4.te"}, {"scale", "fp16"}}).find(at + "/scale: must be") == 0);
  CHECK(format({{"like", "nvfp4.te"}, {"scale", "e8m0"}, {"rule", "nvfp4"}}).find(at + "/scale:") ==
        0);
  const auto operand = [&](const Json& o) {
    return error({{"base", "te_nvfp4"}, {"dgrad", {{"grad", o}}}});
  };
  CHECK(operand({{"random_bits", 5}}).find("f#/r/dgrad/grad/random_bits: must be 4, 8") == 0);
  CHECK(operand({{"random", "dice"}}).find("f#/r/dgrad/grad/random: unknown generator") == 0);
  const std::string te =
      "the generator \"transformer_engine\" has 8 bits for an element "
      "(\"random_bits\": 8) and none for scales (\"unbias\")";
  CHECK(operand({{"random", "transformer_engine"}}) == "f#/r/dgrad/grad/random: " + te);
  for (const int bits : {4, 16, 32}) {
    CHECK(operand({{"random_bits", bits}, {"random", "transformer_engine"}}) ==
          "f#/r/dgrad/grad/random_bits: " + te);
  }
  CHECK(operand({{"format", {{"like", "nvfp4.te"}, {"unbias", "ms_eden"}}},
                 {"random_bits", 8},
                 {"random", "transformer_engine"}})
            .ends_with(te));
  CHECK(operand({{"random_bits", 8}, {"random", "transformer_engine"}}) == "none");
  CHECK(operand({{"from", "fprop"}}).find("f#/r/dgrad/grad/from: is for") == 0);
  CHECK(operand({{"hadamard", 12}}).find("f#/r/dgrad/grad/hadamard: must be 0, 2") == 0);
  CHECK(operand({{"hadamard", {{"size", 16}, {"signs", "odd"}}}})
            .find("f#/r/dgrad/grad/hadamard/signs: unknown signs") == 0);
  const Json signs{{"hadamard", {{"size", 16}, {"signs", "none"}}}};
  CHECK(error({{"base", "te_nvfp4"}, {"wgrad", {{"grad", signs}}}}).find("f#/r/wgrad: both") == 0);
  CHECK(error({{"base", "te_nvfp4"}, {"accumulation", {{"fprop", "abacus"}}}})
            .find("f#/r/accumulation/fprop: unknown accumulation") == 0);
  CHECK(error({{"base", "te_nvfp4"}, {"then", {{"at", 1.5}, {"recipe", "bf16"}}}})
            .find("f#/r/then/at: must be a share") == 0);
  CHECK(error({{"base", "te_nvfp4"}, {"then", {{"at", 0.5}, {"recipe", "fp32"}}}})
            .find("f#/r/then/recipe: must have the same") == 0);
  CHECK(error({{"base", "te_nvfp4"}, {"last_blocks_bf16", "some"}})
            .find("f#/r/last_blocks_bf16: must be a number of blocks") == 0);
}

}  // namespace
}  // namespace fp4lab
