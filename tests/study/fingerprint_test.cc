#include "fp4lab/study/run/record/fingerprint.h"

#include <set>
#include <string>

#include "fp4lab/recipe/recipe.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

TrainConfig Of(const Json& recipe) {
  TrainConfig config;
  config.recipe = ReadRecipe(recipe, "test");
  return config;
}

std::string Fingerprint(const Json& recipe) { return NumericsFingerprint(Of(recipe), "test"); }

// A commit that changes one of these fingerprints must say why the numerics changed.
TEST_CASE("The numerics fingerprints of the CPU's recipes are the recorded ones", "[study]") {
  CHECK(Fingerprint("bf16") == "cc5103b29bea289bc12d1e641114b7e580d9749121f88278c86abae9fd442c55");
  CHECK(Fingerprint("fp32") == "2deeeb0acd871da7e9c469ac4f913232130548687aca50e94941389deba8ff8b");
  CHECK(Fingerprint("te_nvfp4") ==
        "150d9b638289c2088f395b18a1248b04c9f5cfac576f477cb84af591b669d755");
  CHECK(Fingerprint("mxfp4") == "152a40265beae2ea0e408fa93dedbb8b3ad08862e1b7122e6676826e927672a8");
  CHECK(Fingerprint("te_mxfp8") ==
        "ae132dfe3d91e7f039f053bb74da5b8bfaab28bd0a003d339404891259068e85");
  CHECK(Fingerprint("te_fp8_currentscaling") ==
        "8ef13bdaa3f964fc357ae76ad0e94ceda79c9734b748cfd6ab9dfb293747faca");
  CHECK(Fingerprint("te_fp8_delayedscaling") ==
        "bf2426a3b09dc48e93943a1f8abcc0114a08ecc50f180a9d829a4f28a9995438");
  CHECK(Fingerprint("quartet2") ==
        "db42fc8db980205e9fd3d79bf04747fb15e26efe3eb6793561f595f7f02add8d");
}

TEST_CASE("A fingerprint is the recipe's, not the size's, the seed's or the layers'", "[study]") {
  TrainConfig other = Of("te_nvfp4");
  other.model.layers = 7;
  other.seed = 5;
  other.optimizer.beta2 = 0.99f;
  other.recipe.first_blocks_bf16 = 2;
  other.recipe.exclude = {"*.mlp.*"};
  CHECK(NumericsFingerprint(other, "test") == Fingerprint("te_nvfp4"));
  std::set<std::string> all;
  for (const char* name : {"te_nvfp4", "te_nvfp4_no_rht", "mxfp4", "bf16", "fp32"}) {
    all.insert(Fingerprint(name));
  }
  CHECK(all.size() == 5);
  other.model.activation = Activation::kSwiglu;
  CHECK(NumericsFingerprint(other, "test") != Fingerprint("te_nvfp4"));
  // A change of recipe during the run is part of the fingerprint.
  const Json change = {{"at", 0.5}, {"recipe", "bf16"}};
  CHECK(all.count(Fingerprint({{"base", "te_nvfp4"}, {"then", change}})) == 0);
}

TEST_CASE("The fingerprint of a list is that of all its recipes, on any model", "[study]") {
  const auto list = [](const char* first, const char* rest, const char* linears) {
    Json json = {{"rest", rest}};
    json["rules"] = Json::array({{{"linears", linears}, {"recipe", first}}});
    return json;
  };
  const std::string one = Fingerprint(list("te_nvfp4", "bf16", "*.mlp.*"));
  CHECK(Fingerprint(list("te_nvfp4", "bf16", "*.moe.*")) == one);
  CHECK(Fingerprint(list("te_nvfp4_no_rht", "bf16", "*.mlp.*")) != one);
  CHECK(Fingerprint(list("te_nvfp4", "te_mxfp8", "*.mlp.*")) != one);
  CHECK(Fingerprint(list("bf16", "te_nvfp4", "*.mlp.*")) != one);
}

}  // namespace
}  // namespace fp4lab::study
