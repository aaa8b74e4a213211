#include "fp4lab/train/parts/parts.h"

#include <string>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::string ErrorOfParts(const Json& parts) {
  return ErrorOf([&] { ReadTrainConfig({{"model", {{"parts", parts}}}}, "run.json"); });
}

TEST_CASE("A configuration without parts has attention and MLP and is written as before",
          "[train]") {
  const ModelConfig model = ReadModelConfig(Json::object(), "run.json#/model");
  CHECK(model.parts == std::vector<std::string>{"attention", "mlp"});
  CHECK(ToJson(model).count("parts") == 0);
  const Json mlp = {{"parts", {"mlp"}}};
  CHECK(ToJson(ReadModelConfig(mlp, "run.json#/model"))["parts"] == mlp["parts"]);
}

TEST_CASE("Parts that are unknown, stand twice or are none are refused at their place", "[train]") {
  CHECK(ErrorOfParts({"attention", "mpl"}) ==
        "run.json#/model/parts/1: unknown part \"mpl\"; did you mean \"mlp\"?");
  CHECK(ErrorOfParts({"mlp", "mlp"}) ==
        "run.json#/model/parts/1: \"mlp\" stands twice; a part stands once in a block");
  CHECK(ErrorOfParts(Json::array()) == "run.json#/model/parts: a block has at least one part");
  CHECK(ErrorOfParts("mlp") == "run.json#/model/parts: must be a list of names");
  CHECK(ErrorOfParts({1}) == "run.json#/model/parts/0: must be a name");
}

TEST_CASE("Only the parts of a model restrict its sizes", "[train]") {
  Json json = {{"model", {{"heads", 3}}}};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }).find("run.json#/model/heads: ") == 0);
  json["model"]["parts"] = {"mlp"};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }) == "no error");
  json = {{"recipe", "te_nvfp4"}, {"model", {{"ffn", 24}}}};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }).find("run.json#/model/ffn: ") == 0);
  json["model"]["parts"] = {"attention"};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }) == "no error");
}

TEST_CASE("Layout and plan list the linears and gains of the parts, in their order", "[train]") {
  ModelConfig model;
  model.layers = 2;
  model.parts = {"mlp", "attention"};
  const ParameterLayout layout = MakeLayout(model);
  std::vector<std::string> names;
  for (const ParameterSlice& slice : layout.slices) names.push_back(slice.name);
  CHECK(names ==
        std::vector<std::string>{"embedding.weight", "head.weight", "blocks.0.mlp.up.weight",
                                 "blocks.0.mlp.down.weight", "blocks.0.attention.qkv.weight",
                                 "blocks.0.attention.out.weight", "blocks.1.mlp.up.weight",
                                 "blocks.1.mlp.down.weight", "blocks.1.attention.qkv.weight",
                                 "blocks.1.attention.out.weight", "blocks.0.mlp_norm.gain",
                                 "blocks.0.attention_norm.gain", "blocks.1.mlp_norm.gain",
                                 "blocks.1.attention_norm.gain", "final_norm.gain"});
  CHECK(layout.parts.size() == 4);
  CHECK(layout.GainsOf(layout.parts[3]).front().name == "blocks.1.attention_norm.gain");
  const LinearPlan plan(model, ReadRecipe(Json("bf16"), "test"));
  CHECK(plan.Count() == 9);
  CHECK(plan.Name(layout.parts[3].first_linear) == "blocks.1.attention.qkv");
}

TEST_CASE("A model of each part alone trains, and its memory is less than that of all", "[train]") {
  for (const Part* part : Parts()) {
    CAPTURE(part->name);
    const Json json = {{"model",
                        {{"layers", 2},
                         {"d_model", 64},
                         {"heads", 2},
                         {"ffn", 64},
                         {"sequence", 32},
                         {"parts", {part->name}}}},
                       {"recipe", "te_nvfp4"},
                       {"data", {{"source", "synthetic"}}},
                       {"batch", 4},
                       {"tokens", 128 * 20}};
    const TrainConfig config = ReadTrainConfig(json, "test");
    TrainConfig both = config;
    both.model.parts = ModelConfig().parts;
    CHECK(EstimateMemory(config).activations < EstimateMemory(both).activations);
    const Corpus corpus = LoadCorpus(config.data);
    Trainer trainer(config, corpus);
    const double first = trainer.Step(1e-2).loss;
    double last = first;
    for (int i = 0; i < 12; ++i) last = trainer.Step(1e-2).loss;
    CHECK(last < first - 0.2);
  }
}

}  // namespace
}  // namespace fp4lab
