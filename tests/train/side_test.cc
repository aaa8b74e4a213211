// Side terms of recipes: their keys, what runs under them do, and what knows them beside the run.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/recipe/recipe_inheritance.h"
#include "fp4lab/recipe/recipe_json.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/product_widths.h"
#include "fp4lab/train/observe/what_if.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/train/tiny_run.h"

namespace fp4lab {
namespace {

Recipe Read(const Json& json) { return ReadRecipe(json, "f#/r"); }

Json Hot(const char* term, const Json& channels) {
  return {{"term", term}, {"channels", channels}};
}

// `base` with side terms of the inputs and, unless null, of the gradients.
Json With(const char* base, const Json& inputs, const Json& gradients = nullptr) {
  Json json = {{"base", base}};
  json["fprop"]["input"]["side"] = json["wgrad"]["input"]["side"] = inputs;
  if (gradients.is_null()) return json;
  json["dgrad"]["grad"]["side"] = json["wgrad"]["grad"]["side"] = gradients;
  return json;
}

const std::vector<Json>& Recipes() {
  static const std::vector<Json> recipes = {
      With("te_nvfp4", "mean"),
      With("te_nvfp4", "mean", "mean"),
      With("te_nvfp4", Hot("columns", 2), Hot("columns", "5%")),
      With("te_nvfp4_no_rht", Hot("patch", 2), Hot("patch", 1)),
      With("te_mxfp8", Hot("patch", "3%"), "mean"),
      With("te_fp8_delayedscaling", "mean", Hot("columns", 1)),
      With("fp32", "mean")};
  return recipes;
}

TEST_CASE("Side terms read, are written where there is one, and read back", "[train]") {
  for (const Json& json : Recipes()) {
    CAPTURE(json.dump());
    const Recipe recipe = Read(json);
    CHECK(recipe.linear.fprop.a.side);
    CHECK(recipe.linear.wgrad.b.side == recipe.linear.fprop.a.side);
    CHECK(Read(ToJson(recipe)) == recipe);
  }
  CHECK(ToJson(Read("te_nvfp4")).dump().find("side") == std::string::npos);
  const Recipe hot = Read(With("te_nvfp4", Hot("columns", "2.5%")));
  CHECK(ToJson(hot)["fprop"]["input"]["side"] ==
        Json({{"term", "columns"}, {"channels", "2.5%"}, {"by", "amax"}}));
  CHECK(OperandText(ToJson(hot)["fprop"]["input"]) ==
        "nvfp4.te, 2.5% hot channels (amax) in high precision");
  CHECK(OperandText(ToJson(Read(With("te_nvfp4", "mean")))["wgrad"]["input"]) ==
        "nvfp4.te, H16, mean over tokens in high precision");
  Json norm = Hot("patch", 4);
  norm["by"] = "norm";
  const Json patched = ToJson(Read(With("te_nvfp4_no_rht", norm)));
  CHECK(OperandText(patched["fprop"]["input"]) ==
        "nvfp4.te, 4 hot channels (norm) with their residual in high precision");
  Json again = patched;
  again["fprop"]["input"]["side"] = "none";
  CHECK_FALSE(Read(again).linear.fprop.a.side);
}

TEST_CASE("Side terms that cannot be are refused at their pointer", "[train]") {
  const auto error = [](const Json& json) { return ErrorOf([&] { Read(json); }); };
  const auto input = [&](const Json& side) {
    Json json = {{"base", "te_nvfp4"}};
    json["fprop"]["input"]["side"] = side;
    return error(json);
  };
  const std::string at = "f#/r/fprop/input/side";
  CHECK(input("meen") == at + ": unknown side term \"meen\"; did you mean \"mean\"?");
  CHECK(input("columns") ==
        at + ": \"columns\" needs \"channels\": write {\"term\": \"columns\", \"channels\": 8}");
  CHECK(input({{"channels", 8}}).starts_with(at + ": needs the key \"term\""));
  CHECK(input(Hot("columns", 0)) ==
        at + "/channels: must be a number of channels above 0, or a share of them such as \"1%\"");
  CHECK(input({{"term", "patch"}}).starts_with(at + "/channels: must be a number of channels"));
  CHECK(input(Hot("columns", "some")).starts_with(at + "/channels: must be a number of channels"));
  CHECK(input(Hot("mean", 3)).starts_with(at + "/channels: unknown"));
  Json by = Hot("columns", 3);
  by["by"] = "kurtosis";
  CHECK(input(by).starts_with(at + "/by: unknown statistic \"kurtosis\""));
  Json json = {{"base", "te_nvfp4"}};
  json["dgrad"]["weight"]["side"] = "mean";
  CHECK(error(json) == "f#/r/dgrad/weight/side: is for inputs and gradients, not for weights");
  CHECK(error(With("te_nvfp4", Hot("patch", 1)))
            .starts_with("f#/r/wgrad/input/side: \"patch\" has no residual of single channels"));
  CHECK(error(With("bf16", Hot("patch", 1)))
            .starts_with("f#/r/fprop/input/side: \"patch\" gives back a residual"));
  json = With("te_nvfp4_no_rht", Hot("patch", 1));
  json["accumulation"]["fprop"] = "exact";
  CHECK(error(json).starts_with("f#/r/fprop/input/side: \"patch\" is for products without"));
  json = With("te_nvfp4_no_rht", "mean");
  json["wgrad"]["input"] = {{"from", "fprop"}};
  CHECK(error(json).starts_with("f#/r/wgrad/input/from: \"fprop\" is for an input of fprop"));
  json["fprop"]["input"]["side"] = "none";
  CHECK(error(json) == "no error");
}

TEST_CASE("An operand with another format keeps its base's side term, which is said", "[train]") {
  Json json = {{"base", "averis"}};
  json["fprop"]["input"]["format"] = "mxfp4.even";
  CHECK(Read(json).linear.fprop.a.side.Is(SideTermKind::kMean));
  const std::vector<std::string> lines = InheritedParts(json, "r");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "r/fprop/input: keeps its side term of averis; to choose, state \"side\"");
}

TrainConfig Tiny(const Json& recipe, const Json& model = Json::object()) {
  Json all = {{"d_model", 32}, {"ffn", 64}, {"sequence", 32}};
  all.update(model);
  return TinyRun(recipe, all);
}

TEST_CASE("A run with side terms has the same bytes for any threads and target, and resumes",
          "[train]") {
  std::set<std::vector<std::byte>> different;
  for (const Json& recipe : Recipes()) {
    CAPTURE(recipe.dump());
    CHECK(different.insert(SameStateEverywhere(Tiny(recipe), 8, 5, SimdTargets().back())).second);
  }
}

TEST_CASE("Experts, some without a token, train with side terms", "[train]") {
  const Json model = {{"parts", {"attention", "moe"}},
                      {"moe", {{"experts", 8}, {"top_k", 1}, {"pad_tokens", 32}}}};
  for (const Json& recipe :
       {With("te_nvfp4", "mean", "mean"), With("te_nvfp4", Hot("columns", 2))}) {
    CAPTURE(recipe.dump());
    Trainer trainer(Tiny(recipe, model), TinyText());
    const double first = trainer.Step(kTinyRate).loss;
    TrainTo(11, &trainer);
    CHECK(trainer.Step(kTinyRate).loss < first);
  }
}

TEST_CASE("The diagnostics are those of what is quantized: planted outliers leave with their side",
          "[train]") {
  const Json model = {
      {"outliers", {{"gain", 256}, {"channels", 2}, {"places", {"norm", "value", "hidden"}}}}};
  const auto kurtosis = [&](const Json& recipe) {
    Trainer trainer(Tiny(recipe, model), TinyText());
    for (const TensorStatistics& t : trainer.Diagnose()) {
      if (t.name == "blocks.0.attention.qkv.fprop.input") {
        return t.values["kurtosis"];
      }
    }
    return -1.0;
  };
  const double whole = kurtosis("te_nvfp4"), rest = kurtosis(With("te_nvfp4", Hot("columns", 2)));
  CHECK(whole > 10.0);
  CHECK(rest > 0.0);
  CHECK(rest < 6.0);
  CHECK(kurtosis(With("te_nvfp4_no_rht", Hot("patch", 2))) == whole);
}

TEST_CASE("More hot channels than a linear has are refused before the run", "[train]") {
  CHECK(ErrorOf([] { Tiny(With("te_nvfp4", Hot("columns", 33))); }) ==
        "run.json#/recipe: the side term of fprop.input has 33 hot channels, and "
        "blocks.0.attention.qkv has 32 there; fewer \"channels\", or a share of them such as "
        "\"1%\"");
  CHECK(ErrorOf([] { Tiny(With("te_nvfp4", Hot("columns", 32))); }) == "no error");
}

TEST_CASE("Buffers of side terms are part of the memory, their products of the widths", "[train]") {
  const auto need = [](const Json& recipe) { return EstimateMemory(Tiny(recipe)); };
  const MemoryNeed plain = need("te_nvfp4"), mean = need(With("te_nvfp4", "mean"));
  CHECK(mean.weights == plain.weights);
  CHECK(mean.operands == plain.operands);
  // 64 tokens of a micro-batch: what is left of the input of mlp.down (64 channels) in fprop and in
  // wgrad, and the largest b~, the gradient of qkv (96).
  CHECK(mean.activations - plain.activations == 4.0 * (64 * 64 + 64 * 64 + 64 * 96));
  const ModelConfig model = Tiny("bf16").model;
  const ProductWidths widths =
      ProductWidthsOf(Read(With("te_nvfp4", Hot("columns", "50%"))), model);
  CHECK(widths.at(4) == Catch::Approx(1.0));
  CHECK(widths.at(16) == Catch::Approx(1.0 / 3));  // half of fprop and half of wgrad
  CHECK(ProductWidthsOf(Read(With("te_nvfp4", "mean")), model) == ProductWidths{{4, 1.0}});
}

TEST_CASE("What-if takes the side term away with the operand's quantization", "[train]") {
  const Recipe recipe = Read(With("te_nvfp4", "mean", "mean"));
  CHECK(WithQuantized(recipe, 63) == recipe);
  CHECK(WithQuantized(recipe, 0).linear == recipe.rest);
  const Recipe input = WithQuantized(recipe, 1u << kFpropInput);
  CHECK(input.linear.fprop.a == recipe.linear.fprop.a);
  CHECK_FALSE(input.linear.wgrad.b.side);
}

}  // namespace
}  // namespace fp4lab
