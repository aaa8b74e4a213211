// Fuzzes the comparison of two dumps: the tensors a.* of a .safetensors file and its tensors b.*.
#include <string>
#include <utility>

#include "fp4lab/checkpoint/dumps/dump_source.h"
#include "fp4lab/checkpoint/dumps/dumps.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    SafetensorsFile file = ParseSafetensors(Input(data, size), "x.safetensors"), first, second;
    for (auto& [name, tensor] : file.tensors) {
      if (name.starts_with("a.")) first.tensors[name.substr(2)] = std::move(tensor);
      if (name.starts_with("b.")) second.tensors[name.substr(2)] = std::move(tensor);
    }
    const DumpReport report =
        CompareDumps(DumpSource(std::move(first)), DumpSource(std::move(second)), {});
    if (ReportText(report).empty() || ReportJson(report).dump().empty()) std::abort();
  });
  return 0;
}
