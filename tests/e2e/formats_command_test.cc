#include <string>

#include "fp4lab/formats/format.h"
#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("fp4lab formats prints the table of formats", "[tools]") {
  const ProcessResult run = RunProgram({"formats"});
  CHECK(run.exit_code == 0);
  for (const char* row : {
           "format          short bits  s/e/m   bias  max           min normal    min subnormal "
           "Inf             NaN\n",
           "float4_e2m1fn   e2m1     4  1/2/1      1  6             1             0.5           "
           "-               -\n",
           "float8_e4m3fn   e4m3     8  1/4/3      7  448           0.015625      0.001953125   "
           "-               0x7F 0xFF\n",
           "float8_e5m2     e5m2     8  1/5/2     15  57344         6.1035156e-05 1.5258789e-05 "
           "0x7C 0xFC       0x7D-0x7F 0xFD-0xFF\n",
           "float8_e8m0fnu  e8m0     8  0/8/0    127  1.7014118e+38 5.877472e-39  -             "
           "-               0xFF\n",
           "float8_ue4m3fn  ue4m3    7  0/4/3      7  448           0.015625      0.001953125   "
           "-               0x7F\n",
           "tfloat32        tf32    19  1/8/10   127  3.4011621e+38 1.1754944e-38 1.148e-41     "
           "0x3FC00 0x7FC00 0x3FC01-0x3FFFF 0x7FC01-0x7FFFF\n",
       }) {
    CHECK_THAT(run.output, ContainsSubstring(row));
  }
}

TEST_CASE("fp4lab formats --values lists every code", "[tools]") {
  const ProcessResult run = RunProgram({"formats", "--values", "e2m1"});
  CHECK(run.exit_code == 0);
  CHECK(run.output ==
        "0x0  0 00 0  0\n0x1  0 00 1  0.5\n0x2  0 01 0  1\n0x3  0 01 1  1.5\n"
        "0x4  0 10 0  2\n0x5  0 10 1  3\n0x6  0 11 0  4\n0x7  0 11 1  6\n"
        "0x8  1 00 0  -0\n0x9  1 00 1  -0.5\n0xA  1 01 0  -1\n0xB  1 01 1  -1.5\n"
        "0xC  1 10 0  -2\n0xD  1 10 1  -3\n0xE  1 11 0  -4\n0xF  1 11 1  -6\n");
  CHECK_THAT(RunProgram({"formats", "--values", "float8_e8m0fnu"}).output,
             ContainsSubstring("0x7F  01111111  1\n"));
}

TEST_CASE("fp4lab formats --json says the same in JSON", "[tools]") {
  const Json table = ParseJson(RunProgram({"formats", "--json"}).output, "formats");
  REQUIRE(table["formats"].size() == kFormats.size());
  CHECK(table["formats"][3]["name"] == "float8_e4m3fn");
  CHECK(table["formats"][3]["max"] == 448);
  CHECK(table["formats"][3]["nan_codes"] == Json({0x7F, 0xFF}));
  CHECK(table["formats"][5]["min_subnormal"].is_null());
  const Json values =
      ParseJson(RunProgram({"formats", "--values", "e5m2", "--json"}).output, "values");
  REQUIRE(values["values"].size() == 256);
  CHECK(values["values"][0x7B] == 57344);
  CHECK(values["values"][0x7C] == "inf");
  CHECK(values["values"][0xFF] == "-nan");
}

TEST_CASE("The example in the help of fp4lab formats is what the command prints", "[tools]") {
  const std::string help = RunProgram({"formats", "--help"}).output;
  const std::string values = RunProgram({"formats", "--values", "e2m1"}).output;
  const std::string last = values.substr(values.rfind('\n', values.size() - 2) + 1);
  CHECK_THAT(help, ContainsSubstring("$ fp4lab formats --values e2m1 | tail -1\n  " + last));
}

TEST_CASE("fp4lab formats refuses an unknown format with the names that it knows", "[tools]") {
  const ProcessResult run = RunProgram({"formats", "--values", "e9m9"});
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.error, ContainsSubstring("error: --values e9m9: is not a format; one of: e2m1"));
}

}  // namespace
}  // namespace fp4lab
