#include <string>

#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// A folder with the input 0000.x.npy, which holds BF16 values.
std::string MakeInput(const TemporaryFolder& folder) {
  RunProgram({"cases", "--family", "hadamard", "--bf16", "--out-dir", folder.path().string()});
  return folder / "0000.x.npy";
}

TEST_CASE("A pack holds layouts and the transform, and verify checks it", "[e2e]") {
  const TemporaryFolder folder;
  const std::string input = MakeInput(folder), pack = folder / "golden.safetensors";
  const ProcessResult made =
      RunProgram({"pack", "--input", input, "--hadamard", "16", "--layout", "high-first,128x4",
                  "--layout", "transposed,multiplier", "--out", pack});
  INFO(made.error);
  REQUIRE(made.exit_code == 0);
  const SafetensorsFile file = ReadSafetensors(pack);
  CHECK(file.metadata.at("layouts") ==
        "high-first.128x4.amax low-first.linear.multiplier.transposed");
  CHECK(file.tensors.count("transformed") == 1);
  const ProcessResult checked = RunProgram({"verify", "--pack", pack});
  CHECK(checked.exit_code == 0);
  CHECK_THAT(checked.output, ContainsSubstring("all match their hashes"));
  const auto tensor = [&](const char* name) { return pack + "#" + name; };
  const std::vector<std::string> kernel{"verify",
                                        "--pack",
                                        pack,
                                        "--codes",
                                        tensor("high-first.128x4.amax.codes"),
                                        "--scales",
                                        tensor("high-first.128x4.amax.scales"),
                                        "--codes-order",
                                        "high-first",
                                        "--scales-order"};
  std::vector<std::string> right = kernel, wrong = kernel;
  right.push_back("128x4");
  wrong.push_back("8x4");
  CHECK(RunProgram(right).exit_code == 0);
  CHECK(RunProgram(wrong).exit_code != 0);
}

TEST_CASE("A tampered pack is refused with the tensor's name", "[e2e]") {
  const TemporaryFolder folder;
  const std::string input = MakeInput(folder), pack = folder / "golden.safetensors";
  REQUIRE(RunProgram({"pack", "--input", input, "--out", pack}).exit_code == 0);
  SafetensorsFile file = ReadSafetensors(pack);
  file.tensors["scale"].bytes.Change()[3] ^= std::byte{0x10};
  WriteSafetensors(pack, file);
  const ProcessResult run = RunProgram({"verify", "--pack", pack});
  CHECK(run.exit_code == 2);
  CHECK(run.output.empty());
  CHECK(IsOneLine(run.error));
  CHECK_THAT(run.error, ContainsSubstring("golden.safetensors#scale: its SHA-256 is "));
}

TEST_CASE("fp4lab pack refuses what makes no sense in one line", "[e2e]") {
  const TemporaryFolder folder;
  const std::string input = MakeInput(folder), pack = folder / "golden.safetensors";
  const std::vector<std::vector<std::string>> commands = {
      {"pack", "--input", input + "x", "--out", pack},
      {"pack", "--input", input, "--dialect", "nvfp5", "--out", pack},
      {"pack", "--input", input, "--layout", "sideways", "--out", pack},
      {"pack", "--input", input, "--dialect", "nvfp4.te.stochastic", "--out", pack},
  };
  for (const std::vector<std::string>& arguments : commands) {
    CAPTURE(arguments);
    const ProcessResult run = RunProgram(arguments);
    CHECK(run.exit_code == 1);
    CHECK(run.output.empty());
    CHECK(IsOneLine(run.error));
  }
  CHECK(RunProgram({"pack", "--input", input}).exit_code == 2);  // no --out
}

}  // namespace
}  // namespace fp4lab
