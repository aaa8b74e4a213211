#include "fp4lab/train/model/memory.h"

#include <cstdint>

#include "fp4lab/train/model/shapes.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

TrainConfig Small() { return ReadTrainConfig({{"recipe", "te_nvfp4"}}, "run.json"); }

std::string MemoryError(const TrainConfig& config, int runs = 1, double states = 0) {
  return ErrorOf([&] { CheckMemory(config, "run.json", runs, states); });
}

TEST_CASE("Weights, gradients and both moments are four times the parameters", "[train]") {
  TrainConfig config = Small();
  for (const bool tied : {false, true}) {
    config.model.tied_head = tied;
    config.model.kv_heads = tied ? 2 : 0;
    CHECK(EstimateMemory(config).weights == 16.0 * ParameterCount(config.model));
  }
}

TEST_CASE("Activations are those of a micro-batch, whose gradients have a place of their own",
          "[train]") {
  const TrainConfig whole = Small();
  TrainConfig parts = whole;
  parts.micro_batches = 4;
  const double tokens = 4.0 * static_cast<double>(TokensPerStep(whole));  // tokens and targets
  CHECK(EstimateMemory(whole).activations - tokens ==
        4 * (EstimateMemory(parts).activations - tokens));
  CHECK(EstimateMemory(parts).weights ==
        EstimateMemory(whole).weights + 4.0 * ParameterCount(whole.model));
}

TEST_CASE("A run larger than memory is refused at the JSON pointer that takes the most",
          "[train]") {
  TrainConfig config = Small();
  CHECK(MemoryError(config) == "no error");
  config.batch = 2'000'000;
  CHECK(MemoryError(config).find("run.json#/batch: a run needs about ") == 0);
  config.device = Device::kCuda;
  CHECK(MemoryError(config) == "no error");
  config = Small();
  config.model.d_model = 1 << 20;
  config.model.layers = 1000;
  CHECK(MemoryError(config).find("run.json#/model: a run needs about ") == 0);
}

TEST_CASE("Runs at a time and their checkpoints count", "[train]") {
  const TrainConfig config = Small();
  CHECK(MemoryError(config, 1024 * 1024).find("1048576 runs at a time need about ") !=
        std::string::npos);
  CHECK(MemoryError(config, 1, 1e9).find("run.json#/model: a run needs about ") == 0);
}

TEST_CASE("Processes of one host share its memory", "[train]") {
  TrainConfig config = Small();
  CHECK(WhyNoMemory(config, {.size = 2}, 2).empty());
  const World world{.size = 1 << 20};
  CHECK(WhyNoMemory(config, world, 1 << 20).find("1048576 processes on this host need about ") ==
        0);
  CHECK(
      WhyNoMemory(config, world, 1 << 20).find("; fewer processes per host, --shard-optimizer, ") !=
      std::string::npos);
}

TEST_CASE("Processes that share the optimizer's states need less memory", "[train]") {
  const TrainConfig config = Small();
  // Gibibytes of weights and moments of 2^20 processes, in the message.
  const auto weights = [&](const World& world) {
    const std::string why = WhyNoMemory(config, world, 1 << 20), name = "weights and moments ";
    return std::stod(why.substr(why.find(name) + name.size()));
  };
  const double all = 16.0 * 0x1p20 / 0x1p30 * static_cast<double>(ParameterCount(config.model));
  CHECK(weights({.size = 1 << 20}) == Catch::Approx(all).epsilon(1e-3));
  CHECK(weights({.size = 1 << 20, .shards_optimizer = true}) ==
        Catch::Approx(all / 2).epsilon(1e-3));
  CHECK(weights({.size = 2, .shards_optimizer = true}) == Catch::Approx(0.75 * all).epsilon(1e-3));
}

}  // namespace
}  // namespace fp4lab
