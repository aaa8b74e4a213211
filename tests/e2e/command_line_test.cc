#include <string>
#include <vector>

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
