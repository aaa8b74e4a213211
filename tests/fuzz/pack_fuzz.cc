// Fuzzes the reader of golden packs. The target sets all hashes, so that damage behind them is
// reached: the answer of an accepted pack is computed again, as `fp4lab verify --pack` does.
#include "fp4lab/base/hash.h"
#include "fp4lab/judge/packs/pack.h"
#include "tests/fuzz/fuzz.h"

namespace {

// The digest that pack.h describes.
std::string Digest(const fp4lab::SafetensorsFile& file) {
  std::string text;
  for (const auto& [key, value] : file.metadata) {
    if (key != "digest") text += key + "=" + value + "\n";
  }
  for (const auto& [name, tensor] : file.tensors) {
    text += name + " " + tensor.dtype;
    for (const std::size_t n : tensor.shape) text += " " + std::to_string(n);
    text += "\n";
  }
  return fp4lab::Sha256(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    SafetensorsFile file = ParseSafetensors(Input(data, size), "x.safetensors");
    OneLineOrNothing([&] { ReadPack(file, "x.safetensors"); });
    for (const auto& [name, tensor] : file.tensors) {
      file.metadata["sha256." + name] = Sha256(std::span<const std::byte>(tensor.bytes));
    }
    file.metadata["digest"] = Digest(file);
    RecomputedAnswer(ReadPack(file, "x.safetensors"));
  });
  return 0;
}
