#include "fp4lab/train/checkpoint.h"

#include "fp4lab/base/hash.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::vector<std::byte> Example(const Json& run = {}) {
  const std::vector<float> a = {1.0f, -0.0f, 3.5f}, b = {2.0f};
  const std::array<std::span<const float>, 2> payload = {a, b};
  return WriteCheckpoint({Json{{"seed", 3}}, 12, run}, payload);
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
  CHECK(c.header.run.is_null());
  const Json run = {{"losses", {0.1, 1e-300}}};
  CHECK(ReadCheckpoint(Example(run), "c.ckpt").header.run == run);
}

TEST_CASE("The bytes of a checkpoint are those that earlier versions read and wrote", "[train]") {
  CHECK(Sha256(Example()) == "a57564993fbc29e227d1d30df2d24bae7cd1d36cdc169ef2295774edaf126c84");
}

TEST_CASE("A checkpoint of another version is refused with the remedy", "[train]") {
  std::vector<std::byte> newer = Example();
  newer[8] = std::byte{2};
  CHECK(ReadError(newer) ==
        "c.ckpt: checkpoint version 2, this program reads 1; continue with the fp4lab that wrote "
        "it, or start anew elsewhere");
}

TEST_CASE("A checkpoint cut anywhere or with any byte changed is refused in one line", "[train]") {
  const std::vector<std::byte> good = GENERATE(Example(), Example({{"record", 1}}));
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

TEST_CASE("A header is read without its payload, whose damage it does not see", "[train]") {
  std::vector<std::byte> bytes = Example({{"record", 1}});
  bytes[bytes.size() - 70] ^= std::byte{4};  // in the payload
  const CheckpointHeader header = ReadCheckpointHeader(bytes, "c.ckpt");
  CHECK(header.step == 12);
  CHECK(header.run == Json{{"record", 1}});
  const auto error = [&](std::size_t size) {
    return ErrorOf([&] { ReadCheckpointHeader(std::span(bytes).first(size), "c.ckpt"); });
  };
  CHECK(error(5) == "c.ckpt: is not an fp4lab checkpoint");
  CHECK(error(40) == "c.ckpt: checkpoint is truncated");
  CHECK(error(100) == "c.ckpt: checkpoint header is malformed");
  CHECK(error(bytes.size() - 1) == "c.ckpt: checkpoint header does not fit its payload");
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

TEST_CASE("A checkpoint in a branch also holds the numbers of the trunk", "[train]") {
  DataConfig data;
  data.source = "synthetic";
  data.synthetic_bytes = 5000;
  const Corpus corpus = LoadCorpus(data);
  const TrainConfig config = ReadTrainConfig(
      {{"model", {{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"ffn", 32}, {"sequence", 32}}},
       {"recipe", "te_fp8_delayedscaling"},  // its amax histories are part of the numbers
       {"batch", 1},
       {"tokens", 3200}},
      "test");
  Trainer trainer(config, corpus);
  trainer.Step(1e-3);
  const std::vector<std::byte> at_1 = trainer.SaveState();
  const std::vector<float> trunk = trainer.Numbers();
  trainer.Step(1e-3);
  const std::vector<std::byte> at_2 = trainer.SaveState();
  std::vector<std::byte> both;
  trainer.SaveState(
      [&](std::span<const std::byte> bytes) {
        both.insert(both.end(), bytes.begin(), bytes.end());
      },
      {{"branch", 7}}, trunk);
  Trainer other(config, corpus);
  CHECK(other.LoadState(at_1, "1").trunk.empty());
  const LoadedState loaded = other.LoadState(both, "2");
  CHECK(loaded.run == Json{{"branch", 7}});
  CHECK((loaded.trunk == trunk));
  CHECK((other.SaveState() == at_2));
  other.Return(1, loaded.trunk);
  CHECK((other.SaveState() == at_1));
}

}  // namespace
}  // namespace fp4lab
