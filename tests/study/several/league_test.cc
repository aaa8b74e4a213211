// Leagues of recipes, on studies whose losses are known.
#include "fp4lab/study/several/league.h"

#include <cmath>
#include <functional>
#include <string>

#include "fp4lab/study/several/recipe_class.h"
#include "tests/study/several/made_studies.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

TEST_CASE("Recipes are classed by what their GEMMs multiply", "[several]") {
  ModelConfig model;
  model.layers = 6;
  model.d_model = 128;
  const auto plan = [&](const Json& recipe) {
    return std::string(kPlanClasses[PlanClassOf(ReadRecipe(recipe, "test"), model)]);
  };
  CHECK(plan("te_nvfp4") == "NVFP4");
  CHECK(plan("mxfp4") == "MXFP4");
  CHECK(plan("bf16") == "8 bits or BF16 in all GEMMs");
  CHECK(plan("te_mxfp8") == "8 bits or BF16 in all GEMMs");
  CHECK(plan({{"base", "te_nvfp4"}, {"backward_only", true}}) == "BF16 forward, 4 bits backward");
  CHECK(plan({{"base", "te_nvfp4"}, {"forward_only", true}}) ==
        "NVFP4 forward, 8 bits or BF16 backward");
  CHECK(plan({{"base", "te_nvfp4"}, {"layers", "mlp"}}) == "NVFP4 in some linears only");
  CHECK(plan({{"base", "mxfp4"}, {"last_blocks_bf16", 1}}) == "MXFP4, some blocks in BF16");
  CHECK(plan("ngpt_nvfp4") == "another 4-bit format forward");  // no scale of the tensor
  CHECK(plan("wang_fp4") == "another 4-bit format forward");    // one scale a row
  const auto extras = [](const char* recipe) { return ExtrasOf(ReadRecipe(recipe, "test")); };
  CHECK(extras("te_nvfp4") == RecipeExtras{2, 2, 0, 0});
  CHECK(extras("te_nvfp4_4over6_weights") == RecipeExtras{2, 2, 2, 0});
  CHECK(extras("quartet2") == RecipeExtras{4, 0, 2, 4});
  CHECK(extras("bf16") == RecipeExtras{});
}

TEST_CASE("A league of made-up recipes has their differences and token ratios", "[several]") {
  Folder folder;
  const double k_mxfp4 = 1.5;
  const LossOf loss = Scaled({{"te_nvfp4", 1.2}, {"nvfp4", 1.2}, {"mxfp4", k_mxfp4}});
  // Runs of a recipe scatter a little.
  const LossOf noisy = [&](const std::string& arm, double n, double tokens, int seed) {
    const double noise = arm == "bf16" || arm == "nvfp4" || arm == "te_nvfp4" ? 0 : 1e-5;
    return loss(arm, n, tokens, seed) + (seed % 2 == 0 ? noise : -noise);
  };
  const Made league{.name = "league",
                    .budgets = {32000000},
                    .arms = {"bf16", "te_nvfp4", "mxfp4", "mxfp4b", "fp8"}};
  Json results = ResultsOf(league, noisy);
  results["study"]["arms"]["mxfp4b"]["recipe"] = "mxfp4";
  results["study"]["arms"]["fp8"]["recipe"] = "te_mxfp8";
  folder.Add("league", results);
  Made curves{.name = "curves", .arms = {"bf16", "nvfp4"}};
  Json of_curves = ResultsOf(curves, noisy);
  of_curves["numerics"]["nvfp4"] = "fingerprint of te_nvfp4";
  folder.Add("curves", of_curves);
  const Json right = {{"budget", 32000000},
                      {"studies", {"../league"}},
                      {"curves", {"../curves"}},
                      {"reference", "bf16"},
                      {"base", "te_nvfp4"},
                      {"names", {{"te_nvfp4", "nvfp4"}}},
                      {"pairs", {{"mxfp4", "te_nvfp4", "the format"}}}};
  const auto document = [&](const Json& ask) {
    return LeagueDocument(ReadLeagueFile(folder.Ask(ask)));
  };
  const Json made = document(right);
  REQUIRE(made["rows"].size() == 5);
  for (const Json& row : made["rows"]) {
    if (row["recipe"] != "mxfp4") continue;
    CHECK(row["gap"]["bf16"]["mean"].get<double>() ==
          Approx(loss("mxfp4", 1e6, 32e6, 1) - loss("bf16", 1e6, 32e6, 1)).epsilon(1e-6));
    CHECK(row["log_ratio"]["bf16"]["mean"].get<double>() ==
          Approx(std::log(k_mxfp4)).epsilon(0.01));
    CHECK(row["log_ratio"]["te_nvfp4"]["mean"].get<double>() ==
          Approx(std::log(k_mxfp4 / 1.2)).epsilon(0.01));
    CHECK(row["four_bits"] == true);
    CHECK(row["product_time"] == 0.25);
  }
  CHECK(made["pairs"][0]["what"] == "the format");
  const auto refused = [&](const std::function<void(Json*)>& change, const std::string& words) {
    Json ask = right;
    change(&ask);
    const std::string error = ErrorOf([&] { document(ask); });
    CAPTURE(error);
    CHECK(error.find(words) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  };
  refused([](Json* a) { (*a)["pairs"][0][0] = "mxfp5"; }, "the recipe \"mxfp5\"");
  refused([](Json* a) { (*a)["pairs"][0] = {"mxfp4"}; }, "#/pairs/0: must be [recipe, against");
  refused([](Json* a) { (*a)["budget"] = 5; }, "has no budget of 5 tokens");
  refused([](Json* a) { (*a)["names"] = Json::object(); }, "no arm \"te_nvfp4\"");
  refused([](Json* a) { (*a)["leader"] = "nobody"; }, "the recipe \"nobody\"");
  of_curves["numerics"]["bf16"] = "another";
  folder.Add("curves", of_curves);
  refused([](Json*) {}, "another fingerprint");
  of_curves["numerics"]["bf16"] = "fingerprint of bf16";
  of_curves["runs"][0]["points"][2]["validation_loss"] = 3.0;
  folder.Add("curves", of_curves);
  refused([](Json*) {}, "their programs differ");
}

}  // namespace
}  // namespace fp4lab::study
