#include "fp4lab/io/tensors/npy.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const NpzFile file(Input(data, size), "x.npz");
    for (const std::string& name : file.Names()) {
      OneLineOrNothing([&] { file.Read(name); });
    }
  });
  return 0;
}
