// Lists of recipes: how they read, which linear has which recipe, what is refused, and that a list
// of one rule trains with the bits of its recipe alone.
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/recipe/recipe_inheritance.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/product_widths.h"
#include "fp4lab/train/model/recipe_plan.h"
#include "fp4lab/train/observe/what_if.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Recipe Read(const Json& json) { return ReadRecipe(json, "run.json#/recipe"); }

Json List(const Json& rules, const Json& rest = "bf16") {
  return {{"rules", rules}, {"rest", rest}};
}

Json RunJson(const Json& recipe, const std::vector<std::string>& parts = {"attention", "mlp"}) {
  Json model = {{"layers", 4}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 32}};
  model["parts"] = parts;
  if (parts.back() == "moe") model["moe"] = {{"experts", 2}, {"top_k", 1}};
  return {{"model", model},
          {"schedule", {{"learning_rate", 5e-3}, {"warmup_steps", 3}}},
          {"data", {{"source", "synthetic"}, {"synthetic_bytes", 60'000}}},
          {"recipe", recipe},
          {"batch", 2},
          {"tokens", 64 * 10},
          {"seed", 5}};
}

TrainConfig Config(const Json& recipe,
                   const std::vector<std::string>& parts = {"attention", "mlp"}) {
  return ReadTrainConfig(RunJson(recipe, parts), "run.json");
}

std::string ErrorIn(const Json& recipe,
                    const std::vector<std::string>& parts = {"attention", "mlp"}) {
  return ErrorOf([&] { Config(recipe, parts); });
}

const Corpus& Text() {
  static const Corpus corpus = LoadCorpus(Config("bf16").data);
  return corpus;
}

// Losses and the last numbers of a run of ten steps; the state is written and read at step `at`.
struct Trained {
  std::vector<double> losses;
  std::vector<float> numbers;
  double high = 0.0;
};
Trained Train(const TrainConfig& config, std::int64_t at = -1, int threads = 2) {
  const ThreadsScope scope(threads);
  Trainer trainer(config, Text());
  Trained result;
  while (trainer.Steps() < TotalSteps(config)) {
    if (trainer.Steps() == at) {
      Trainer other(config, Text());
      other.LoadState(trainer.SaveState(), "state");
      trainer = std::move(other);
    }
    result.losses.push_back(trainer.StepOf(TotalSteps(config)).loss);
  }
  result.numbers = trainer.Numbers();
  result.high = trainer.Evaluate(EvaluationPrecision::kHigh).loss;
  return result;
}

const Json kMixed = List({{{"linears", "*.mlp.*"}, {"recipe", "te_nvfp4"}},
                          {{"linears", {"*.attention.*"}}, {"recipe", "te_mxfp8"}}});

TEST_CASE("A list gives each linear the recipe of the first rule that is for it", "[train]") {
  const Recipe list = Read(List({{{"blocks", {{"first", 1}, {"last", "25%"}}}, {"recipe", "bf16"}},
                                 {{"linears", "*.mlp.*"}, {"recipe", "te_nvfp4"}}},
                                "te_mxfp8"));
  const LinearRecipe nvfp4 = Read("te_nvfp4").linear, mxfp8 = Read("te_mxfp8").linear;
  const auto of = [&](const char* name, int block) { return RecipeOf(list, name, block, 8); };
  CHECK(of("blocks.0.mlp.up", 0) == list.rest);
  CHECK(of("blocks.1.mlp.up", 1) == nvfp4);
  CHECK(of("blocks.5.mlp.down", 5) == nvfp4);
  CHECK(of("blocks.5.attention.qkv", 5) == mxfp8);
  CHECK(of("blocks.6.mlp.down", 6) == list.rest);
  CHECK(of("blocks.7.attention.qkv", 7) == list.rest);
  CHECK(list.base == "rules");
  CHECK(RestOf(list) == Read("te_mxfp8"));
}

TEST_CASE("A rule's recipe keeps its own choice of linears", "[train]") {
  const Json inner = {{"base", "te_nvfp4"}, {"last_blocks_bf16", 1}};
  const Recipe list = Read(List({{{"linears", "*.mlp.*"}, {"recipe", inner}}}, "te_mxfp8"));
  CHECK(RecipeOf(list, "blocks.2.mlp.up", 2, 4) == Read("te_nvfp4").linear);
  CHECK(RecipeOf(list, "blocks.3.mlp.up", 3, 4) == list.rest);
}

TEST_CASE("A list changes where a rule begins or ends, or its recipe changes", "[train]") {
  const Json changes = {{"base", "te_nvfp4"}, {"then", {{"at", 0.75}, {"recipe", "te_mxfp8"}}}};
  const Recipe list =
      Read(List({{{"linears", "*.up"}, {"steps", {{"to", 0.5}}}, {"recipe", "mxfp4"}},
                 {{"recipe", changes}}}));
  CHECK(FirstChange(list, 8) == 4);
  CHECK(LastChange(list, 8) == 6);
  const auto of = [&](const char* name, std::int64_t step) {
    return RecipeOf(RecipeAt(list, step, 8), name, 0, 1);
  };
  CHECK(of("blocks.0.mlp.up", 3) == Read("mxfp4").linear);
  CHECK(of("blocks.0.mlp.up", 4) == Read("te_nvfp4").linear);
  CHECK(of("blocks.0.mlp.down", 3) == Read("te_nvfp4").linear);
  CHECK(of("blocks.0.mlp.up", 5) == Read("te_nvfp4").linear);
  CHECK(of("blocks.0.mlp.up", 6) == Read("te_mxfp8").linear);
}

TEST_CASE("The resolved JSON of a list reads back as the same list", "[train]") {
  for (const Json& json : {kMixed,
                           List({{{"linears", {"*.up", "*.qkv"}},
                                  {"blocks", {{"first", "3%"}, {"last", 2}}},
                                  {"steps", {{"from", 0.25}, {"to", 0.5}}},
                                  {"recipe", {{"base", "te_nvfp4"}, {"disable_rht", true}}}}},
                                "te_mxfp8"),
                           Json("torchtitan_dsv3_16b_tail15")}) {
    const Recipe recipe = Read(json);
    CHECK(ReadRecipe(ToJson(recipe), "again") == recipe);
  }
}

TEST_CASE("A list of one rule trains with the bits of its recipe alone", "[train]") {
  for (const char* name : {"te_nvfp4", "te_mxfp8", "te_fp8_delayedscaling", "bf16"}) {
    CAPTURE(name);
    const Trained alone = Train(Config(name));
    for (const Json& list :
         {List({{{"recipe", name}}}),
          List({{{"recipe", "bf16"}, {"linears", "*.up"}, {"steps", {{"from", 0.99}}}}}, name)}) {
      const Trained other = Train(Config(list));
      CHECK(other.losses == alone.losses);
      CHECK(other.numbers == alone.numbers);
      CHECK(other.high == alone.high);
    }
  }
}

TEST_CASE("Two quantized recipes train in one model, with the same bits for any threads and resume",
          "[train]") {
  const Trained mixed = Train(Config(kMixed));
  CHECK(mixed.losses != Train(Config("te_nvfp4")).losses);
  CHECK(mixed.losses != Train(Config("te_mxfp8")).losses);
  for (const std::int64_t at : {0, 4, 9})
    CHECK(Train(Config(kMixed), at, 1).numbers == mixed.numbers);
  const Json timed = List(
      {{{"linears", "*.mlp.*"}, {"steps", {{"from", 0.3}, {"to", 0.6}}}, {"recipe", "te_nvfp4"}},
       {{"linears", "*.qkv"}, {"recipe", "te_fp8_delayedscaling"}}});
  const Trained whole = Train(Config(timed));
  for (const std::int64_t at : {2, 3, 5, 6, 8}) {
    CHECK(Train(Config(timed), at, 3).numbers == whole.numbers);
  }
  const Trained without = Train(Config(List(Json::array({timed["rules"][1]}))));
  CHECK(whole.losses[2] == without.losses[2]);
  CHECK(whole.losses[3] != without.losses[3]);
}

TEST_CASE("Experts, shared experts and attention each have their recipe", "[train]") {
  const std::vector<std::string> parts = {"attention", "moe"};
  const TrainConfig config = Config("torchtitan_dsv3_nvfp4_ffn_mxfp8_attention", parts);
  const LinearPlan plan(config.model, config.recipe);
  int experts = 0;
  for (std::size_t l = 0; l < plan.Head(); ++l) {
    CAPTURE(plan.Name(l));
    const bool attention = plan.Name(l).find(".attention.") != std::string::npos;
    if (plan.IsRouter(l)) continue;
    experts += attention ? 0 : 1;
    CHECK(plan.RecipeOf({}, l) == Read(attention ? "te_mxfp8" : "te_nvfp4").linear);
  }
  CHECK(experts == 16);
  CHECK(plan.RecipeOf({}, plan.Head()) == config.recipe.rest);
}

TEST_CASE("Each mistake in a list is refused at its JSON pointer", "[train]") {
  const std::string at = "run.json#/recipe/";
  const auto error = [&](const Json& rules, const Json& rest = "bf16") {
    return ErrorIn(List(rules, rest));
  };
  CHECK(error({{{"linears", "*.mpl.up"}, {"recipe", "te_nvfp4"}}}) ==
        at + "rules/0/linears: \"*.mpl.up\" matches no linear; did you mean \"*.mlp.up\"?");
  CHECK(error({{{"linears", {"*.up", "*.atention.qkv"}}, {"recipe", "te_nvfp4"}}}) ==
        at + "rules/0/linears/1: \"*.atention.qkv\" matches no linear; did you mean "
             "\"*.attention.qkv\"?");
  CHECK(error({{{"linears", "*.moe.*"}, {"recipe", "te_nvfp4"}}}) ==
        at + "rules/0: matches no linear of this model, whose parts are attention, mlp; leave the "
             "rule out");
  CHECK(error({{{"linears", "*.mlp.*"}, {"recipe", "te_nvfp4"}},
               {{"linears", "*.attention.*"}, {"recipe", "te_mxfp8"}},
               {{"linears", "*.up"}, {"recipe", "bf16"}}}) ==
        at + "rules/2: is never used: rules before it are for all of its linears and steps (0); "
             "put it before them, or leave it out");
  CHECK(error({{{"linears", "*.up"}, {"steps", {{"to", 0.5}}}, {"recipe", "te_nvfp4"}},
               {{"linears", "*.mlp.*"}, {"steps", {{"from", 0.5}}}, {"recipe", "te_nvfp4"}},
               {{"linears", "*.up"}, {"recipe", "bf16"}}}) ==
        at + "rules/2: is never used: rules before it are for all of its linears and steps (0, 1); "
             "put it before them, or leave it out");
  CHECK(error({{{"linears", "*.up"}, {"steps", {{"to", 0.5}}}, {"recipe", "te_nvfp4"}},
               {{"linears", "*.up"}, {"recipe", "bf16"}}}) == "no error");
  CHECK(error({{{"blocks", {{"first", 5}}}, {"recipe", "te_nvfp4"}}}) ==
        at + "rules/0/blocks/first: the model has 4 blocks");
  CHECK(error({{{"blocks", {{"first", 0}}}, {"recipe", "te_nvfp4"}}}) ==
        at + "rules/0/blocks: needs \"first\" or \"last\": a number of blocks above 0, or a share "
             "of them such as \"15%\"; without it a rule is for all");
  CHECK(error({{{"steps", {{"from", 0.5}, {"to", 0.5}}}, {"recipe", "te_nvfp4"}}}) ==
        at + "rules/0/steps: \"from\" and \"to\" are shares of the run, 0 <= from < to <= 1");
  CHECK(error({{{"recipe", "te_nvfp5"}}}) ==
        at + "rules/0/recipe: unknown recipe \"te_nvfp5\"; did you mean \"te_nvfp4\"?");
  CHECK(error({{{"linear", "*"}, {"recipe", "te_nvfp4"}}}) ==
        at + "rules/0/linear: unknown key; did you mean \"linears\"?");
  CHECK(error({{{"linears", "*"}}}) ==
        at + "rules/0/recipe: is missing: a recipe's name or object");
  CHECK(error(Json::array()) == at + "rules: must be a list of rules, one at least");
  CHECK(error({{{"recipe", kMixed}}}) ==
        at + "rules/0/recipe: is a list of recipes itself; write its rules into this list");
  CHECK(error({{{"recipe", "fp32"}}}) ==
        at + "rules/0/recipe: must have the \"training_dtype\" of \"rest\"");
  CHECK(error({{{"linears", "*.up"}, {"recipe", "bf16"}}},
              {{"base", "te_nvfp4"}, {"then", {{"at", 0.5}, {"recipe", "bf16"}}}}) ==
        at + "rest: changes during the run; write the change as a rule with \"steps\"");
  CHECK(ErrorIn({{"rules", {{{"recipe", "bf16"}}}}}) ==
        at + "rest: is missing: a recipe's name or object");
  CHECK(ErrorIn({{"rules", {{{"recipe", "bf16"}}}}, {"rest", "bf16"}, {"layers", "mlp"}}) ==
        at + "layers: unknown key; the keys here are: name, rest, rules");
  CHECK(ErrorIn({{"base", "torchtitan_dsv3_16b_tail15"}, {"layers", "mlp"}}) ==
        at + "base: \"torchtitan_dsv3_16b_tail15\" is a list of recipes, which has no other keys; "
             "write \"rules\" with the change");
}

TEST_CASE("Only the linears of a rule restrict the model's sizes", "[train]") {
  Json run = RunJson(List({{{"linears", "*.attention.*"}, {"recipe", "te_mxfp8"}},
                           {{"linears", "*.mlp.*"}, {"recipe", "te_nvfp4"}}}));
  run["model"]["ffn"] = 48;  // a multiple of NVFP4's 16, not of MXFP8's 32
  CHECK(ErrorOf([&] { ReadTrainConfig(run, "run.json"); }) == "no error");
  run["recipe"] = List({{{"linears", "*.mlp.*"}, {"recipe", "te_mxfp8"}}});
  CHECK(ErrorOf([&] { ReadTrainConfig(run, "run.json"); }) ==
        "run.json#/model/ffn: ffn 48 is not a multiple of the recipe's block of 32");
}

TEST_CASE("Widths of products and memory count each linear under its own recipe", "[train]") {
  const TrainConfig config = Config(kMixed);
  const ProductWidths widths = ProductWidthsOf(config.recipe, config.model);
  // Of a block: attention 32 * (96 + 32), MLP 2 * 32 * 64.
  CHECK(widths.at(8) == Approx(0.5));
  CHECK(widths.at(4) == Approx(0.5));
  // Small weights stay as operands: NVFP4's as codes with a scale per 16x16 block, one for both
  // GEMMs; BF16's as values, one for both; MXFP8's as values, one for each.
  const auto operands = [](TrainConfig c) {
    c.evaluation.diagnostics_every = 0;
    return EstimateMemory(c).operands;
  };
  const double part = 4096.0 * config.model.layers, codes = 1.0 + 4.0 / 256;
  const double head = 4.0 * config.model.vocabulary * config.model.d_model;
  CHECK(operands(Config("te_nvfp4")) == 2 * part * codes + head);
  CHECK(operands(Config("bf16")) == 2 * part * 4 + head);
  CHECK(operands(config) == part * 2 * 4 + part * codes + head);
  const Json timed = List({{{"steps", {{"from", 0.25}, {"to", 0.5}}}, {"recipe", "te_nvfp4"}},
                           {{"steps", {{"from", 0.5}}}, {"recipe", "te_mxfp8"}}});
  const ProductWidths over = ProductWidthsOf(Read(timed), config.model);
  CHECK(over.at(16) == Approx(0.25));
  CHECK(over.at(4) == Approx(0.25));
  CHECK(over.at(8) == Approx(0.5));
}

TEST_CASE("The plan of a run has every linear, block and step in one row", "[train]") {
  const auto lines = [](const Json& recipe, const std::vector<std::string>& parts) {
    const TrainConfig config = Config(recipe, parts);
    std::vector<std::string> text;
    for (const RecipePlanRow& r : RecipePlanOf(config.recipe, config.model)) {
      text.push_back(r.steps + " | " + r.blocks + " | " + r.linears + " | " + r.recipe + " | " +
                     r.rule);
    }
    return text;
  };
  using Lines = std::vector<std::string>;
  const std::vector<std::string> dense = {"attention", "mlp"};
  CHECK(lines("te_nvfp4", dense) == Lines{"all | all | all | te_nvfp4 | "});
  CHECK(lines({{"base", "te_nvfp4"}, {"last_blocks_bf16", 1}, {"disable_rht", true}}, dense) ==
        Lines{"all | 0-2 | all | te_nvfp4 (changed) | ", "all | 3 | all | bf16 | "});
  CHECK(lines(kMixed, dense) == Lines{"all | all | attention.qkv, attention.out | te_mxfp8 | 1",
                                      "all | all | mlp.up, mlp.down | te_nvfp4 | 0"});
  CHECK(
      lines(List({{{"blocks", {{"first", 1}, {"last", 1}}}, {"recipe", "bf16"}},
                  {{"linears", "*.experts.*"}, {"steps", {{"from", 0.5}}}, {"recipe", "te_nvfp4"}}},
                 "te_mxfp8"),
            {"attention", "moe"}) ==
      Lines{"all | 0, 3 | all | bf16 | 0", "0-0.5 | 1-2 | all | te_mxfp8 | rest",
            "0.5-1 | 1-2 | attention.qkv, attention.out | te_mxfp8 | rest",
            "0.5-1 | 1-2 | moe.experts.*.up, moe.experts.*.down | te_nvfp4 | 1"});
}

TEST_CASE("What operands of a list keep of their base is said at their rule", "[train]") {
  const Json changed = {{"base", "te_nvfp4"},
                        {"dgrad", {{"grad", {{"format", "mxfp8_e4m3.rceil"}}}}}};
  const std::vector<std::string> lines =
      InheritedParts(List({{{"recipe", "te_mxfp8"}}, {{"recipe", changed}}}), "s.json#/recipe");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("s.json#/recipe/rules/1/recipe/dgrad/grad: keeps stochastic"));
}

TEST_CASE("What-if takes an operand away from every rule", "[train]") {
  const Recipe list = Read(kMixed);
  const Recipe none = WithQuantized(list, 0);
  for (const LinearRecipe* linear : LinearRecipesOf(none)) CHECK(*linear == none.rest);
  CHECK(WithQuantized(list, 63) == list);
}

}  // namespace
}  // namespace fp4lab
