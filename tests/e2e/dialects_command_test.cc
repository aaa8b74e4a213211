#include <string>

#include "fp4lab/dialect/describe.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("fp4lab dialects prints a line for every row of the table", "[tools]") {
  const ProcessResult run = RunProgram({"dialects"});
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("dialect  "));
  std::size_t lines = 0, at = 0;
  for (const Dialect& d : Dialects()) {
    const std::size_t line = run.output.find("\n" + std::string(d.name) + " ", at);
    CAPTURE(d.name);
    REQUIRE(line != std::string::npos);  // in the order of the table
    const std::string text =
        run.output.substr(line + 1, run.output.find('\n', line + 1) - line - 1);
    CHECK_THAT(text, ContainsSubstring(std::string(d.version)));
    CHECK_THAT(text, ContainsSubstring(std::string(d.source)));
    CHECK_THAT(text, ContainsSubstring(std::string(FormulaOf(d.factor))));
    at = line;
    ++lines;
  }
  CHECK(lines == Dialects().size());
}

TEST_CASE("fp4lab dialects NAME prints the formulas, the source and what the dialect does",
          "[tools]") {
  const ProcessResult run = RunProgram({"dialects", "te"});
  CHECK(run.exit_code == 0);
  for (const char* line : {
           "dialect      nvfp4.te\n",
           "format       float4_e2m1fn in blocks of 1x16 with a scale in float8_e4m3fn\n",
           "tensor scale S = min(fl(C/amax), FLT_MAX), 1 where amax or S is 0; D = fl(1/S); "
           "amax "
           "of "
           "the tensor, C = 448 * 6 = 2688\n",
           "block scale  t = min(fl(b * fl(S * fl(1/q))), FLT_MAX), NaN dropped; b is the block's "
           "amax, q = 6\n",
           "factor       v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX), NaN dropped\n",
           "element      v to nearest even, saturating\n",
           "version      NVIDIA/TransformerEngine d0067d0 (2026-08-22)\n",
           "the same as  nvfp4.torchao\n",
           "-0 among ordinary elements                0x69   0x8        0x5         0x7E\n",
       }) {
    CHECK_THAT(run.output, ContainsSubstring(line));
  }
  CHECK(RunProgram({"dialects", "nvfp4.te"}).output == run.output);
}

TEST_CASE("fp4lab dialects --json says the same in JSON", "[tools]") {
  const Json table = ParseJson(RunProgram({"dialects", "--json"}).output, "dialects");
  REQUIRE(table["dialects"].size() == Dialects().size());
  for (std::size_t i = 0; i < Dialects().size(); ++i) {
    CHECK(table["dialects"][i]["name"] == std::string(Dialects()[i].name));
    CHECK(table["dialects"][i]["version"] == std::string(Dialects()[i].version));
    CHECK(table["dialects"][i]["approximate"] == IsApproximate(Dialects()[i]));
  }
  const Json row = ParseJson(RunProgram({"dialects", "mxfp4.even", "--json"}).output, "row");
  CHECK(row["block"] == Json({1, 32}));
  CHECK(row["scale"] == "float8_e8m0fnu");
  CHECK(row["stages"]["element"] == "v to nearest even, saturating");
  CHECK(row["behaviours"].size() > 10);
}

TEST_CASE("The example in the help of fp4lab dialects runs and prints what it shows", "[tools]") {
  const std::string help = RunProgram({"dialects", "--help"}).output;
  const std::string command = "  $ fp4lab dialects nvfp4.modelopt | grep 'tensor of zeros'\n";
  const std::size_t at = help.find(command);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + command.size() + 2;
  const std::string shown = help.substr(begin, help.find('\n', begin) - begin);
  CHECK(shown.size() > 20);
  CHECK_THAT(RunProgram({"dialects", "nvfp4.modelopt"}).output, ContainsSubstring(shown + "\n"));
}

TEST_CASE("fp4lab dialects refuses an unknown name in one line", "[tools]") {
  const ProcessResult run = RunProgram({"dialects", "nvfp4.nothing"});
  CHECK(run.exit_code == 1);
  CHECK(IsOneLine(run.error));
  CHECK_THAT(run.error,
             ContainsSubstring("nvfp4.nothing: is not known; `fp4lab dialects` lists them"));
}

}  // namespace
}  // namespace fp4lab
