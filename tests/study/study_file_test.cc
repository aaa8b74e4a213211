#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/study/run/study.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/golden.h"

namespace fp4lab::study {
namespace {

// The error of reading the tiny study after `change`; "no error" if there is none.
std::string ErrorAfter(const std::function<void(Json&)>& change) {
  Json json = TinyStudyJson();
  change(json);
  return ErrorOf([&] { TinyStudy(json); });
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

TEST_CASE("Invalid values in a study file are refused at their JSON pointer", "[study]") {
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
  StartsWith(ErrorAfterPatch(R"({"optimizer": {"name": "adam"}})"),
             "tiny.json#/optimizer/name: unknown optimizer");
  StartsWith(ErrorAfterPatch(R"({"arms": {"nvfp4": {"optimizer": {"name": "adam"}}}})"),
             "tiny.json#/arms/nvfp4/optimizer/name: unknown optimizer");
  StartsWith(ErrorAfterPatch(R"({"model": {"parts": ["mpl"]}})"),
             "tiny.json#/model/parts/0: unknown part");
  StartsWith(ErrorAfterPatch(R"({"seeds": []})"), "tiny.json#/seeds: ");
  StartsWith(ErrorAfterPatch(R"({"seeds": [1, 2, 1]})"), "tiny.json#/seeds/2: ");
  StartsWith(ErrorAfterPatch(R"({"batch": 0})"), "tiny.json#/batch: ");
  for (const char* patch : {R"({"micro_batches": 0})", R"({"micro_batches": -1})"}) {
    CHECK(ErrorAfterPatch(patch) == "tiny.json#/micro_batches: must be at least 1");
  }
  StartsWith(ErrorAfterPatch(R"({"schedule": {"kind": "cosine"}})"),
             "tiny.json#/schedule/kind: a study needs \"wsd\"");
  StartsWith(ErrorAfterPatch(R"({"schedule": {"warmup_steps": 9}})"),
             "tiny.json#/schedule/warmup_steps: ");
  StartsWith(ErrorAfterPatch(R"({"arms": {"nvfp4": {"schedule": {"warmup_steps": 9}}}})"),
             "tiny.json#/arms/nvfp4/schedule/warmup_steps: ");
  StartsWith(ErrorAfterPatch(R"({"model": {"d_model": 72}})"), "tiny.json#/model/d_model: ");
  for (const char* member :
       {"schedule/learning_rate", "optimizer/beta1", "optimizer/epsilon", "model/norm_epsilon"}) {
    Json patch;
    patch[Json::json_pointer("/arms/nvfp4/" + std::string(member))] = 1e300;
    StartsWith(ErrorAfterPatch(patch.dump().c_str()),
               "tiny.json#/arms/nvfp4/" + std::string(member) + ": must be");
  }
  StartsWith(ErrorAfterPatch(R"({"analysis": {"reference": "fp8"}})"),
             "tiny.json#/analysis/reference: there is no arm \"fp8\"; one of: bf16 nvfp4");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"contrast": ["nvfp4", "fp8"]}})"),
             "tiny.json#/analysis/contrast/1: ");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"contrast": ["nvfp4", "nvfp4"]}})"),
             "tiny.json#/analysis/contrast/1: \"nvfp4\" is the arm in question itself");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"null_arms": ["bf16"]}})"),
             "tiny.json#/analysis/null_arms/0: is the reference itself");
  StartsWith(ErrorAfterPatch(
                 R"({"arms": {"nvfp4": {"recipe": {"base": "te_nvfp4", "include": ["*.fc1"]}}}})"),
             "tiny.json#/arms/nvfp4/recipe/include/0: \"*.fc1\" matches no linear");
  StartsWith(
      ErrorAfterPatch(
          R"({"arms": {"nvfp4": {"recipe": {"base": "te_nvfp4", "last_blocks_bf16": 99}}}})"),
      "tiny.json#/arms/nvfp4/recipe/last_blocks_bf16: more blocks in BF16");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"primary_tokens": 1281}})"),
             "tiny.json#/analysis/primary_tokens: ");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"predictions": {}}})"),
             "tiny.json#/analysis/predictions: must be an array");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"predictions": [{"file": "a"}]}})"),
             "tiny.json#/analysis/predictions/0: needs the key \"sha256\"");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"predictions": [{"file": "a", "sha256": "F"}]}})"),
             "tiny.json#/analysis/predictions/0/sha256: must be 64 lower-case");
  CHECK(ErrorAfterPatch(R"({"analysis": {"null_arms": ["nvfp4", "bf16"]}})") ==
        "tiny.json#/analysis/null_arms/1: is the reference itself; a null arm is a twin of it");
  StartsWith(ErrorAfterPatch(R"({"analysis": {"confidence": 95}})"),
             "tiny.json#/analysis/confidence: ");
}

TEST_CASE("A decay that leaves no step before it is refused", "[study]") {
  StartsWith(ErrorAfterPatch(R"({"schedule": {"decay_fraction": 1, "warmup_steps": 0}})"),
             "tiny.json#/schedule/decay_fraction: the decay to the first budget would take all of "
             "its 10 steps");
  StartsWith(ErrorAfterPatch(R"({"schedule": {"decay_fraction": 0.5, "warmup_steps": 0},
                                 "budgets": [128]})"),
             "tiny.json#/schedule/decay_fraction: ");
  StartsWith(ErrorAfterPatch(R"({"arms": {"nvfp4": {"schedule": {"decay_fraction": 1}}}})"),
             "tiny.json#/arms/nvfp4/schedule/decay_fraction: ");
}

TEST_CASE("An arm that stands twice is refused, not the last one kept", "[study]") {
  std::string text = TinyStudyJson().dump();
  const std::string arm = R"("bf16":{"recipe":"bf16"},)";
  const std::size_t at = text.find(arm);
  REQUIRE(at != text.npos);
  text.insert(at, arm);
  CHECK(ErrorOf([&] { ParseStudy(text, "tiny.json"); }) ==
        "tiny.json#/arms: has the key \"bf16\" twice; keep one of them");
}

TEST_CASE("A budget is a whole number of steps, and the refusal names the nearest", "[study]") {
  CHECK(ErrorAfterPatch(R"({"budgets": [1280, 2600]})") ==
        "tiny.json#/budgets/1: 2600 tokens are not a whole number of steps of 128 tokens; "
        "the nearest are 2560 or 2688");
  StartsWith(ErrorAfterPatch(R"({"budgets": [5]})"),
             "tiny.json#/budgets/0: 5 tokens are not a whole number of steps of 128 tokens; "
             "the nearest are 128");
  StartsWith(ErrorAfterPatch(R"({"budgets": [2560, 1280]})"),
             "tiny.json#/budgets/1: budgets must ascend");
  StartsWith(ErrorAfterPatch(R"({"budgets": []})"), "tiny.json#/budgets: ");
  CHECK(ErrorAfterPatch(R"({"budgets": [1280, 1152921504606846976]})") ==
        "tiny.json#/budgets/1: 1152921504606846976 tokens are 9007199254740992 steps; at most "
        "4294967295");
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
  CHECK(study.analysis.references == std::vector<std::string>{"z"});
  const Study again = ParseStudy(ToJson(study).dump(), "resolved");
  CHECK(again.arms == study.arms);
}

TEST_CASE("Every study file of the repository is valid and resolves to itself", "[study]") {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(SourceDirectory() / "studies")) {
    const std::filesystem::path& path = entry.path();
    // Results, and files of the commands of several studies.
    const bool is_other = path.string().find("/results/") != std::string::npos ||
                          path.parent_path().filename() == "several";
    if (path.extension() != ".json" || is_other) continue;
    CAPTURE(path);
    const Json resolved = ToJson(ReadStudy(path));
    CHECK(ToJson(TinyStudy(resolved)) == resolved);
    ++files;
  }
  CHECK(files >= 22);
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

TEST_CASE("The key of a run on the CPU says how the gradients of micro-batches are added",
          "[study]") {
  const Study study = TinyStudy(TinyStudyJson());
  const Corpus corpus = LoadCorpus(study.base.data);
  TrainConfig config = ConfigOf(study, study.arms[0], 1);
  const auto names = [&] { return RunInputs(config, corpus, "numerics").contains("gradients"); };
  CHECK_FALSE(names());
  config.micro_batches = 2;
  CHECK(names());
  config.device = Device::kCuda;
  CHECK_FALSE(names());
}

TEST_CASE("A twin of the reference that is nudged is a null arm", "[study]") {
  Json json = TinyStudyJson();
  json["arms"]["null"] = {{"recipe", "bf16"}, {"nudge_ulps", 1}};
  json["arms"]["nvfp4"]["nudge_ulps"] = 1;  // not a twin: the recipe differs, too
  const Study study = TinyStudy(json);
  CHECK(study.analysis.null_arms == std::vector<std::string>{"null"});
  CHECK(ConfigOf(study, study.arms[1], 1).nudge_ulps == 1);
  const Json resolved = ToJson(study);
  CHECK(ToJson(TinyStudy(resolved)) == resolved);
  json["arms"]["null"]["nudge_ulps"] = -1;
  CHECK(ErrorOf([&] { TinyStudy(json); }) ==
        "tiny.json#/arms/null/nudge_ulps: must lie between 0 and 1048576");
}

TEST_CASE("A sweep trains each arm at each learning rate", "[study]") {
  Json json = TinyStudyJson();
  json["sweep"] = {{"learning_rate", {0.005, 0.01}}};
  const Study study = TinyStudy(json);
  std::vector<std::string> names;
  for (const Arm& arm : study.arms) names.push_back(arm.name);
  CHECK(names ==
        std::vector<std::string>{"bf16+lr0.005", "bf16+lr0.01", "nvfp4+lr0.005", "nvfp4+lr0.01"});
  CHECK(ConfigOf(study, study.arms[2], 1).schedule.learning_rate == 0.005);
  CHECK(study.analysis.references == std::vector<std::string>{"bf16"});
  const Json resolved = ToJson(study);
  CHECK(ToJson(TinyStudy(resolved)) == resolved);
  const auto error = [&](const Json& rates) {
    json["sweep"]["learning_rate"] = rates;
    return ErrorOf([&] { TinyStudy(json); });
  };
  CHECK(error({0.01}) == "tiny.json#/sweep/learning_rate: needs two rates or more");
  CHECK(error({0.01, 0.01}) ==
        "tiny.json#/sweep/learning_rate/1: must be above 0 and above the rate before it");
  CHECK(error({0, 0.01}) ==
        "tiny.json#/sweep/learning_rate/0: must be above 0 and above the rate before it");
  json["arms"]["nvfp4"]["schedule"] = {{"learning_rate", 0.02}};
  CHECK(error({0.005, 0.01}) ==
        "tiny.json#/arms/nvfp4/schedule/learning_rate: is what \"sweep\" varies; leave it out");
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

// The tiny study at two sizes: bf16 and nvfp4 of one block, bf16.2 and nvfp4.2 of two.
Json TwoSizes() {
  Json json = TinyStudyJson();
  for (const char* arm : {"bf16", "nvfp4"}) {
    json["arms"][std::string(arm) + ".2"] = json["arms"][arm];
    json["arms"][std::string(arm) + ".2"]["model"] = {{"layers", 2}};
  }
  return json;
}

TEST_CASE("An arm may have its own model, and gaps are taken within a model", "[study]") {
  const Study study = TinyStudy(TwoSizes());
  REQUIRE(study.arms.size() == 4);
  CHECK(study.arms[0].model == study.base.model);
  CHECK(study.arms[1].model.layers == 2);  // bf16.2: the file's order is that of its keys here
  CHECK(study.arms[1].model.d_model == study.base.model.d_model);
  CHECK(ConfigOf(study, study.arms[1], 1).model.layers == 2);
  CHECK(study.analysis.references == std::vector<std::string>{"bf16", "bf16.2"});
  CHECK(study.analysis.contrasts.empty());
  const Json resolved = ToJson(study);
  CHECK(ToJson(TinyStudy(resolved)) == resolved);
  CHECK_FALSE(resolved["arms"]["bf16"].contains("model"));

  Json json = TwoSizes();
  json["analysis"] = {{"reference", {"nvfp4.2"}},
                      {"contrast", Json::parse(R"([["nvfp4", "bf16"], ["bf16.2", "nvfp4.2"]])")}};
  const Study other = TinyStudy(json);
  CHECK(other.analysis.references == std::vector<std::string>{"bf16", "nvfp4.2"});
  CHECK(other.analysis.contrasts.size() == 2);
  CHECK(ToJson(TinyStudy(ToJson(other))) == ToJson(other));
}

TEST_CASE("What models of a study must share, and what compares two of them, is refused",
          "[study]") {
  const auto error = [](const char* patch) {
    return ErrorOf([&] {
      Json json = TwoSizes();
      json.merge_patch(Json::parse(patch));
      TinyStudy(json);
    });
  };
  StartsWith(error(R"({"arms": {"bf16.2": {"model": {"sequence": 64}}}})"),
             "tiny.json#/arms/bf16.2/model/sequence: must be the study's, 32");
  StartsWith(error(R"({"arms": {"bf16.2": {"model": {"vocabulary": 512}}}})"),
             "tiny.json#/arms/bf16.2/model/vocabulary: must be the study's, 256");
  StartsWith(error(R"({"arms": {"bf16.2": {"model": {"layer": 2}}}})"),
             "tiny.json#/arms/bf16.2/model/layer: unknown key");
  StartsWith(error(R"({"arms": {"bf16.2": {"model": {"heads": 5}}}})"),
             "tiny.json#/arms/bf16.2/model/heads: 5 heads do not divide d_model 64");
  StartsWith(error(R"({"analysis": {"reference": ["bf16", "nvfp4"]}})"),
             "tiny.json#/analysis/reference/1: \"nvfp4\" has the model of \"bf16\"");
  StartsWith(error(R"({"analysis": {"contrast": ["nvfp4", "bf16.2"]}})"),
             "tiny.json#/analysis/contrast: \"nvfp4\" and \"bf16.2\" have different models");
  StartsWith(error(R"({"analysis": {"contrast": [["nvfp4", "bf16"], ["bf16", "nvfp4"]]}})"),
             "tiny.json#/analysis/contrast/1: has the model of the contrast of \"nvfp4\"");
  StartsWith(error(R"({"analysis": {"criteria": [
                        {"kind": "mean_order", "arms": ["bf16", "nvfp4.2"]}]}})"),
             "tiny.json#/analysis/criteria/0/arms: \"bf16\" and \"nvfp4.2\" have different");
}

TEST_CASE("An arm may leave the study's Muon or experts aside, or change one of their numbers",
          "[study]") {
  Json json = TinyStudyJson();
  json["optimizer"] = {{"name", "muon"}, {"muon", {{"steps", 7}}}};
  json["model"]["parts"] = {"attention", "moe"};
  json["model"]["moe"] = {{"experts", 4}};
  json["arms"]["adamw"] = {{"recipe", "bf16"}, {"optimizer", {{"name", "adamw"}}}};
  json["arms"]["other"] = {{"recipe", "bf16"},
                           {"optimizer", {{"muon", {{"nesterov", false}}}}},
                           {"model", {{"moe", {{"top_k", 1}}}}}};
  json["arms"]["dense"] = {{"recipe", "bf16"}, {"model", {{"parts", {"attention", "mlp"}}}}};
  const Study study = TinyStudy(json);
  const auto arm = [&](const std::string& name) {
    return *std::find_if(study.arms.begin(), study.arms.end(),
                         [&](const Arm& a) { return a.name == name; });
  };
  CHECK(arm("adamw").optimizer == OptimizerConfig());
  CHECK(arm("other").optimizer.muon.steps == 7);
  CHECK(!arm("other").optimizer.muon.nesterov);
  CHECK(arm("other").model.moe.experts == 4);
  CHECK(arm("other").model.moe.top_k == 1);
  CHECK(arm("dense").model.moe == MoeConfig());
  CHECK(TinyStudy(ToJson(study)).arms == study.arms);
}

TEST_CASE("An arm may leave the study's latents and muP aside, or change one of their numbers",
          "[study]") {
  Json json = TinyStudyJson();
  json["model"].update({{"parts", {"mla", "mlp"}},
                        {"mla", {{"q_lora_rank", 16}}},
                        {"mup", {{"base_d_model", 16}, {"base_head_dim", 8}}}});
  json["arms"]["plain"] = {
      {"recipe", "bf16"},
      {"model", {{"parts", {"attention", "mlp"}}, {"mup", {{"base_d_model", 0}}}}}};
  json["arms"]["other"] = {
      {"recipe", "bf16"},
      {"model", {{"mla", {{"v_head_dim", 16}}}, {"mup", {{"base_head_dim", 4}}}}}};
  const Study study = TinyStudy(json);
  const auto arm = [&](const std::string& name) {
    return *std::find_if(study.arms.begin(), study.arms.end(),
                         [&](const Arm& a) { return a.name == name; });
  };
  CHECK(arm("plain").model == TinyStudy().base.model);
  CHECK(arm("other").model.mla.q_lora_rank == 16);
  CHECK(arm("other").model.mla.v_head_dim == 16);
  CHECK(arm("other").model.mup == MupConfig{16, 4.0f});
  CHECK(TinyStudy(ToJson(study)).arms == study.arms);
}

TEST_CASE("An arm takes the study's teacher, another, or none", "[study]") {
  Json json = TinyStudyJson();
  json["teacher"] = {{"from", "teacher.fp4lab"}, {"temperature", 2}};
  json["arms"]["half"] = {{"recipe", "bf16"}, {"teacher", {{"share", 0.5}}}};
  json["arms"]["alone"] = {{"recipe", "bf16"}, {"teacher", {{"share", 0}}}};
  json["arms"]["own"] = {{"recipe", "bf16"}, {"teacher", {{"from", "other.fp4lab"}}}};
  const Study study = TinyStudy(json);
  const auto arm = [&](const std::string& name) {
    return *std::find_if(study.arms.begin(), study.arms.end(),
                         [&](const Arm& a) { return a.name == name; });
  };
  CHECK(arm("nvfp4").teacher == TeacherConfig{"teacher.fp4lab", 2.0f, 1.0f});
  CHECK(arm("half").teacher == TeacherConfig{"teacher.fp4lab", 2.0f, 0.5f});
  CHECK_FALSE(arm("alone").teacher.Asked());
  CHECK(arm("own").teacher == TeacherConfig{"other.fp4lab", 2.0f, 1.0f});
  CHECK(ConfigOf(study, arm("half"), 1).teacher == arm("half").teacher);
  const Study again = TinyStudy(ToJson(study));
  CHECK(again.arms == study.arms);
  CHECK(again.base.teacher == study.base.teacher);
  CHECK(ErrorOf([&] { CheckStarts(study, "s.json"); }) ==
        "s.json#/teacher/from: there is no checkpoint teacher.fp4lab");
  json.erase("teacher");
  json["arms"]["half"]["teacher"]["from"] = "half.fp4lab";
  json["arms"].erase("own");
  CHECK(ErrorOf([&] { CheckStarts(TinyStudy(json), "s.json"); }) ==
        "s.json#/arms/half/teacher/from: there is no checkpoint half.fp4lab");
}

// Writing leaves members out that are as before; an arm that goes back to them states them.
TEST_CASE("An arm of plain members in a study of others is written and read back", "[study]") {
  Json json = TinyStudyJson();
  json["optimizer"] = {{"name", "muon"}, {"rates", {{"gains", 2.0}}}};
  json["model"].update({{"parts", {"attention", "moe"}},
                        {"head_dim", 16},
                        {"qk_norm", true},
                        {"window", 8},
                        {"full_attention_every", 2},
                        {"no_rope_every", 2},
                        {"logit_soft_cap", 5.0},
                        {"z_loss", 0.5}});
  json["arms"]["plain"] = {{"recipe", "bf16"},
                           {"optimizer", {{"name", "adamw"}, {"rates", {{"gains", 1.0}}}}},
                           {"model",
                            {{"parts", {"attention", "mlp"}},
                             {"head_dim", 0},
                             {"qk_norm", false},
                             {"window", 0},
                             {"full_attention_every", 0},
                             {"no_rope_every", 0},
                             {"logit_soft_cap", 0.0},
                             {"z_loss", 0.0}}}};
  const Study study = TinyStudy(json), again = TinyStudy(ToJson(study));
  CHECK(again.arms == study.arms);
  CHECK(again.base == study.base);
  const auto plain = std::find_if(again.arms.begin(), again.arms.end(),
                                  [](const Arm& a) { return a.name == "plain"; });
  CHECK(plain->optimizer == OptimizerConfig());
  CHECK(ToJson(plain->model) == ToJson(TinyStudy().base.model));
}

TEST_CASE("Lists of recipes, outliers and loss scaling are part of the resolved study and of keys",
          "[study]") {
  Json json = TinyStudyJson();
  json["model"]["outliers"] = {{"gain", 4}, {"channels", 2}};
  json["optimizer"] = {{"loss_scaling", {{"kind", "static"}}}};
  Json list = {{"rest", "bf16"}, {"name", "two"}};
  list["rules"] = Json::array({{{"linears", "*.mlp.*"}, {"recipe", "te_nvfp4"}}});
  json["arms"]["list"] = {{"recipe", list}};
  json["arms"]["plain"] = {{"recipe", "bf16"},
                           {"model", {{"outliers", {{"gain", 1}}}}},
                           {"optimizer", {{"loss_scaling", {{"kind", "none"}}}}}};
  const Study study = TinyStudy(json);
  const Study again = ParseStudy(ToJson(study).dump(), "again");
  CHECK(again.arms == study.arms);
  const auto arm = [&](const char* name) {
    return *std::find_if(study.arms.begin(), study.arms.end(),
                         [&](const Arm& a) { return a.name == name; });
  };
  CHECK(arm("plain").model.outliers == OutlierConfig());
  CHECK(arm("plain").optimizer == OptimizerConfig());
  CHECK(arm("list").recipe.base == "two");
  const Corpus corpus = LoadCorpus(study.base.data);
  const auto inputs = [&](const Arm& a) {
    return RunInputs(ConfigOf(study, a, 1), corpus, "numerics");
  };
  const Json of_list = inputs(arm("list"));
  CHECK(of_list.at("recipe").count("name") == 0);
  CHECK(of_list.at("recipe").at("rules")[0].at("recipe").count("base") == 0);
  CHECK(of_list.at("recipe").at("rest").count("base") == 0);
  CHECK(of_list.at("model").count("outliers") == 1);
  CHECK(inputs(arm("plain")).at("model").count("outliers") == 0);
}

TEST_CASE("The changes of a list lie in the decay where budgets share a trunk", "[study]") {
  Json json = TinyStudyJson();
  Json list = {{"rest", "bf16"}};
  list["rules"] = Json::array({{{"steps", {{"from", 0.1}}}, {"recipe", "te_nvfp4"}}});
  json["arms"]["list"] = {{"recipe", list}};
  REQUIRE(json["budgets"].size() > 1);
  StartsWith(ErrorOf([&] { TinyStudy(json); }),
             "tiny.json#/arms/list/recipe/rules: a change of \"steps\" or \"then\" lies before the "
             "decay");
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
