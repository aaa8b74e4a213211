// Fuzzes the reader of TensorBoard's event files. The input is the data of one record; its CRCs are
// set here, so that what stands behind them is reached, and the input as a file is read, too.
#include <string>

#include "fp4lab/study/parity/event_file.h"
#include "fp4lab/study/parity/metric_log.h"
#include "tests/fuzz/fuzz.h"

namespace {

std::string Bytes(std::uint64_t bits, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xFF);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::string length = Bytes(size, 8);
  const std::string record =
      length + Bytes(study::MaskedCrc(length), 4) + input + Bytes(study::MaskedCrc(input), 4);
  for (const std::string& file : {record, input}) {
    OneLineOrNothing([&] { study::ReadMetricEvents(file, "x.tfevents"); });
  }
  return 0;
}
