// Fuzzes the inputs of grouped products and attention: a .safetensors file whose tensors are read
// as operands, as groups and as Q, K and V; and lists of numbers.
#include <cstddef>
#include <string>

#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/judge/attention/attention_file.h"
#include "fp4lab/judge/products/grouped/grouped_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  const std::string text(reinterpret_cast<const char*>(data), size);
  // A list that names a file would be read from the disk.
  OneLineOrNothing([&] {
    if (text.find('#') == text.npos && text.find(':') == text.npos) {
      ReadNumberList(text.substr(0, 64) + ",1", "--alphas");
    }
  });
  static const TemporaryFolder folder;
  const std::string path = (folder / "x.safetensors").string();
  WriteFileAtomically(path, text);
  for (const char* scheme : {"bf16", "nvfp4-kv", "sageattention3"}) {
    OneLineOrNothing([&] {
      const AttentionPlan plan =
          ReadAttention({.q = path + "#q", .k = path + "#k", .v = path + "#v"},
                        RequireAttentionScheme(scheme, "x"));
      if (DescriptionOf(plan).dump().empty()) std::abort();
    });
  }
  OneLineOrNothing([&] {
    const GroupedInputs in = ReadGrouped({.a = path + "#a",
                                          .b = path + "#b",
                                          .operand = "bf16",
                                          .ends = path + "#ends",
                                          .alphas = path + "#alphas"});
    CheckGroups(in, "x");
  });
  OneLineOrNothing([&] {
    ReadGrouped({.a = path + "#a", .b = path + "#b.{}", .sizes = path + "#sizes", .padded_to = 16});
  });
  return 0;
}
