// Further validation texts, and the times of a step's parts, which change no number of a run.
#include <string>
#include <vector>

#include "fp4lab/base/hash.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/train/corpus_fit.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Json Tiny(const Json& recipe) {
  return {{"model", {{"layers", 2}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 32}}},
          {"data", {{"source", "synthetic"}, {"synthetic_bytes", 20000}}},
          {"evaluation", {{"tokens", 256}}},
          {"recipe", recipe},
          {"batch", 2},
          {"tokens", 64 * 20},
          {"seed", 5}};
}

void Train(Trainer* trainer, int steps) {
  for (int i = 0; i < steps; ++i) trainer->Step(1e-3);
}

TEST_CASE("Each text has the losses of a run whose validation part it is", "[train]") {
  const TemporaryFolder folder;
  const std::string first = (folder / "a.txt").string(), second = (folder / "b.txt").string();
  std::string words;
  for (int i = 0; i < 400; ++i) words += "a word " + std::to_string(i * i) + ", ";
  WriteFileAtomically(first, words);
  WriteFileAtomically(second, std::string(500, 'x'));
  for (const char* recipe : {"te_nvfp4", "bf16"}) {
    CAPTURE(recipe);
    Json json = Tiny(recipe);
    json["evaluation"]["texts"] = {{"words", {{"text", first}}}, {"x", {{"text", second}}}};
    const TrainConfig config = ReadTrainConfig(json, "test");
    const Corpus corpus = LoadCorpusFor(config), plain = LoadCorpus(config.data);
    REQUIRE(corpus.texts.size() == 2);
    CHECK(corpus.texts[0].sha256 == Sha256(words));
    Trainer trainer(config, corpus), without(ReadTrainConfig(Tiny(recipe), "test"), plain);
    Train(&trainer, 3);
    Train(&without, 3);
    const std::vector<TextLoss> losses = trainer.EvaluateTexts();
    REQUIRE(losses.size() == 2);
    CHECK(without.EvaluateTexts().empty());
    for (std::size_t i = 0; i < 2; ++i) {
      Corpus other = plain;
      other.validation = corpus.texts[i].tokens;
      Trainer alone(config, other);
      Train(&alone, 3);
      const Evaluation training = alone.Evaluate(EvaluationPrecision::kTraining);
      CHECK(losses[i].name == (i == 0 ? "words" : "x"));
      CHECK(losses[i].loss == training.loss);
      CHECK(losses[i].tokens == training.tokens);
      CHECK(losses[i].loss_high.value() == alone.Evaluate(EvaluationPrecision::kHigh).loss);
    }
    CHECK(losses[0].loss != losses[1].loss);
    // The validation part, and the steps that follow, are as they are without texts.
    CHECK(trainer.Evaluate(EvaluationPrecision::kTraining).loss ==
          without.Evaluate(EvaluationPrecision::kTraining).loss);
    Train(&trainer, 1);
    Train(&without, 1);
    CHECK(trainer.SaveState() == without.SaveState());
  }
}

TEST_CASE("Without high precision texts have one loss each", "[train]") {
  const TemporaryFolder folder;
  const std::string path = (folder / "a.txt").string();
  WriteFileAtomically(path, std::string(300, 'y'));
  Json json = Tiny("te_nvfp4");
  json["evaluation"] = {{"high_precision", false}, {"texts", {{"y", {{"text", path}}}}}};
  const TrainConfig config = ReadTrainConfig(json, "test");
  const Corpus corpus = LoadCorpusFor(config);
  Trainer trainer(config, corpus);
  CHECK_FALSE(trainer.EvaluateTexts().front().loss_high.has_value());
}

TEST_CASE("Texts are members of a configuration only where there are any", "[train]") {
  Json json = Tiny("bf16");
  CHECK_FALSE(ToJson(ReadTrainConfig(json, "test"))["evaluation"].contains("texts"));
  json["evaluation"]["texts"] = {{"code", {{"text", "a.txt"}}}, {"bpe", {{"tokens", "b.bin"}}}};
  const TrainConfig config = ReadTrainConfig(json, "test");
  CHECK(ToJson(config)["evaluation"]["texts"] == json["evaluation"]["texts"]);
  CHECK(ReadTrainConfig(ToJson(config), "test") == config);
  const auto error = [&](const Json& texts) {
    json["evaluation"]["texts"] = texts;
    return ErrorOf([&] { ReadTrainConfig(json, "run.json"); });
  };
  CHECK(error("a.txt") ==
        "run.json#/evaluation/texts: must be an object: NAME to {\"text\": path}");
  CHECK(error({{"a b", {{"text", "a"}}}}).find("#/evaluation/texts/a b: a text's name has") !=
        std::string::npos);
  CHECK(error({{"a", Json::object()}}).find("#/evaluation/texts/a: needs one of") !=
        std::string::npos);
  CHECK(error({{"a", {{"text", "a"}, {"tokens", "b"}}}}).find("needs one of") != std::string::npos);
  CHECK(error({{"a", {{"file", "a"}}}}).find("#/evaluation/texts/a/file: unknown key") !=
        std::string::npos);
}

TEST_CASE("A text that does not fit the model is refused at its key", "[train]") {
  const TemporaryFolder folder;
  const std::string path = (folder / "a.txt").string();
  Json json = Tiny("bf16");
  json["evaluation"]["texts"] = {{"a", {{"text", path}}}};
  json["model"]["sequence"] = 80;
  json["model"]["vocabulary"] = 256;
  const auto error = [&] {
    const TrainConfig config = ReadTrainConfig(json, "run.json");
    return ErrorOf([&] {
      const Corpus corpus = LoadCorpusFor(config);
      CheckCorpus(config, corpus, "run.json");
    });
  };
  CHECK(error().find(path) == 0);  // missing
  WriteFileAtomically(path, std::string(20, 'a'));
  CHECK(error().find(path) == 0);  // too short for any model
  WriteFileAtomically(path, std::string(80, 'a'));
  CHECK(error() ==
        "run.json#/evaluation/texts/a: has 80 tokens; the model's sequence needs at least 81");
  WriteFileAtomically(path, std::string(81, 'a'));
  const TrainConfig config = ReadTrainConfig(json, "run.json");
  CHECK_NOTHROW(CheckCorpus(config, LoadCorpusFor(config), "run.json"));
}

TEST_CASE("Steps whose parts are timed have the numbers of others", "[train]") {
  const TrainConfig config = ReadTrainConfig(Tiny("te_nvfp4"), "test");
  const Corpus corpus = LoadCorpusFor(config);
  Trainer timed(config, corpus), plain(config, corpus);
  timed.TimeSteps(true);
  for (int i = 0; i < 3; ++i) {
    const StepResult a = timed.Step(1e-3), b = plain.Step(1e-3);
    CHECK(a.loss == b.loss);
    CHECK_FALSE(b.times.has_value());
    REQUIRE(a.times.has_value());
    for (const StepPart part : {StepPart::kGemm, StepPart::kAttention, StepPart::kQuantization,
                                StepPart::kOptimizer, StepPart::kOther}) {
      CHECK(a.times->Of(part) > 0.0);
    }
    CHECK(a.times->Of(StepPart::kCommunication) == 0.0);
  }
  CHECK(timed.SaveState() == plain.SaveState());
  timed.TimeSteps(false);
  CHECK_FALSE(timed.Step(1e-3).times.has_value());
  CHECK(timed.PeakMemory() > 1'000'000);
}

}  // namespace
}  // namespace fp4lab
