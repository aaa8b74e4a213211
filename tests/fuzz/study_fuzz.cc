// Fuzzes study files: an accepted study is resolved, printed, and read again as the same study.
#include "fp4lab/study/run/study.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const study::Study study =
        study::ParseStudy({reinterpret_cast<const char*>(data), size}, "x.json");
    const std::string resolved = study::ToJson(study).dump();
    if (study::ToJson(study::ParseStudy(resolved, "again")).dump() != resolved) std::abort();
    for (const study::Arm& arm : study.arms) study::PlanOf(study, arm);
  });
  return 0;
}
