#include <cmath>
#include <filesystem>
#include <string>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "fp4lab_tools_parity_test";
  Folder() { std::filesystem::remove_all(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  // A curve whose loss lies `gap` above; `phase` makes its noise its own.
  std::string Curve(const std::string& name, double gap, double phase) const {
    std::string text = "step,loss\n";
    for (int t = 1; t <= 300; ++t) {
      const double loss = (2.5 + 3.0 / t) * (1 + gap) + 0.01 * std::sin(t * t * 0.7 + phase);
      text += std::to_string(t) + "," + std::to_string(loss) + "\n";
    }
    WriteFileAtomically(path / name, text);
    return (path / name).string();
  }
};

TEST_CASE("fp4lab parity ends with 0 if runs are equivalent, with 1 if not, with 2 for an error",
          "[tools]") {
  const Folder folder;
  const std::string a = folder.Curve("a.csv", 0, 1), b = folder.Curve("b.csv", 0, 2),
                    c = folder.Curve("c.csv", 0.02, 3);
  const ProcessResult equal = RunProgram({"parity", a, "--baseline", b});
  CHECK(equal.exit_code == 0);
  CHECK_THAT(equal.output, ContainsSubstring("equivalent within 0.5 %"));
  const ProcessResult apart = RunProgram({"parity", c, "--baseline", b, "--json"});
  CHECK(apart.exit_code == 1);
  const Json document = ParseJson(apart.output, "parity");
  CHECK(document["status"] == "different");
  CHECK(std::abs(document["gap"]["relative"].get<double>() - 0.02) < 0.002);
  CHECK(RunProgram({"parity", c, "--baseline", b, "--margin", "4"}).exit_code == 0);
  CHECK(RunProgram({"parity", c, "--baseline", b, "--json"}).output == apart.output);
  const std::string bad = (folder.path / "bad.csv").string();
  WriteFileAtomically(bad, "step,loss\n1,2\n2,two\n");
  const ProcessResult error = RunProgram({"parity", bad, "--baseline", b});
  CHECK(error.exit_code == 2);
  CHECK(error.output.empty());
  CHECK(IsOneLine(error.error));
  CHECK_THAT(error.error, ContainsSubstring("bad.csv: line 3: \"two\""));
  CHECK(RunProgram({"parity", a, "--baseline", b, "--margin", "0"}).exit_code == 2);
}

}  // namespace
}  // namespace fp4lab
