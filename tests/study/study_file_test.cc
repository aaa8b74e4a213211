#include <functional>

#include "fp4lab/study/study.h"
#include "tests/study/tiny_study.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

// What reading the tiny study says after `change`.
std::string ErrorAfter(const std::function<void(Json&)>& change) {
  Json json = TinyStudyJson();
  change(json);
  try {
    TinyStudy(json);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::string ErrorAfterPatch(const char* patch) {
  return ErrorAfter([patch](Json& json) { json.merge_patch(Json::parse(patch)); });
}

void StartsWith(const std::string& text, const std::string& front) {
  INFO(text);
  CHECK(text.substr(0, front.size()) == front);
}

TEST_CASE("A key that no study has is refused at its JSON pointer", "[study]") {
  CHECK(ErrorAfterPatch(R"({"budget": [1280]})") ==
        "tiny.json#/budget: unknown key; did you mean \"budgets\"?");
  StartsWith(ErrorAfterPatch(R"({"model": {"d_modl": 64}})"),
             "tiny.json#/model/d_modl: unknown key");
  StartsWith(ErrorAfterPatch(R"({"arms": {"nvfp4": {"recip": 1}}})"),
             "tiny.json#/arms/nvfp4/recip: unknown key");
  StartsWith(ErrorAfterPatch(R"({"arms": {"nvfp4": {"schedule": {"rate": 1}}}})"),
             "tiny.json#/arms/nvfp4/schedule/rate: unknown key");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"primary": 1280}})"),
             "tiny.json#/analysis/primary: unknown key");
  StartsWith(ErrorAfterPatch(R"({"evaluation": {"every": 5}})"), "tiny.json#/evaluation/every: ");
}

TEST_CASE("What cannot be is refused at its JSON pointer", "[study]") {
  StartsWith(ErrorAfterPatch(R"({"name": null})"), "tiny.json: needs the key \"name\"");
  StartsWith(ErrorAfterPatch(R"({"name": "a/b"})"), "tiny.json#/name: ");
  StartsWith(ErrorAfterPatch(R"({"arms": null})"), "tiny.json#/arms: needs at least one arm");
  StartsWith(ErrorAfterPatch(R"({"arms": {"x": {}}})"), "tiny.json#/arms/x: needs the key");
  StartsWith(ErrorAfterPatch(R"({"arms": {"x": {"recipe": "nvfp5"}}})"),
             "tiny.json#/arms/x/recipe: ");
  StartsWith(ErrorAfterPatch(R"({"arms": {"a b": {"recipe": "bf16"}}})"), "tiny.json#/arms/a b: ");
  StartsWith(ErrorAfterPatch(R"({"arm_order": ["bf16"]})"), "tiny.json#/arm_order: ");
  StartsWith(ErrorAfterPatch(R"({"arm_order": ["bf16", "fp8"]})"),
             "tiny.json#/arm_order: there is no arm \"fp8\"");
  StartsWith(ErrorAfterPatch(R"({"seeds": []})"), "tiny.json#/seeds: ");
  StartsWith(ErrorAfterPatch(R"({"seeds": [1, 2, 1]})"), "tiny.json#/seeds/2: ");
  StartsWith(ErrorAfterPatch(R"({"batch": 0})"), "tiny.json#/batch: ");
  StartsWith(ErrorAfterPatch(R"({"schedule": {"kind": "cosine"}})"),
             "tiny.json#/schedule/kind: a study needs \"wsd\"");
  StartsWith(ErrorAfterPatch(R"({"schedule": {"warmup_steps": 9}})"),
             "tiny.json#/schedule/warmup_steps: ");
  StartsWith(ErrorAfterPatch(R"({"arms": {"nvfp4": {"schedule": {"warmup_steps": 9}}}})"),
             "tiny.json#/arms/nvfp4/schedule/warmup_steps: ");
  StartsWith(ErrorAfterPatch(R"({"model": {"d_model": 72}})"), "tiny.json#/model/d_model: ");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"reference": "fp8"}})"),
             "tiny.json#/analysis/reference: there is no arm \"fp8\"; one of: bf16 nvfp4");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"contrast": ["nvfp4", "fp8"]}})"),
             "tiny.json#/analysis/contrast/1: ");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"primary_tokens": 1281}})"),
             "tiny.json#/analysis/primary_tokens: ");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"confidence": 95}})"),
             "tiny.json#/analysis/confidence: ");
}

TEST_CASE("A budget is a whole number of steps, and the refusal names the nearest", "[study]") {
  CHECK(ErrorAfterPatch(R"({"budgets": [1280, 2600]})") ==
        "tiny.json#/budgets/1: 2600 tokens are no whole number of steps of 128 tokens; "
        "the nearest are 2560 or 2688");
  StartsWith(ErrorAfterPatch(R"({"budgets": [5]})"),
             "tiny.json#/budgets/0: 5 tokens are no whole number of steps of 128 tokens; "
             "the nearest are 128");
  StartsWith(ErrorAfterPatch(R"({"budgets": [2560, 1280]})"),
             "tiny.json#/budgets/1: budgets must ascend");
  StartsWith(ErrorAfterPatch(R"({"budgets": []})"), "tiny.json#/budgets: ");
}

TEST_CASE("Arms keep the order of the file", "[study]") {
  std::string text = TinyStudyJson().dump();
  const std::string arms = R"("arms":{"bf16":{"recipe":"bf16"},"nvfp4":{"recipe":"te_nvfp4"}})";
  const std::size_t at = text.find(arms);
  REQUIRE(at != text.npos);
  text.replace(
      at, arms.size(),
      R"("arms":{"z":{"recipe":"te_nvfp4"},"b":{"recipe":"bf16"},"m":{"recipe":"mxfp4"}})");
  const Study study = ParseStudy(text, "tiny.json");
  REQUIRE(study.arms.size() == 3);
  CHECK(study.arms[0].name == "z");
  CHECK(study.arms[1].name == "b");
  CHECK(study.arms[2].name == "m");
  CHECK(study.analysis.reference == "z");
  const Study again = ParseStudy(ToJson(study).dump(), "resolved");
  CHECK(again.arms == study.arms);
}

TEST_CASE("A resolved study is a study file that resolves to itself", "[study]") {
  Json json = TinyStudyJson();
  json["analysis"] = {{"reference", "bf16"}, {"contrast", {"nvfp4", "bf16"}}};
  json["micro_batches"] = 2;
  const Json resolved = ToJson(TinyStudy(json));
  CHECK(ToJson(TinyStudy(resolved)) == resolved);
  CHECK(resolved["optimizer"]["beta2"].get<float>() == 0.95f);
  CHECK(resolved["analysis"]["primary_tokens"] == 2560);
}

TEST_CASE("An arm's override touches what it names and no other arm", "[study]") {
  Json json = TinyStudyJson();
  json["arms"]["nvfp4"]["schedule"] = {{"learning_rate", 0.02}};
  json["arms"]["nvfp4"]["optimizer"] = {{"weight_decay", 0.0}};
  const Study study = TinyStudy(json);
  CHECK(study.arms[0].schedule == study.base.schedule);
  CHECK(study.arms[1].schedule.learning_rate == 0.02);
  CHECK(study.arms[1].schedule.warmup_steps == 3);
  CHECK(study.arms[1].optimizer.weight_decay == 0.0f);
  CHECK(study.arms[1].optimizer.beta2 == study.base.optimizer.beta2);
  const TrainConfig config = ConfigOf(study, study.arms[1], 7);
  CHECK(config.seed == 7);
  CHECK(config.schedule.learning_rate == 0.02);
  CHECK(config.recipe == study.arms[1].recipe);
}

TEST_CASE("A branch leaves the trunk where the decay to its budget begins", "[study]") {
  Json json = TinyStudyJson();
  json["model"]["sequence"] = 128;
  json["batch"] = 16;
  json["schedule"]["warmup_steps"] = 25;
  json["evaluation"] = {{"tokens", 2048}};
  json["budgets"] = {1.024e6, 2.048e6, 4.096e6};
  const Study study = TinyStudy(json);
  const RunPlan plan = PlanOf(study, study.arms[0]);
  CHECK(plan.tokens_per_step == 2048);
  CHECK(plan.branches == std::vector<Branch>{{1'024'000, 400, 500},
                                             {2'048'000, 800, 1000},
                                             {4'096'000, 1600, 2000}});
  CHECK(plan.TrunkSteps() == 1600);
  CHECK(plan.TotalSteps() == 2300);
  for (const Branch& branch : plan.branches) {  // the trunk's rate is constant up to the branch
    const double peak = study.arms[0].schedule.learning_rate;
    const auto rate = [&](std::int64_t step) {
      return LearningRate(study.arms[0].schedule, step, branch.total_steps);
    };
    CHECK(rate(branch.branch_step - 1) == peak);
    CHECK(rate(branch.branch_step + 1) < peak);
  }
}

}  // namespace
}  // namespace fp4lab::study
