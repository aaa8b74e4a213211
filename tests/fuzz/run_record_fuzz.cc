// Fuzzes the reader of run records: an accepted record is written, and read again as the same
// record.
#include "fp4lab/study/run/record/run_record.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const Json json = ParseJson({reinterpret_cast<const char*>(data), size}, "x.json");
    const std::string text = ToJson(study::ReadRunRecord(json, "x.json")).dump();
    if (ToJson(study::ReadRunRecord(ParseJson(text, "again"), "again")).dump() != text) {
      std::abort();
    }
  });
  return 0;
}
