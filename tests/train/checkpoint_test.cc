#include "fp4lab/train/checkpoint.h"

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::vector<std::byte> Example() {
  const std::vector<float> a = {1.0f, -0.0f, 3.5f}, b = {2.0f};
  const std::array<std::span<const float>, 2> payload = {a, b};
  return WriteCheckpoint({Json{{"seed", 3}}, 12}, payload);
}

std::string ReadError(const std::vector<std::byte>& bytes) {
  return ErrorOf([&] { ReadCheckpoint(bytes, "c.ckpt"); });
}

TEST_CASE("A checkpoint reads back", "[train]") {
  const Checkpoint c = ReadCheckpoint(Example(), "c.ckpt");
  CHECK(c.header.step == 12);
  CHECK(c.header.configuration == Json{{"seed", 3}});
  CHECK(c.payload == std::vector<float>{1.0f, 0.0f, 3.5f, 2.0f});
  CHECK(std::signbit(c.payload[1]));
}

TEST_CASE("A checkpoint cut anywhere or with any byte changed is refused in one line", "[train]") {
  const std::vector<std::byte> good = Example();
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::string error = ReadError({good.begin(), good.begin() + static_cast<int>(size)});
    CAPTURE(size, error);
    CHECK(error.find("c.ckpt: ") == 0);
    CHECK(error.find('\n') == std::string::npos);
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{4};
    CAPTURE(i);
    CHECK(ReadError(bad).find("c.ckpt: ") == 0);
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  CHECK(ReadError(longer).find("damaged") != std::string::npos);
}

TEST_CASE("The first difference of two configurations is named", "[train]") {
  const Json a = {{"model", {{"layers", 4}, {"heads", 2}}}, {"seed", 1}};
  Json b = a;
  CHECK(FirstDifference(a, b).empty());
  b["model"]["layers"] = 6;
  CHECK(FirstDifference(a, b) == "model/layers: 4 here, 6 there");
  b = a;
  b["extra"] = true;
  CHECK(FirstDifference(a, b) == "extra: absent here, true there");
  CHECK(FirstDifference(b, a) == "extra: true here, absent there");
}

TEST_CASE("A trainer refuses another configuration's state and stays as it was", "[train]") {
  DataConfig data;
  data.source = "synthetic";
  data.synthetic_bytes = 5000;
  const Corpus corpus = LoadCorpus(data);
  const Json json = {
      {"model", {{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"ffn", 32}, {"sequence", 32}}},
      {"batch", 1},
      {"tokens", 3200}};
  const TrainConfig config = ReadTrainConfig(json, "test");
  Trainer trainer(config, corpus);
  trainer.Step(1e-3);
  const std::vector<std::byte> state = trainer.SaveState();
  const auto refuses = [&](const char* path, const Json& value, const std::string& message) {
    Json changed = json;
    changed[Json::json_pointer(path)] = value;
    Trainer other(ReadTrainConfig(changed, "test"), corpus);
    const std::vector<std::byte> before = other.SaveState();
    CHECK_THROWS_WITH(other.LoadState(state, "s.ckpt"),
                      Catch::Matchers::ContainsSubstring(
                          "s.ckpt: checkpoint of another configuration: " + message));
    CHECK((other.SaveState() == before));
  };
  refuses("/model/layers", 2, "model/layers: 2 here, 1 there");
  refuses("/recipe", "te_nvfp4", "recipe/base");
  refuses("/seed", 9, "seed: 9 here, 1 there");
  refuses("/batch", 2, "batch: 2 here, 1 there");
  refuses("/optimizer/beta1", 0.8, "optimizer/beta1: 0.8 here, 0.9 there");
  // The state does not depend on length, schedule and evaluation: decay branches load their
  // trunk's.
  Json longer = json;
  longer["tokens"] = 6400;
  longer["schedule"]["learning_rate"] = 1e-4;
  longer["evaluation"]["tokens"] = 64;
  Trainer other(ReadTrainConfig(longer, "test"), corpus);
  other.LoadState(state, "s.ckpt");
  CHECK(other.Steps() == 1);
  CHECK((other.SaveState() == state));
}

}  // namespace
}  // namespace fp4lab
