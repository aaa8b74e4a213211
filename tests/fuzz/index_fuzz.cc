// Fuzzes the readers of a checkpoint's JSON: its index and its quantization configuration.
#include <string_view>

#include "fp4lab/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  OneLineOrNothing([&] {
    for (const auto& [tensor, file] : ParseIndex(ParseJson(text, "index"), "index")) {
      if (file.find('/') != std::string::npos) std::abort();
    }
  });
  OneLineOrNothing([&] {
    const QuantizationConfig config = ParseQuantizationConfig(ParseJson(text, "config"), "config");
    IsExcluded(config, "model.layers.0.mlp.up_proj");
  });
  return 0;
}
