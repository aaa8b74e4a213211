// Windows of outer scales in recipes: their key, what runs under them do, and what knows them
// beside the run.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/recipe/recipe_inheritance.h"
#include "fp4lab/recipe/recipe_json.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/least_targets.h"
#include "tests/train/tiny_run.h"

namespace fp4lab {
namespace {

Recipe Read(const Json& json) { return ReadRecipe(json, "f#/r"); }

// te_nvfp4 with windows of inputs and, unless 0, of gradients.
Json With(int inputs, int gradients = 0) {
  Json json = {{"base", "te_nvfp4"}};
  json["fprop"]["input"]["scale_window"] = json["wgrad"]["input"]["scale_window"] = inputs;
  if (gradients == 0) return json;
  json["dgrad"]["grad"]["scale_window"] = json["wgrad"]["grad"]["scale_window"] = gradients;
  return json;
}

TEST_CASE("Windows read, are written where there is one, and read back", "[train]") {
  for (const Json& json : {With(64), With(128, 64), Json("tetrajet_v2_1x128")}) {
    CAPTURE(json.dump());
    const Recipe recipe = Read(json);
    CHECK(recipe.linear.fprop.a.scale_window > 0);
    CHECK(Read(ToJson(recipe)) == recipe);
  }
  CHECK(ToJson(Read("te_nvfp4")).dump().find("scale_window") == std::string::npos);
  const Json json = ToJson(Read(With(64)));
  CHECK(json["wgrad"]["input"]["scale_window"] == 64);
  CHECK(OperandText(json["wgrad"]["input"]) == "nvfp4.te, H16, an outer scale per 1x64");
  Json again = json;
  again["fprop"]["input"]["scale_window"] = 0;
  CHECK(Read(again).linear.fprop.a.scale_window == 0);
  Json own = {{"base", "tetrajet_v2_1x128"}};
  own["fprop"]["input"]["format"] = "nvfp4.te.4over6.mse.256";
  const std::vector<std::string> lines = InheritedParts(own, "r");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        "r/fprop/input: keeps its outer scale per 1x128 of tetrajet_v2_1x128; to choose, state "
        "\"scale_window\"");
}

TEST_CASE("Windows that cannot be are refused at their pointer", "[train]") {
  const auto error = [](const Json& operand, const char* gemm = "fprop", const char* of = "input") {
    Json json = {{"base", "te_nvfp4"}};
    json[gemm][of] = operand;
    if (!json[gemm][of].contains("scale_window")) json[gemm][of]["scale_window"] = 64;
    return ErrorOf([&] { Read(json); });
  };
  const std::string at = "f#/r/fprop/input/scale_window";
  CHECK(error({{"scale_window", 32}}) == at + ": must be 0, 64 or 128");
  CHECK(error({{"format", "none"}}) ==
        at + ": is for formats with a tensor scale, which a window has instead; write "
             "\"scale_window\": 0");
  CHECK(error({{"format", "mxfp4.even"}}).starts_with(at + ": is for formats with a tensor scale"));
  CHECK(error({{"format", "nvfp4.te.row-scaled"}})
            .starts_with(at + ": contradicts the format's scale of each row"));
  CHECK(error(Json::object(), "fprop", "weight") ==
        "f#/r/fprop/weight/scale_window: a window lies in one row; give the format blocks of one "
        "row, as \"block\": [1, 16]");
  CHECK(error({{"format", "fp8_e4m3"}}).starts_with(at + ": a window lies in one row"));
  CHECK(error({{"format", {{"like", "nvfp4.te"}, {"element", "e4m3"}, {"block", {1, 128}}}}}) ==
        at + ": 64 is not a multiple of the format's block of 128");
  CHECK(error({{"format", {{"like", "nvfp4.te"}, {"unbias", "ms_eden"}}}})
            .starts_with(at + ": \"unbias\" corrects blocks"));
  CHECK(error({{"random", "transformer_engine"}, {"random_bits", 8}}, "dgrad", "grad")
            .starts_with("f#/r/dgrad/grad/scale_window: the generator of \"random\" counts rows"));
  CHECK(error({{"delayed_scaling", Json::object()}})
            .starts_with("f#/r/fprop/input/delayed_scaling: is for formats with one scale"));
  Json json = With(64);
  json["accumulation"]["fprop"] = "exact";
  CHECK(ErrorOf([&] { Read(json); }).starts_with(at + ": windows add in an order of their own"));
}

TrainConfig Tiny(const Json& recipe, const Json& model = Json::object()) {
  Json all = {{"d_model", 128}, {"ffn", 128}, {"sequence", 64}};
  all.update(model);
  return TinyRun(recipe, all);
}

TEST_CASE("A run with windows has the same bytes for any threads and target, and resumes",
          "[train]") {
  std::set<std::vector<std::byte>> different;
  for (const Json& recipe : {With(64), With(128), With(64, 128), Json("tetrajet_v2_1x128")}) {
    CAPTURE(recipe.dump());
    CHECK(different
              .insert(SameStateEverywhere(Tiny(recipe), 5, 3, SimdTargets().at(kLeastTargets - 1)))
              .second);
  }
}

TEST_CASE("Experts, some without a token, train with windows", "[train]") {
  const Json model = {{"parts", {"attention", "moe"}},
                      {"moe", {{"experts", 8}, {"top_k", 1}, {"pad_tokens", 64}}}};
  Trainer trainer(Tiny(With(64, 64), model), TinyText());
  const double first = trainer.Step(kTinyRate).loss;
  TrainTo(11, &trainer);
  CHECK(trainer.Step(kTinyRate).loss < first);
  CHECK(ErrorOf([] {
          Tiny(With(64, 64), {{"parts", {"attention", "moe"}}, {"moe", {{"pad_tokens", 32}}}});
        }) ==
        "run.json#/model/moe/pad_tokens: pad_tokens 32 is not a multiple of the recipe's "
        "block of 64");
}

TEST_CASE("A model whose widths are no multiples of a window is refused", "[train]") {
  CHECK(ErrorOf([] {
          Tiny(With(64), {{"d_model", 96}});
        }) == "run.json#/model/d_model: d_model 96 is not a multiple of the recipe's block of 64");
  CHECK(ErrorOf([] {
          Tiny(With(128), {{"sequence", 32}});
        }) ==
        "run.json#/batch: tokens in a micro-batch: 64 is not a multiple of the recipe's block of "
        "128");
}

TEST_CASE("What-if takes the window away with the operand's quantization", "[train]") {
  const Recipe recipe = Read(With(64, 128));
  CHECK(WithQuantized(recipe, 63) == recipe);
  CHECK(WithQuantized(recipe, 0).linear == recipe.rest);
  const Recipe input = WithQuantized(recipe, 1u << kFpropInput);
  CHECK(input.linear.fprop.a == recipe.linear.fprop.a);
  CHECK(input.linear.wgrad.b.scale_window == 0);
}

}  // namespace
}  // namespace fp4lab
