#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/base/version.h"
#include "fp4lab/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/examples.h"
#include "tests/support/program.h"
#include "tests/support/sanitizer.h"

namespace fp4lab {
namespace {

std::string Repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

TEST_CASE("An invalid command line gives one line and exit code 2", "[e2e]") {
  const std::vector<std::vector<std::string>> lines{{},
                                                    {"nonsense"},
                                                    {"--nonsense"},
                                                    {"data"},
                                                    {"data", "nonsense"},
                                                    {"data", "get"},
                                                    {"data", "list", "--nonsense"},
                                                    {"data", "get", "austen", "twice"},
                                                    {"data", "list", "-x", "-y"}};
  for (const auto& arguments : lines) {
    const ProcessResult result = RunProgram(arguments);
    INFO(result.error);
    CHECK(result.exit_code == 2);
    CHECK(result.output.empty());
    CHECK(IsOneLine(result.error));
    CHECK(result.error.find("error: ") == 0);
  }
  CHECK_THAT(RunProgram({"nonsense"}).error, Catch::Matchers::ContainsSubstring("nonsense"));
  CHECK_THAT(RunProgram({"data", "list", "--nonsense"}).error,
             Catch::Matchers::ContainsSubstring("--nonsense"));
}

TEST_CASE("A mistyped subcommand or option is answered with what it may have been", "[e2e]") {
  const struct {
    std::vector<std::string> arguments;
    std::string error;
  } kLines[] = {
      {{"verfy"}, "\"verfy\" is not known here; did you mean \"verify\"?"},
      {{"data", "gte"}, "\"gte\" is not known here; did you mean \"get\"?"},
      {{"--verison"}, "\"--verison\" is not known here; did you mean \"--version\"?"},
      {{"verify", "--inptu", "x"}, "\"--inptu\" is not known here; did you mean \"--input\"?"},
      {{"verify", "gemm", "--undr=x"}, "\"--undr=x\" is not known here; did you mean \"--under\"?"},
      {{"data", "get", "austen", "twice"},
       "\"twice\" is not known here; see fp4lab data get --help"},
      {{"watch"}, "\"watch\" is not known here; did you mean \"fp4lab study watch\"?"},
      {{"study", "recipes"}, "\"recipes\" is not known here; did you mean \"fp4lab recipes\"?"},
      {{"zebra"}, "\"zebra\" is not known here; see fp4lab --help"}};
  for (const auto& line : kLines) {
    const ProcessResult result = RunProgram(line.arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.error == "error: " + line.error + "\n");
  }
}

TEST_CASE("A word of thousands of letters does not hide the remedy", "[e2e]") {
  for (const std::string& word : {std::string(20000, 'a'), "a" + Repeated("\xC3\xA9", 9999)}) {
    const ProcessResult result = RunProgram({"dialects", word});
    CHECK(result.exit_code == 1);
    CHECK(IsOneLine(result.error));
    CHECK(result.error.size() < 400);
    CHECK_THAT(result.error, Catch::Matchers::ContainsSubstring("..."));
    CHECK_THAT(result.error, Catch::Matchers::ContainsSubstring("`fp4lab dialects` lists them"));
  }
}

TEST_CASE("A mistyped dialect, recipe, format or key gets a suggestion", "[e2e]") {
  const auto error = [](const std::vector<std::string>& arguments) {
    const ProcessResult result = RunProgram(arguments);
    CHECK(result.exit_code == 1);
    CHECK(IsOneLine(result.error));
    return result.error;
  };
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(error({"dialects", "NVFP4-TE"}), ContainsSubstring("did you mean \"nvfp4.te\"?"));
  CHECK_THAT(error({"cases", "--dialect", "mxfp4.recil"}),
             ContainsSubstring("did you mean \"mxfp4.rceil\" or \"mxfp4.ceil\"?"));
  CHECK_THAT(error({"train", "--recipe", "te-nvfp4", "--steps", "1"}),
             ContainsSubstring("did you mean \"te_nvfp4\"?"));
  CHECK_THAT(error({"formats", "--values", "e4m4"}),
             ContainsSubstring("did you mean \"e3m4\" or \"e4m3\"?"));
  CHECK_THAT(error({"formats", "--values", "float4_e2m1"}),
             ContainsSubstring("did you mean \"float4_e2m1fn\""));
  CHECK_THAT(error({"train", "--set", "modle.layers=2", "--steps", "1"}),
             ContainsSubstring("unknown key; did you mean \"model\"?"));
  CHECK_THAT(error({"cases", "--level", "thorogh"}),
             ContainsSubstring("did you mean \"thorough\"?"));
  CHECK_THAT(error({"cases", "--family", "ties"}),
             ContainsSubstring("did you mean \"scale-ties\" or \"element-ties\"?"));
}

TEST_CASE("A mistyped word of an option's list gets a suggestion, and the list where none is near",
          "[e2e]") {
  const struct {
    std::vector<std::string> arguments;
    std::string error;
  } kLines[] = {{{"crosscheck", "--level", "quik"},
                 "--level: \"quik\" is not known; did you mean \"quick\"?"},
                {{"crosscheck", "--device", "tpu"},
                 "--device: \"tpu\" is not known; did you mean \"cpu\" or \"gpu\"?"},
                {{"parity", "a.csv", "--baseline", "b.csv", "--by", "epochs"},
                 "--by: \"epochs\" is not known; one of: steps tokens"},
                {{"completion", "fihs"}, "completion fihs: is not known; did you mean \"fish\"?"},
                {{"completion", "tcsh"}, "completion tcsh: is not known; one of: bash zsh fish"}};
  for (const auto& line : kLines) {
    CAPTURE(line.arguments);
    const ProcessResult result = RunProgram(line.arguments);
    CHECK(result.exit_code == 2);
    const std::string help = "; see fp4lab " + line.arguments[0] + " --help\n";
    CHECK(result.error == "error: " + line.error + help);
  }
}

TEST_CASE("--version prints what a bug report needs", "[e2e]") {
  const ProcessResult result = RunProgram({"--version"}, {.environment = {{"FP4LAB_TARGET", ""}}});
  CHECK(result.exit_code == 0);
  CHECK(result.error.empty());
  CHECK(result.output.rfind("fp4lab " + std::string(kVersion) + ", commit ", 0) == 0);
  std::string here;
  for (const std::string& target : SimdTargets()) here += " " + target;
  for (const std::string& part : std::vector<std::string>{
           "\ncompiler  ", ", Highway ",
           "\nSIMD      compiled in: ", "\n          available here:" + here + "\n",
           "\n          chosen: " + SimdTargets().front() + "\n", "\nCUDA      ", "\nMPI       "}) {
    CAPTURE(part);
    CHECK(result.output.find(part) != std::string::npos);
  }
  const std::string pinned = SimdTargets().back();
  CHECK(RunProgram({"--version"}, {.environment = {{"FP4LAB_TARGET", pinned}}})
            .output.find("chosen: " + pinned + "\n") != std::string::npos);
}

TEST_CASE("CITATION.cff cites this version, and CHANGELOG.md has it", "[e2e]") {
  const std::filesystem::path root = FP4LAB_TEST_SOURCE_DIR;
  const std::string version(kVersion);
  CHECK(ReadFile(root / "CITATION.cff").find("\nversion: " + version + "\n") != std::string::npos);
  CHECK(ReadFile(root / "CHANGELOG.md").find("\n## " + version) != std::string::npos);
}

TEST_CASE("Help goes to standard output and is no error", "[e2e]") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"data", "--help"}, {"data", "get", "--help"}}) {
    const ProcessResult result = RunProgram(arguments);
    CHECK(result.exit_code == 0);
    CHECK(result.error.empty());
    CHECK_THAT(result.output, Catch::Matchers::ContainsSubstring("Usage: "));
  }
}

TEST_CASE("A number that its option cannot take is refused with its range, in every command",
          "[e2e]") {
  const auto refuses = [](std::vector<std::string> command, const std::string& option,
                          const std::string& value, const std::string& range) {
    command.insert(command.end(), {option, value});
    const ProcessResult result = RunProgram(command);
    INFO(result.error);
    CHECK(result.exit_code == 2);
    CHECK(IsOneLine(result.error));
    CHECK_THAT(result.error,
               Catch::Matchers::ContainsSubstring(option + ": \"" + value +
                                                  "\" is not a whole number from " + range));
  };
  const std::string seeds = "0 to 18446744073709551615";
  const std::vector<std::vector<std::string>> seeded = {{"train"},
                                                        {"cases"},
                                                        {"verify"},
                                                        {"identify", "--input", "x.npy"},
                                                        {"quantize", "x.npy", "--out", "q.npz"}};
  for (const std::vector<std::string>& command : seeded) {
    for (const char* value : {"-1", "18446744073709551616", "1.5", "1e3", "seven", "0x10", ""}) {
      refuses(command, "--seed", value, seeds);
    }
  }
  for (const char* value : {"0", "-1", "4294967296", "72057594037927937"}) {
    refuses({"train"}, "--steps", value, "1 to 4294967295");
  }
  refuses({"train"}, "--tokens-budget", "0", "1 to ");
  refuses({"train"}, "--tokens-budget", "9223372036854775808", "1 to ");
  refuses({"train"}, "--eval-every", "-1", "0 to ");
  refuses({"verify"}, "--show", "-1", "0 to ");
  for (const char* value : {"0", "-1", "100000", "4294967297"}) {
    refuses({"train"}, "--threads", value, "1 to 1024");
    refuses({"bench"}, "--threads", value, "1 to 1024");
    refuses({"what-if", "run"}, "--threads", value, "1 to 1024");
    refuses({"study", "run", "x.json"}, "--jobs", value, "1 to 1024");
    refuses({"study", "run", "x.json"}, "--threads-per-job", value, "1 to 1024");
  }
  const ProcessResult result =
      RunProgram({"study", "run", "x.json", "--checkpoint-seconds", "nan"});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.error, Catch::Matchers::ContainsSubstring("is not a number from 0 to 86400"));
}

TEST_CASE("More threads than there may be are refused by the variable's name", "[e2e]") {
  const ProcessResult result =
      RunProgram({"data", "list"}, {.environment = {{"OMP_NUM_THREADS", "100000"}}});
  CHECK(result.exit_code == 1);
  CHECK(result.error == "error: OMP_NUM_THREADS=100000: must be at most 1024\n");
}

TEST_CASE("A file too large for memory is named in the error", "[e2e]") {
  if (MemoryHasNoLimit()) return;
  const auto run = [](const std::string& command) {
    ProcessOptions options;
    options.timeout_seconds = 60;
    return RunProcess({"sh", "-c", "ulimit -v 400000; exec '" + Program() + "' " + command},
                      options);
  };
  const TemporaryFolder folder;
  const std::string path = (folder / "x.bin").string();
  WriteFileAtomically(path, std::string_view("x"));
  std::filesystem::resize_file(path, 600 << 20);  // sparse: takes no disk space
  const ProcessResult quantize =
      run("quantize " + path + " --shape 15360x40960 --dtype uint8 --out " + path + ".npz");
  CHECK(quantize.exit_code == 1);
  CHECK(IsOneLine(quantize.error));
  CHECK_THAT(quantize.error,
             Catch::Matchers::ContainsSubstring("x.bin: cannot be read: Cannot allocate memory"));
  const ProcessResult verify =
      run("verify --input " + path + " --shape 15360x40960 --dtype uint8 " + "--codes " + path +
          " --scales " + path);
  CHECK(verify.exit_code == 2);
  CHECK(IsOneLine(verify.error));
  CHECK_THAT(verify.error,
             Catch::Matchers::ContainsSubstring("x.bin: cannot be read: Cannot allocate memory"));
}

TEST_CASE("A SIMD target that does not exist is refused by name", "[e2e]") {
  const ProcessResult result =
      RunProgram({"data", "list"}, {.environment = {{"FP4LAB_TARGET", "avx1"}}});
  CHECK(result.exit_code == 1);
  CHECK(IsOneLine(result.error));
  CHECK_THAT(result.error, Catch::Matchers::ContainsSubstring("avx1"));
}

// The other commands' examples are run beside their tests.
TEST_CASE("The examples in the help of data, study, train and what-if print what they say",
          "[e2e]") {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"data", "get"},
                                                  {"data", "list"},
                                                  {"data", "verify"},
                                                  {"study", "check"},
                                                  {"study", "show"},
                                                  {"study", "run"},
                                                  {"study", "report"},
                                                  {"study", "runs"},
                                                  {"study", "submit"},
                                                  {"study", "collect"},
                                                  {"study", "plan"},
                                                  {"train"},
                                                  {"completion"},
                                                  {"man"},
                                                  {"what-if"}}) {
    CheckHelpExamples(command);
  }
}

}  // namespace
}  // namespace fp4lab
