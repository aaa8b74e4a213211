#include "fp4lab/io/tensors/npy.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const NpyArray array = ParseNpy(Input(data, size), "x.npy");
    const NpyArray again = ParseNpy(FormatNpy(array), "again.npy");
    if (again.bytes != array.bytes || again.shape != array.shape) std::abort();
    array.As<float>();
  });
  return 0;
}
