// Studies and the step of `fp4lab what-if` that begin with the weights of a checkpoint.
#include <algorithm>
#include <string>
#include <vector>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/study/run/checkpoint_step.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/study/run/rehearsal.h"
#include "fp4lab/study/run/run.h"
#include "fp4lab/study/run/study_start.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/start/start.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

// The tiny study's model after three steps, as a checkpoint and as an import has it.
struct Starts {
  TestFolder folder{"starts"};
  Study tiny = TinyStudy();
  Corpus corpus = LoadCorpus(tiny.base.data);
  std::string run = (folder.Path() / "run.fp4lab").string(),
              import = (folder.Path() / "import.fp4lab").string();
  std::vector<float> weights;

  Starts() {
    Trainer trainer(ConfigOf(tiny, tiny.arms[0], 1), corpus);
    for (int i = 0; i < 3; ++i) trainer.Step(0.01);
    WriteFileAtomically(run, trainer.SaveState());
    weights = trainer.Numbers();
    weights.resize(MakeLayout(tiny.base.model).total);
    const std::span<const float> payload = weights;
    const Json configuration = {{"model", ToJson(tiny.base.model)},
                                {"imported", {{"dtype", "F32"}}}};
    WriteFileAtomically(import, WriteCheckpoint({configuration, 0}, {&payload, 1}));
  }
};

TEST_CASE("A study's runs begin with the weights of its start, and an arm may have its own",
          "[study]") {
  const Starts starts;
  Json json = TinyStudyJson();
  json["start"] = starts.run;
  json["arms"]["scratch"] = {{"recipe", "bf16"}, {"start", ""}};
  json["arms"]["other"] = {{"recipe", "bf16"}, {"start", starts.import}};
  const Study study = TinyStudy(json);
  CheckStarts(study, "tiny.json");
  const Study again = TinyStudy(ToJson(study));
  CHECK(again.arms == study.arms);
  CHECK(again.base == study.base);
  std::vector<Json> inputs;
  for (const Arm& arm : study.arms) {
    CAPTURE(arm.name);
    const TrainConfig config = ConfigOf(study, arm, 1);
    CHECK(config.start.empty() == (arm.name == "scratch"));
    Trainer trainer(config, starts.corpus);
    std::vector<float> weights = trainer.Numbers();
    weights.resize(starts.weights.size());
    CHECK((weights == starts.weights) == (arm.name != "scratch"));
    inputs.push_back(RunInputs(config, starts.corpus, "numerics"));
    CHECK(inputs.back().contains("start") == (arm.name != "scratch"));
  }
  for (const Arm& arm : RehearsalOf(study).arms) CHECK(arm.start.empty());
  Run run(ConfigOf(study, study.arms[0], 1), starts.corpus, PlanOf(study, study.arms[0]), "tiny");
  while (!run.Done()) run.Advance();
  CHECK(run.Record().points.size() == 2);
}

TEST_CASE("A study takes the model of its start, and refuses one that does not fit", "[study]") {
  const Starts starts;
  Json json = TinyStudyJson();
  json["start"] = starts.import;
  json["model"] = {{"sequence", 32}};
  CHECK(TinyStudy(json).base.model == starts.tiny.base.model);
  json["arms"]["wide"] = {{"recipe", "bf16"}, {"model", {{"ffn", 128}}}};
  const std::string error = ErrorOf([&] { CheckStarts(TinyStudy(json), "tiny.json"); });
  CHECK(error.starts_with("tiny.json#/arms/wide/model: does not fit the weights of "));
}

TEST_CASE("An arm's model may be a preset, which reads the study's text", "[study]") {
  Json json = TinyStudyJson();
  json["model"]["vocabulary"] = 300;
  json["arms"]["experts"] = {{"recipe", "bf16"}, {"model", {{"preset", "qwen3-moe"}}}};
  const Study study = TinyStudy(json);
  const auto arm = std::find_if(study.arms.begin(), study.arms.end(),
                                [](const Arm& a) { return a.name == "experts"; });
  CHECK(arm->model.parts == std::vector<std::string>{"attention", "moe"});
  CHECK(arm->model.sequence == 32);
  CHECK(arm->model.vocabulary == 300);
  CHECK(TinyStudy(ToJson(study)).arms == study.arms);
}

TEST_CASE("The step from an import has fresh states of the optimizer and any text that fits",
          "[study]") {
  const Starts starts;
  CheckpointStepOptions options;
  options.checkpoint = starts.import;
  CHECK(ErrorOf([&] { ReadCheckpointStep(options); }) ==
        starts.import + ": no file beside it says its learning rate; give --learning-rate");
  options.learning_rate = 1e-3;
  options.data = starts.tiny.base.data;
  options.sequences = 2;
  const StepState state = ReadCheckpointStep(options);
  CHECK(state.step == 0);
  CHECK(state.parameters == starts.weights);
  CHECK(state.inputs.size() == 64);
  REQUIRE(state.states.size() == 2);
  CHECK(state.states[1] == std::vector<float>(starts.weights.size()));
  const Recipe recipe = ReadRecipe("te_nvfp4", "test");
  const WhatIf what = TryRecipes(state, {&recipe, 1}, false);
  CHECK(what.outcomes[0].loss != what.loss);
  CHECK(what.loss_after < what.loss);
  // Tokens outside of the model's vocabulary are refused, as in a run.
  const std::filesystem::path ids = starts.folder.Path() / "ids.npy";
  const std::vector<std::uint32_t> tokens(2000, 300);
  WriteNpy(ids, MakeNpyArray<std::uint32_t>({tokens.size()}, tokens));
  options.data.emplace();
  options.data->tokens = ids.string();
  CHECK(ErrorOf([&] { ReadCheckpointStep(options); }).find("#/model/vocabulary: the corpus ") !=
        std::string::npos);
}

TEST_CASE("The step from a run with a teacher has the gradients of both losses", "[study]") {
  const TestFolder made("taught");
  const std::filesystem::path folder = made.Path();
  const Json model = {{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 32}};
  Json json = {{"model", model},
               {"data", {{"source", "synthetic"}, {"synthetic_bytes", 40000}}},
               {"schedule", {{"learning_rate", 5e-3}}},
               {"recipe", "te_nvfp4"},
               {"batch", 4},
               {"tokens", 6400}};
  const TrainConfig untaught = ReadTrainConfig(json, "run.json");
  const Corpus corpus = LoadCorpus(untaught.data);
  Trainer teacher(untaught, corpus);
  for (int i = 0; i < 20; ++i) teacher.Step(1e-2);
  WriteFileAtomically(folder / "teacher.fp4lab", teacher.SaveState());
  json["teacher"] = {{"from", (folder / "teacher.fp4lab").string()}, {"temperature", 2.0}};
  const TrainConfig config = ReadTrainConfig(json, "run.json");
  Trainer trainer(config, corpus);
  for (int i = 0; i < 3; ++i) trainer.Step(5e-3);
  WriteFileAtomically(folder / "checkpoint.fp4lab", trainer.SaveState());
  const CheckpointStepOptions options{.checkpoint = folder, .learning_rate = 5e-3};
  CHECK(ErrorOf([&] {
          ReadCheckpointStep({options.checkpoint, config.data, options.learning_rate});
        }) == (folder / "checkpoint.fp4lab").string() +
                  ": the run has a teacher, which no file beside it names");
  WriteFileAtomically(folder / "config.json", ToJson(config).dump());
  StepState state = ReadCheckpointStep(options);
  REQUIRE(state.teacher != nullptr);
  const auto loss_after = [&] {
    return TryRecipes(state, {&config.recipe, 1}, false).outcomes[0].loss_after;
  };
  const double taught = loss_after();
  state.teacher = nullptr;
  CHECK(loss_after() != taught);
  // The trainer's own step leads to the same loss.
  trainer.Step(5e-3);
  const std::vector<float> numbers = trainer.Numbers();
  std::copy_n(numbers.begin(), state.parameters.size(), state.parameters.begin());
  CHECK(TryRecipes(state, {&config.recipe, 1}, false).loss == Catch::Approx(taught).epsilon(1e-12));
}

TEST_CASE("Of arms that differ by their teacher alone, the step has that of the checkpoint",
          "[study]") {
  const Starts starts;  // the step of its checkpoint is 3
  const std::filesystem::path folder = starts.folder.Path(), run = folder / "runs" / "KEY";
  Trainer other(ConfigOf(starts.tiny, starts.tiny.arms[0], 2), starts.corpus);
  const std::string second = (folder / "second.fp4lab").string();
  WriteFileAtomically(second, other.SaveState());
  Json json = TinyStudyJson();
  json["arms"] = Json::object();
  json["arms"]["first"] = {{"recipe", "te_nvfp4"}, {"teacher", {{"from", starts.run}}}};
  json["arms"]["second"] = {{"recipe", "te_nvfp4"}, {"teacher", {{"from", second}}}};
  json["analysis"]["reference"] = "first";
  json["analysis"].erase("contrast");
  const Study study = TinyStudy(json);
  std::filesystem::create_directories(run);
  WriteFileAtomically(folder / "study.json", ToJson(study).dump());
  for (const Arm& arm : study.arms) {
    CAPTURE(arm.name);
    Trainer trainer(ConfigOf(study, arm, 1), starts.corpus);
    WriteFileAtomically(run / "checkpoint.fp4lab", trainer.SaveState());
    const StepState state = ReadCheckpointStep({.checkpoint = run});
    CHECK(state.teacher != nullptr);
    CHECK(state.config.teacher.from == arm.teacher.from);
  }
  json["arms"]["second"]["teacher"]["from"] = starts.run;
  json["arms"]["second"]["recipe"] = "mxfp4";
  WriteFileAtomically(folder / "study.json", ToJson(TinyStudy(json)).dump());
  CHECK(ErrorOf([&] { ReadCheckpointStep({.checkpoint = run}); }) ==
        (run / "checkpoint.fp4lab").string() + ": the run had another teacher than " + starts.run);
}

TEST_CASE("A study that starts says which arms have a recipe that quantizes nothing", "[study]") {
  Study study = TinyStudy(TinyStudyJson());
  const Corpus corpus = LoadCorpus(study.base.data);
  const auto notes = [&](const std::vector<std::string>& parts) {
    study.arms[1].recipe = ReadRecipe("maxtext_te_nvfp4_mlp", "test");
    study.arms[1].model.parts = parts;
    return NotesOn(study, corpus);
  };
  CHECK(notes({"attention", "mlp"}).empty());
  const std::vector<std::string> said = notes({"attention"});
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("the arm \"" + study.arms[1].name + "\" is for no linear") !=
        std::string::npos);
  study.arms[1].recipe = ReadRecipe("bf16", "test");
  CHECK(NotesOn(study, corpus).empty());
}

TEST_CASE("A study on a GPU says which heads have no attention on tensor cores, once", "[study]") {
  Study study = TinyStudy(TinyStudyJson());
  const Corpus corpus = LoadCorpus(study.base.data);
  for (Arm& arm : study.arms) arm.model.head_dim = 48;
  CHECK(NotesOn(study, corpus).empty());
  study.base.device = Device::kCuda;
  const std::vector<std::string> said = NotesOn(study, corpus);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("heads of 48 columns (arm \"" + study.arms[0].name + "\")") !=
        std::string::npos);
  for (Arm& arm : study.arms) arm.model.head_dim = 64;
  CHECK(NotesOn(study, corpus).empty());
  // A GPU pads the heads of latent attention, whatever head_dim says.
  for (Arm& arm : study.arms) {
    arm.model.head_dim = 48;
    arm.model.parts = {"mla", "mlp"};
  }
  CHECK(NotesOn(study, corpus).empty());
  for (Arm& arm : study.arms) arm.model.mla.qk_nope_head_dim = 128;
  const std::vector<std::string> wide = NotesOn(study, corpus);
  REQUIRE(wide.size() == 1);
  CHECK(wide[0].find("heads of 160 columns") != std::string::npos);
}

}  // namespace
}  // namespace fp4lab::study
