#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/process.h"
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

// A C program that prints the header's arrays as the bytes of their words.
constexpr const char* kPrintArrays = R"(#include <stdio.h>
#include "golden.h"
#define PRINT(array) for (unsigned i = 0; i < golden_##array##_SIZE; ++i) \
  fwrite(&golden_##array[i], sizeof golden_##array[i], 1, stdout)
int main(void) {
  if (sizeof golden_codes != golden_ROWS * golden_COLS) return 1;
  PRINT(input); PRINT(amax); PRINT(scaled); PRINT(scale); PRINT(codes);
  PRINT(high_first_128x4_amax_codes);
  return 0;
}
)";

TEST_CASE("A pack as a C header compiles and holds the pack's bytes", "[e2e]") {
  const TemporaryFolder folder;
  const std::string input = MakeInput(folder), pack = folder / "golden.safetensors";
  const std::string header = folder / "golden.h";
  const auto made = [&](const std::string& form, const std::string& out) {
    return RunProgram(
        {"pack", "--input", input, "--layout", "high-first,128x4", "--form", form, "--out", out});
  };
  REQUIRE(made("safetensors", pack).exit_code == 0);
  const ProcessResult run = made("c-header", header);
  INFO(run.error);
  REQUIRE(run.exit_code == 0);
  WriteFileAtomically(folder / "print.c", std::string_view(kPrintArrays));
  const SafetensorsFile file = ReadSafetensors(pack);
  std::string expected;
  for (const char* name :
       {"input", "amax", "scaled", "scale", "codes", "high-first.128x4.amax.codes"}) {
    const auto& bytes = file.tensors.at(name).bytes;
    expected.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  for (const char* language : {"c", "c++"}) {
    const ProcessResult compiled =
        RunProcess({"gcc", "-x", language, "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable",
                    folder / "print.c", "-o", folder / "print"});
    INFO(compiled.error);
    REQUIRE(compiled.exit_code == 0);
    const ProcessResult printed = RunProcess({folder / "print"});
    CHECK(printed.exit_code == 0);
    CHECK(printed.output == expected);
  }
}

TEST_CASE("A pack as hex files goes into a folder of its own", "[e2e]") {
  const TemporaryFolder folder;
  const std::string input = MakeInput(folder), out = folder / "hex";
  const auto pack = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"pack", "--input", input, "--out", out});
    return RunProgram(more);
  };
  const ProcessResult run = pack({"--form", "readmemh"});
  INFO(run.error);
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("tensors of nvfp4.te"));
  for (const char* name :
       {"input.hex", "codes.hex", "scale.hex", "low_first_linear_amax_codes.hex"}) {
    CHECK_THAT(ReadFile(std::filesystem::path(out) / name), ContainsSubstring("$readmemh(\""));
  }
  CHECK(pack({"--form", "readmemh"}).exit_code == 0);  // the same pack again
  const ProcessResult other = pack({"--form", "readmemh", "--layout", "high-first"});
  CHECK(other.exit_code == 1);
  CHECK(IsOneLine(other.error));
  CHECK_THAT(other.error, ContainsSubstring("which is not of this pack; name an empty folder"));
}

TEST_CASE("fp4lab pack refuses forms and names that do not fit", "[e2e]") {
  const TemporaryFolder folder;
  const std::string input = MakeInput(folder);
  const std::vector<std::pair<std::vector<std::string>, const char*>> commands = {
      {{"--form", "readmem", "--out", folder / "a"}, "did you mean \"readmemh\""},
      {{"--form", "c-header", "--out", folder / "a.hpp"}, "is not the name of a C header"},
      {{"--form", "c-header", "--out", folder / "1a.h"}, "is not the name of a C header"},
      {{"--form", "coe", "--out", input}, "is a file; --form coe writes a folder"},
      {{"--out", folder / "a.h"}, "end it with .safetensors"},
  };
  for (const auto& [more, text] : commands) {
    std::vector<std::string> arguments = {"pack", "--input", input};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CAPTURE(arguments);
    const ProcessResult run = RunProgram(arguments);
    CHECK(run.exit_code == 2);
    CHECK(IsOneLine(run.error));
    CHECK_THAT(run.error, ContainsSubstring(text));
  }
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
