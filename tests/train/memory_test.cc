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
  CHECK(WhyNoMemory(config, 2).empty());
  CHECK(WhyNoMemory(config, 1 << 20).find("1048576 processes on this host need about ") == 0);
  CHECK(WhyNoMemory(config, 1 << 20).find("; fewer processes per host, ") != std::string::npos);
}

}  // namespace
}  // namespace fp4lab
