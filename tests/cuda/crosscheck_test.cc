// `fp4lab crosscheck` as a user runs it: on a GPU if there is one, and through files of cases and
// answers.
#include <bit>
#include <cmath>
#include <filesystem>
#include <string>

#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/quantize/generate.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/examples.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("The example in the help of crosscheck prints what it says", "[cuda]") {
  CheckHelpExamples({"crosscheck"});
}

TEST_CASE("Without a GPU crosscheck says so in one line and exits with 2", "[cuda]") {
  const ProcessResult run =
      RunProgram({"crosscheck", "--dialect", "nvfp4.te", "--no-speed", "--side", "256"});
  if (cuda::DeviceCount() > 0) {
    CAPTURE(run.output, run.error);
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.output, ContainsSubstring("0 different bytes over "));
    return;
  }
  CHECK(run.exit_code == 2);
  CHECK(run.output.empty());
  CHECK(IsOneLine(run.error));
  CHECK_THAT(run.error, ContainsSubstring("error: CUDA: " + cuda::WhyNoDevice()));
}

TEST_CASE("--only-products excludes --dialect", "[cuda]") {
  const ProcessResult run = RunProgram({"crosscheck", "--only-products", "--dialect", "nvfp4.te"});
  CHECK(run.exit_code != 0);
  CHECK(run.output.empty());
  CHECK_THAT(run.error, ContainsSubstring("--only-products"));
}

TEST_CASE("crosscheck --answers distinguishes right, wrong and damaged answers", "[cuda]") {
  const TemporaryFolder folder;
  const std::filesystem::path cases = folder.path() / "cases", answers = folder.path() / "answers";
  const auto judged = [&] {
    return RunProgram({"crosscheck", "--dialect", "mxfp4.floor", "--answers", answers.string()});
  };
  REQUIRE(RunProgram({"crosscheck", "--dialect", "mxfp4.floor", "--write-cases", cases.string()})
              .exit_code == 0);
  REQUIRE(RunProgram({"crosscheck", "--answer", cases.string(), "--to", answers.string(),
                      "--device", "cpu"})
              .exit_code == 0);
  CHECK(judged().exit_code == 0);

  const std::string right = ReadFile(answers);
  std::string wrong = right;
  wrong.back() = static_cast<char>(wrong.back() ^ 1);  // a scale byte of the last case
  WriteFileAtomically(answers, wrong);
  const ProcessResult different = judged();
  CHECK(different.exit_code == 1);
  CHECK_THAT(different.output, ContainsSubstring("1 dialects differ"));

  WriteFileAtomically(answers, right.substr(0, right.size() - 3));
  const ProcessResult cut = judged();
  CHECK(cut.exit_code == 2);
  CHECK(IsOneLine(cut.error));
  CHECK_THAT(cut.error, ContainsSubstring("ends within mxfp4.floor"));

  WriteFileAtomically(answers, std::string_view("something else\n"));
  CHECK(judged().exit_code == 2);
}

TEST_CASE("Cases of crosscheck carry their level, so that the answering side makes the same",
          "[cuda]") {
  const TemporaryFolder folder;
  const std::string cases = (folder.path() / "cases").string();
  const std::string answers = (folder.path() / "answers").string();
  const std::vector<std::string> here = {"crosscheck", "--dialect", "mxfp4.floor", "--level",
                                         "thorough"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = here;
    all.insert(all.end(), more.begin(), more.end());
    return RunProgram(all);
  };
  REQUIRE(with({"--write-cases", cases}).exit_code == 0);
  CHECK_THAT(ReadFile(cases).substr(0, 200), ContainsSubstring(" level=thorough "));
  REQUIRE(
      RunProgram({"crosscheck", "--answer", cases, "--to", answers, "--device", "cpu"}).exit_code ==
      0);
  CHECK(with({"--answers", answers}).exit_code == 0);
}

TEST_CASE("Generated matrices have the magnitudes that their names promise", "[cuda]") {
  const RandomStream stream{.seed = 9};
  double sum = 0, squares = 0;
  std::size_t specials = 0;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    const auto at = [&](cuda::Distribution d) {
      return std::bit_cast<float>(cuda::GeneratedBits(d, stream, i));
    };
    const float normal = at(cuda::Distribution::kNormal), wide = at(cuda::Distribution::kWide);
    sum += normal;
    squares += static_cast<double>(normal) * normal;
    CHECK((std::fabs(wide) >= 0x1p-40f && std::fabs(wide) < 0x1p41f));
    CHECK(std::fabs(at(cuda::Distribution::kTiny)) < 0x1p-99f);
    const float tie = at(cuda::Distribution::kTies);
    CHECK((std::fabs(tie) <= 3.0f && tie * 4.0f == std::nearbyint(tie * 4.0f)));
    specials += std::isfinite(at(cuda::Distribution::kAnyBits)) ? 0 : 1;
  }
  CHECK(std::fabs(sum / 4096) < 0.06);
  CHECK(std::fabs(squares / 4096 - 1.0) < 0.06);
  CHECK((specials > 4 && specials < 40));
}

}  // namespace
}  // namespace fp4lab
