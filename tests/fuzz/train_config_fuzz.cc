// Fuzzes the configurations of training runs: an accepted configuration is resolved, printed, and
// read again as the same configuration.
#include "fp4lab/train/config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const Json json = ParseJson({reinterpret_cast<const char*>(data), size}, "x.json");
    const TrainConfig config = ReadTrainConfig(json, "x.json");
    const std::string text = ToJson(config).dump();
    if (!(ReadTrainConfig(ParseJson(text, "again"), "again") == config)) std::abort();
    if (TotalSteps(config) > kMostSteps || TokensPerStep(config) <= 0) std::abort();
  });
  return 0;
}
