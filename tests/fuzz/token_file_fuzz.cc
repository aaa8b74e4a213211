#include "fp4lab/data/token_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const std::vector<std::uint16_t> tokens = ParseTokenFile(Input(data, size), "x.bin");
    if (2 * tokens.size() + 1024 != size) std::abort();
  });
  return 0;
}
