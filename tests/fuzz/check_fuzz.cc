// Fuzzes the check of a checkpoint: naming, readings, scans and findings of any .safetensors file,
// also compared with itself as the original.
#include <utility>

#include "fp4lab/checkpoint/check.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    ModelFiles checkpoint;
    checkpoint.path = "x.safetensors";
    checkpoint.shards.push_back({"x.safetensors", nullptr, size});
    checkpoint.tensors = ParseSafetensors(Input(data, size), "x.safetensors");
    for (const auto& [name, tensor] : checkpoint.tensors.tensors) checkpoint.shard[name] = 0;
    const auto config = checkpoint.tensors.metadata.find("config");
    if (config != checkpoint.tensors.metadata.end()) {
      checkpoint.config = ParseQuantizationConfig(ParseJson(config->second, "config"), "config");
    }
    const CheckReport report = CheckCheckpoint(checkpoint, {});
    if (ReportText(report).empty() || ReportJson(report).dump().empty()) std::abort();
  });
  return 0;
}
