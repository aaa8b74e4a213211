// Fuzzes the reader of results.json and, on top of it, the analysis and the report.
#include "fp4lab/study/report/report.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    Json json = ParseJson({reinterpret_cast<const char*>(data), size}, "x.json");
    study::MakeReport(study::AnalyzeStudy("x.json", std::move(json), /*draws=*/8));
  });
  return 0;
}
