#include <string>
#include <vector>

#include "fp4lab/base/simd.h"
#include "fp4lab/base/version.h"
#include "tests/support/catch.h"
#include "tests/support/examples.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

TEST_CASE("A command line that makes no sense is one line and exit code 2", "[e2e]") {
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
      {{"zebra"}, "\"zebra\" is not known here; see fp4lab --help"}};
  for (const auto& line : kLines) {
    const ProcessResult result = RunProgram(line.arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.error == "error: " + line.error + "\n");
  }
}

TEST_CASE("A mistyped name of a dialect, recipe, format or key is answered likewise", "[e2e]") {
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
  CHECK_THAT(error({"formats", "--values", "e4m4"}), ContainsSubstring("did you mean \"e4m3\"?"));
  CHECK_THAT(error({"train", "--set", "modle.layers=2", "--steps", "1"}),
             ContainsSubstring("unknown key; did you mean \"model\"?"));
  CHECK_THAT(error({"cases", "--family", "ties"}),
             ContainsSubstring("did you mean \"scale-ties\" or \"element-ties\"?"));
}

TEST_CASE("--version says what a report of a fault needs", "[e2e]") {
  const ProcessResult result = RunProgram({"--version"}, {.environment = {{"FP4LAB_TARGET", ""}}});
  CHECK(result.exit_code == 0);
  CHECK(result.error.empty());
  CHECK(result.output.rfind("fp4lab " + std::string(kVersion) + "\ncompiler  ", 0) == 0);
  std::string here;
  for (const std::string& target : SimdTargets()) here += " " + target;
  for (const std::string& part : std::vector<std::string>{
           ", Highway ", "\nSIMD      compiled in: ", "\n          available here:" + here + "\n",
           "\n          chosen: " + SimdTargets().front() + "\n", "\nCUDA      "}) {
    CAPTURE(part);
    CHECK(result.output.find(part) != std::string::npos);
  }
  const std::string pinned = SimdTargets().back();
  CHECK(RunProgram({"--version"}, {.environment = {{"FP4LAB_TARGET", pinned}}})
            .output.find("chosen: " + pinned + "\n") != std::string::npos);
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

TEST_CASE("A SIMD target that does not exist is refused by name", "[e2e]") {
  const ProcessResult result =
      RunProgram({"data", "list"}, {.environment = {{"FP4LAB_TARGET", "avx1"}}});
  CHECK(result.exit_code == 1);
  CHECK(IsOneLine(result.error));
  CHECK_THAT(result.error, Catch::Matchers::ContainsSubstring("avx1"));
}

// The other commands' examples are run beside their tests.
TEST_CASE("The examples in the help of data, study and train print what they say", "[e2e]") {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"data", "get"},
                                                  {"data", "list"},
                                                  {"data", "verify"},
                                                  {"study", "check"},
                                                  {"study", "show"},
                                                  {"study", "run"},
                                                  {"study", "report"},
                                                  {"train"}}) {
    CheckHelpExamples(command);
  }
}

}  // namespace
}  // namespace fp4lab
