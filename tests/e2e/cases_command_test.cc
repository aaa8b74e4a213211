#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/examples.h"
#include "tests/support/golden.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string PipeKernel(const std::string& mode) {
  const char* path = std::getenv("FP4LAB_PIPE_KERNEL");
  REQUIRE(path != nullptr);
  return "'" + std::string(path) + "' " + mode;
}

TEST_CASE("A kernel written from the formulas alone passes all cases through the pipe", "[e2e]") {
  for (const char* arguments : {"", "--bf16", "--seed 7"}) {
    CAPTURE(arguments);
    const ProcessResult run = PipeCases(arguments, PipeKernel("right"), arguments);
    CHECK(run.exit_code == 0);
    CHECK(run.error.empty());
    CHECK_THAT(run.output, ContainsSubstring("cases as the dialect has them\n"));
  }
}

TEST_CASE("Wrong kernels fail through the pipe, in the families of their cause", "[e2e]") {
  const ProcessResult truncates = PipeCases("", PipeKernel("truncates"), "");
  CHECK(truncates.exit_code == 1);
  CHECK_THAT(truncates.output, ContainsSubstring("  element-ties: 4 of 4 differ"));

  const ProcessResult divides = PipeCases("--bf16", PipeKernel("divides-first"), "--bf16 --json");
  CHECK(divides.exit_code == 1);
  const Json json = ParseJson(divides.output, "verify");
  std::set<std::string> families;
  for (const Json& c : json["cases"]) {
    if (c["equal"] == false) families.insert(c["name"].get<std::string>().substr(0, 13));
  }
  CHECK(families == std::set<std::string>{"scale-hazards"});

  const ProcessResult nibbles = PipeCases("", PipeKernel("high-first"), "");
  CHECK(nibbles.exit_code == 1);
  CHECK(PipeCases("", PipeKernel("high-first"), "--codes-order high-first").exit_code == 0);
}

TEST_CASE("A kernel may decline cases only where that is allowed", "[e2e]") {
  CHECK(PipeCases("", PipeKernel("declines"), "").exit_code == 1);
  const ProcessResult run = PipeCases("", PipeKernel("declines"), "--allow-declined");
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("; 8 declined\n"));
}

TEST_CASE("Invalid answer streams are errors: exit code 2 and one line", "[e2e]") {
  const struct {
    std::string arguments, kernel, verify, error;
  } runs[] = {
      {"", PipeKernel("garbage"), "", "does not start with the line \"fp4lab-answers 1\""},
      {"", PipeKernel("stops"), "", "holds no answer to case 3"},
      {"", "true", "", "is empty: it holds no answers"},
      {"", PipeKernel("right"), "--seed 2", "verify needs the options that cases was given"},
      {"", PipeKernel("right"), "--scales-order 128x4", "state the layout that the kernel writes"},
      {"", PipeKernel("right"), "--dialect nvfp5", "nvfp5: is not known"},
      {"", PipeKernel("right"), "--level slow", "is not a level; quick or thorough"},
      {"", PipeKernel("right"), "--family tyes", "family tyes: is not known"},
  };
  for (const auto& [arguments, kernel, verify, error] : runs) {
    CAPTURE(kernel, verify);
    const ProcessResult run = PipeCases(arguments, kernel, verify);
    CHECK(run.exit_code == 2);
    CHECK(run.output.empty());
    CHECK(IsOneLine(run.error));
    CHECK_THAT(run.error, ContainsSubstring(error));
  }
}

TEST_CASE("fp4lab cases answer is a kernel of any dialect, right or wrong", "[e2e]") {
  for (const char* dialect : {"nvfp4.te.2d", "mxfp4.rceil", "nvfp4.te.stochastic"}) {
    CAPTURE(dialect);
    const std::string of = std::string("--dialect ") + dialect;
    const std::string cases = of + " --family element-ties --family tails";
    const std::string answer = "'" + Program() + "' cases answer " + of;
    const std::string swizzled = " --scales-order 128x4";
    CHECK(PipeCases(cases, answer + swizzled, cases + swizzled).exit_code == 0);
    CHECK(PipeCases(cases, answer + " --deviation truncation", cases).exit_code == 1);
  }
  const ProcessResult unknown = RunProgram({"cases", "answer", "--deviation", "tiredness"});
  CHECK(unknown.exit_code == 1);
  CHECK(IsOneLine(unknown.error));
  CHECK(unknown.output.empty());
  // Without an answer, verify gets nothing, and says so in place of a complaint about the header.
  for (const char* refused : {"--deviation tiredness", "--dialect nvfp4.te.stochastic"}) {
    CAPTURE(refused);
    const std::string answer = "'" + Program() + "' cases answer " + refused;
    CHECK(RunProcess({"sh", "-c", "'" + Program() + "' cases | " + answer}).output.empty());
    const ProcessResult run = PipeCases("", answer, "");
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.error, ContainsSubstring("standard input: is empty: it holds no answers; the "
                                            "program that writes them says why\n"));
  }
  const ProcessResult garbage = RunProgram({"cases", "answer"}, {.input = "hello\n"});
  CHECK(garbage.exit_code == 1);
  CHECK_THAT(garbage.error, ContainsSubstring("standard input: holds no cases"));
}

TEST_CASE("Cases and answers go through folders, as .npy and as .safetensors", "[e2e]") {
  const TemporaryFolder folder;
  for (const bool safetensors : {false, true}) {
    CAPTURE(safetensors);
    const std::string in = folder / ("in" + std::to_string(safetensors));
    std::vector<std::string> arguments{"cases", "--family", "signs", "--out-dir", in};
    if (safetensors) arguments.push_back("--safetensors");
    CHECK(RunProgram(arguments).output == "1 cases in " + in + "\n");
    const Json index = ReadJsonFile(std::filesystem::path(in) / "cases.json");
    CHECK(index["cases"].size() == 1);
    CHECK(index["cases"][0]["name"] == "signs");
    // A golden pack's answer serves as a kernel's.
    const std::string input = safetensors ? in + "/0000.safetensors#x" : in + "/0000.x.npy";
    const std::string pack = folder / "pack.safetensors";
    REQUIRE(RunProgram({"pack", "--input", input, "--out", pack}).exit_code == 0);
    const SafetensorsFile golden = ReadSafetensors(pack);
    const std::string name = "low-first.linear.amax.";
    SafetensorsFile answer;
    for (const char* part : {"codes", "scales", "tensor_scale"}) {
      answer.tensors[part] = golden.tensors.at(name + part);
    }
    const std::string out = folder / ("out" + std::to_string(safetensors));
    const auto verify = [&] {
      return RunProgram({"verify", "--family", "signs", "--answers", out});
    };
    WriteSafetensors(std::filesystem::path(out) / "0000.safetensors", answer);
    CHECK(verify().exit_code == 0);
    answer.tensors["level_two"] = answer.tensors.extract("tensor_scale").mapped();  // the old name
    WriteSafetensors(std::filesystem::path(out) / "0000.safetensors", answer);
    CHECK(verify().exit_code == 0);
    answer.tensors["codes"].bytes.Change()[9] ^= std::byte{1};
    WriteSafetensors(std::filesystem::path(out) / "0000.safetensors", answer);
    CHECK(verify().exit_code == 1);
    std::filesystem::remove(std::filesystem::path(out) / "0000.safetensors");
    const ProcessResult missing = verify();
    CHECK(missing.exit_code == 2);
    CHECK_THAT(missing.error, ContainsSubstring("case 0 (signs): has no answer"));
    const auto bytes = [&](const char* part) {
      const auto& b = golden.tensors.at(name + part).bytes;
      const auto* first = reinterpret_cast<const std::uint8_t*>(b.data());
      return std::vector<std::uint8_t>(first, first + b.size());
    };
    for (const char* part : {"codes", "scales"}) {
      const std::vector<std::uint8_t> content = bytes(part);
      WriteNpy(std::filesystem::path(out) / ("0000." + std::string(part) + ".npy"),
               MakeNpyArray<std::uint8_t>({content.size()}, content));
    }
    const ProcessResult without =
        RunProgram({"verify", "--family", "signs", "--answers", out, "--tensor-scale-is", "none"});
    CHECK(without.exit_code == 0);
    CHECK_THAT(without.output, ContainsSubstring("1 of 1 cases"));
  }
}

TEST_CASE("fp4lab cases --list names the cases", "[e2e]") {
  const ProcessResult run = RunProgram({"cases", "--list"});
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("element-ties/bf16"));
  CHECK_THAT(run.output, ContainsSubstring(" cases for nvfp4.te, "));
  const Json json = ParseJson(RunProgram({"cases", "--list", "--json"}).output, "list");
  CHECK(json["cases"].size() > 60);
}

TEST_CASE("fp4lab cases --mutation-report shows what a set catches and random data misses",
          "[e2e]") {
  const ProcessResult run = RunProgram({"cases", "--dialect", "mxfp4.floor", "--family",
                                        "negative-zero", "--family", "randn", "--mutation-report"});
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("  1  2  set  control\n"));
  CHECK_THAT(run.output, ContainsSubstring("  1  .  yes  no\n"));
  const Json json = ParseJson(RunProgram({"cases", "--dialect", "mxfp4.floor", "--family", "signs",
                                          "--family", "randn", "--mutation-report", "--json"})
                                  .output,
                              "report");
  CHECK(json["families"].size() == 2);
  CHECK(json["mutants"].size() >= 25);
}

TEST_CASE("fp4lab cases refuses what makes no sense in one line", "[e2e]") {
  for (const std::vector<std::string>& arguments : {
           std::vector<std::string>{"cases", "--dialect", "nvfp5"},
           {"cases", "--level", "slow"},
           {"cases", "--family", "tyes"},
           {"cases", "--dialect", "fp8_e4m3", "--family", "scale-ties"},
       }) {
    CAPTURE(arguments);
    const ProcessResult run = RunProgram(arguments);
    CHECK(run.exit_code == 1);
    CHECK(run.output.empty());
    CHECK(IsOneLine(run.error));
  }
}

TEST_CASE("The examples in the help of cases, verify and pack print what they say", "[e2e]") {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"cases"}, {"cases", "answer"}, {"verify"}, {"pack"}}) {
    CheckHelpExamples(command);
  }
}

}  // namespace
}  // namespace fp4lab
