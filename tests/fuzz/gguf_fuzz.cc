// Fuzzes the reader of .gguf files and, on top of it, the reader of their quantized matrices.
#include "fp4lab/exchange/vendors/vendor.h"
#include "fp4lab/io/tensors/gguf.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const GgufFile file = ParseGguf(Input(data, size), "x.gguf");
    if (!(ParseGguf(FormatGguf(file), "again") == file)) std::abort();
    for (const std::string& name : ListGgufMatrices(file)) {
      OneLineOrNothing([&] { StoredValues(ReadGgufMatrix(file, name, "x.gguf"), 448.0f, "x"); });
    }
  });
  return 0;
}
