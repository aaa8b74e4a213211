// Fuzzes the reader of .safetensors files and, on top of it, the readers of their quantized
// matrices.
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const SafetensorsFile file = ParseSafetensors(Input(data, size), "x.safetensors");
    if (!(ParseSafetensors(FormatSafetensors(file), "again") == file)) std::abort();
    for (const StoredFileEntry& entry : ListStored(file)) {
      OneLineOrNothing(
          [&] { StoredValues(ReadStored(file, entry, {}, "x.safetensors").matrix, 448.0f, "x"); });
    }
  });
  return 0;
}
