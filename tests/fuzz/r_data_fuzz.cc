// Fuzzes the readers of R's data files: of databases, of the objects in them, and of an object
// without a database around it.
#include "fp4lab/data/r_data.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  OneLineOrNothing([&] { LinesOfCharacterVector(bytes, "x"); });
  OneLineOrNothing([&] {
    for (const std::string& object : ReadLazyLoadRecords(bytes, "x")) {
      OneLineOrNothing([&] { LinesOfCharacterVector(object, "x"); });
    }
  });
  return 0;
}
