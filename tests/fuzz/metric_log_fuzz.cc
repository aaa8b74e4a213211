// Fuzzes the reader of metrics as text, and with it the comparison of a run with itself.
#include "fp4lab/study/parity/parity.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const study::MetricLog log =
        study::ReadMetricText({reinterpret_cast<const char*>(data), size}, "x.csv");
    if (log.series.contains(study::kLossKey)) {
      study::ParityText(study::ParityDocument({{log}, {log}}, {.last = 1}));
    }
  });
  return 0;
}
