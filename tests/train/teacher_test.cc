// Knowledge distillation: the key "teacher", what runs with a teacher do, and what knows it beside
// the run.
#include "fp4lab/train/start/teacher.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Json Tiny(const Json& recipe = "bf16") {
  return {{"model", {{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 32}}},
          {"data", {{"source", "synthetic"}, {"synthetic_bytes", 40000}}},
          {"recipe", recipe},
          {"batch", 4},
          {"micro_batches", 2},
          {"tokens", 6400},
          {"evaluation", {{"tokens", 128}}}};
}

const Corpus& Text() {
  static const Corpus corpus = LoadCorpus(ReadTrainConfig(Tiny(), "").data);
  return corpus;
}

// A checkpoint of a few steps, and runs with it as their teacher.
struct Taught {
  TemporaryFolder folder;
  std::string from;

  Taught() : from(folder.path().string()) {
    Trainer trainer(ReadTrainConfig(Tiny(), "teacher.json"), Text());
    for (int i = 0; i < 30; ++i) trainer.Step(1e-2);
    WriteFileAtomically(folder / "checkpoint.fp4lab", trainer.SaveState());
  }
  TrainConfig Config(const Json& recipe, const Json& teacher, bool starts = true) const {
    Json json = Tiny(recipe);
    json["teacher"] = teacher;
    if (starts) json["start"] = from;
    return ReadTrainConfig(json, "run.json");
  }
};

const Taught& Teaching() {
  static const Taught taught;
  return taught;
}

TEST_CASE("A teacher reads and is written; it is the start's checkpoint if none is named",
          "[train]") {
  const Taught& t = Teaching();
  const TrainConfig config = t.Config("te_nvfp4", {{"temperature", 2}, {"share", 0.5}});
  CHECK(config.teacher == TeacherConfig{t.from, 2.0f, 0.5f});
  CHECK(ToJson(config)["teacher"] ==
        Json({{"from", t.from}, {"temperature", 2.0}, {"share", 0.5}}));
  CHECK(ReadTrainConfig(ToJson(config), "run.json") == config);
  CHECK(t.Config("bf16", Json::object()).teacher == TeacherConfig{t.from, 1.0f, 1.0f});
  const TrainConfig none = t.Config("bf16", {{"share", 0}});
  CHECK_FALSE(none.teacher.Asked());
  CHECK_FALSE(ToJson(none).contains("teacher"));
}

TEST_CASE("A teacher that cannot be is refused at its key", "[train]") {
  const Taught& t = Teaching();
  const auto error = [&](const Json& teacher, bool starts = true) {
    return ErrorOf([&] { CheckTeacher(t.Config("bf16", teacher, starts), "run.json"); });
  };
  const std::string at = "run.json#/teacher/";
  CHECK(error({{"temperature", 0}}) == at + "temperature: must be positive");
  CHECK(error({{"share", 1.5}}) ==
        at + "share: must be from 0, no teacher, to 1, the teacher alone");
  CHECK(error(Json::object(), false) ==
        at + "from: must be the checkpoint of a teacher, as there is no \"start\"");
  CHECK(error({{"from", "nowhere.fp4lab"}}) == at + "from: there is no checkpoint nowhere.fp4lab");
  CHECK(error({{"temprature", 2}}).starts_with(at + "temprature: unknown key"));
  Json json = Tiny();
  json["model"]["vocabulary"] = 300;
  json["teacher"] = {{"from", t.from}};
  const TrainConfig other = ReadTrainConfig(json, "run.json");
  CHECK(ErrorOf([&] { CheckTeacher(other, "run.json"); }) ==
        at + "from: " + (t.folder / "checkpoint.fp4lab").string() +
            " has a vocabulary of 256, and the run one of 300; a teacher reads the run's tokens");
  TrainConfig gpu = t.Config("bf16", Json::object());
  gpu.device = Device::kCuda;
  CHECK(ErrorOf([&] { CheckTeacher(gpu, "run.json"); }) == "no error");
  Json of_gla = Tiny();
  of_gla["model"]["parts"] = {"gla", "mlp"};
  const TemporaryFolder folder;
  gpu.teacher.from = (folder / "gla.fp4lab").string();
  WriteFileAtomically(gpu.teacher.from,
                      Trainer(ReadTrainConfig(of_gla, "gla.json"), Text()).SaveState());
  CHECK(ErrorOf([&] { CheckTeacher(gpu, "run.json"); }) == "no error");
}

TEST_CASE(
    "A teacher's logits are those of its model without quantization, a few sequences at a "
    "time",
    "[train]") {
  Json json = Tiny("te_nvfp4");
  json["model"]["sequence"] = 400;  // two sequences at a time, of five
  json["batch"] = 5;
  json["micro_batches"] = 1;
  json["teacher"] = {{"from", Teaching().from}};
  const TrainConfig config = ReadTrainConfig(json, "run.json");
  Teacher teacher(config, "run.json");
  std::vector<std::uint16_t> tokens(5 * 400);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i * i % 251);
  }
  const TeacherLoss loss = teacher.LossOf(tokens);
  const FileContent content((Teaching().folder / "checkpoint.fp4lab").string());
  const std::vector<float> weights = ReadCheckpoint(content.bytes(), "teacher").payload;
  ModelConfig shape = TeacherModel(config, "run.json");
  CHECK(shape.sequence == 400);
  Model model(shape, ReadRecipe("bf16", ""), std::span(weights).first(MakeLayout(shape).total), 5);
  model.Forward(Pass{}, tokens);
  const MatrixView<const float> expected = model.Logits();
  REQUIRE(loss.logits.rows == expected.rows);
  std::size_t different = 0;
  for (std::size_t r = 0; r < expected.rows; ++r) {
    for (std::size_t c = 0; c < expected.cols; ++c) {
      different += loss.logits(r, c) != expected(r, c) ? 1 : 0;
    }
  }
  CHECK(different == 0);
}

TEST_CASE(
    "A run that is its teacher has no gradient; quantized, it has one, and training lowers "
    "the divergence",
    "[train]") {
  const Taught& t = Teaching();
  Trainer same(t.Config("bf16", Json::object()), Text());
  const StepResult still = same.Step(1e-3);
  CHECK(still.teacher_kl == 0.0);
  CHECK(still.grad_norm == 0.0);
  Trainer plain(t.Config("bf16", {{"share", 0}}), Text());
  const StepResult without = plain.Step(1e-3);
  CHECK(still.loss == without.loss);  // the cross-entropy
  CHECK_FALSE(without.teacher_kl.has_value());
  for (const char* recipe :
       {"modelopt_qat_nvfp4_w4a4", "modelopt_qat_nvfp4_w4a16", "modelopt_qat_nvfp4_mlp_only"}) {
    CAPTURE(recipe);
    Trainer student(t.Config(recipe, Json::object()), Text());
    std::vector<double> divergences;
    for (int i = 0; i < 80; ++i) divergences.push_back(student.Step(1e-4).teacher_kl.value());
    CHECK(divergences.front() > 1e-4);
    const double last = std::accumulate(divergences.end() - 20, divergences.end(), 0.0) / 20.0;
    CHECK(last < 0.5 * divergences.front());
  }
}

TEST_CASE("A run with a teacher has the same bytes for any threads and target, and resumes",
          "[train]") {
  const int threads = Threads();
  const TrainConfig config =
      Teaching().Config("modelopt_qat_nvfp4_w4a4", {{"temperature", 2}, {"share", 0.75}});
  const auto after = [&](int steps) {
    Trainer trainer(config, Text());
    for (int i = 0; i < steps; ++i) trainer.Step(1e-3);
    return trainer.SaveState();
  };
  SetThreads(1);
  const std::vector<std::byte> whole = after(6);
  SetThreads(3);
  CHECK((after(6) == whole));
  PinSimdTarget(SimdTargets().back());
  CHECK((after(6) == whole));
  PinSimdTarget("best");
  const std::vector<std::byte> part = after(3);
  Trainer other(config, Text());
  other.Step(1e-3);
  other.LoadState(part, "part");
  WeightCodes codes;
  other.Diagnose();
  other.Observe(&codes);
  CHECK(std::isfinite(other.Evaluate(EvaluationPrecision::kTraining).loss));
  const double kl = other.Step(1e-3).teacher_kl.value();  // of the step alone
  Trainer third(config, Text());
  third.LoadState(part, "part");
  CHECK(third.Step(1e-3).teacher_kl == kl);
  for (int i = 0; i < 2; ++i) other.Step(1e-3);
  CHECK((other.SaveState() == whole));
  SetThreads(threads);
  // Another temperature is another run.
  Trainer warm(Teaching().Config("modelopt_qat_nvfp4_w4a4", {{"share", 0.75}}), Text());
  CHECK(ErrorOf([&] { warm.LoadState(part, "part"); }) ==
        "part: checkpoint of another configuration: teacher/temperature: 1.0 here, 2.0 there");
}

TEST_CASE("Micro-batches and loss scaling leave a teacher's gradient as it is", "[train]") {
  const auto first = [&](int micro_batches, const Json& scaling) {
    Json json = Tiny("fp32");
    json["micro_batches"] = micro_batches;
    json["start"] = Teaching().from;
    json["seed"] = 3;
    json["teacher"] = {{"share", 0.5}, {"temperature", 2}};
    json["optimizer"] = {{"loss_scaling", scaling}};
    Trainer trainer(ReadTrainConfig(json, "run.json"), Text());
    return trainer.Step(1e-3);
  };
  const StepResult one = first(1, {{"kind", "none"}}), two = first(2, {{"kind", "none"}}),
                   scaled = first(1, {{"kind", "static"}, {"scale", 1024}});
  CHECK(two.grad_norm == Catch::Approx(one.grad_norm).epsilon(1e-5));
  CHECK(scaled.grad_norm == Catch::Approx(one.grad_norm).epsilon(1e-6));
  CHECK(two.teacher_kl.value() == Catch::Approx(one.teacher_kl.value()).margin(1e-7));
}

TEST_CASE("A teacher's weights, activations and logits are part of the memory", "[train]") {
  const Taught& t = Teaching();
  const TrainConfig config = t.Config("bf16", Json::object());
  TrainConfig plain = config;
  plain.teacher = {};
  const MemoryNeed with = EstimateMemory(config), without = EstimateMemory(plain);
  CHECK(without.teacher == 0.0);
  CHECK(with.Total() - without.Total() == with.teacher);
  const double parameters = 4.0 * static_cast<double>(ParameterCount(config.model));
  const double logits = 64.0 * (4.0 * 256 + 8.0);  // of a micro-batch
  TrainConfig batch = plain;                       // two sequences are less than kTeacherTokens
  batch.batch = 2;
  batch.micro_batches = 1;
  batch.evaluation.diagnostics_every = 0;
  const MemoryNeed pass = EstimateMemory(batch);
  CHECK(with.teacher == parameters + pass.operands + pass.activations + logits);
}

}  // namespace
}  // namespace fp4lab
