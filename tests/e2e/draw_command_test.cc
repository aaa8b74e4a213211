#include <string>
#include <vector>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/study/draw/drawing.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

TEST_CASE("fp4lab draw lists its drawings, and writes one to a file or to a pipe", "[tools]") {
  const TemporaryFolder folder;
  const std::string list = RunProgram({"draw"}).output;
  for (const study::Drawing& d : study::Drawings()) {
    CHECK_THAT(list, ContainsSubstring(std::string(d.name) + " " + std::string(d.arguments)));
    CHECK_THAT(list, ContainsSubstring(std::string(d.what) + "\n"));
  }
  const std::string svg = RunProgram({"draw", "dataflow", "te_nvfp4"}).output;
  CHECK_THAT(svg, StartsWith("<svg ") && EndsWith("</svg>\n"));
  CHECK_THAT(svg, ContainsSubstring(">nvfp4.te, stochastic, H16</text>"));
  const ProcessResult run = RunProgram({"draw", "dataflow", "te_nvfp4", "--out", "a/flow.svg"},
                                       {.folder = folder.path()});
  CHECK((run.exit_code == 0 && run.output.empty()));
  CHECK(ReadFile(folder / "a/flow.svg") == svg);
}

TEST_CASE("Every dialect and every recipe that is no list can be drawn", "[tools]") {
  for (const Dialect& d : Dialects()) {
    INFO(d.name);
    const std::string svg = study::Draw("blocks", {std::string(d.name)});
    CHECK_THAT(svg, ContainsSubstring(">" + std::string(d.name) + "</text>"));
    CHECK_THAT(svg, ContainsSubstring("bits"));
  }
  int drawn = 0, lists = 0;
  for (const PublishedRecipe& r : PublishedRecipes()) {
    INFO(r.name);
    const int before = drawn;
    const std::string error = ErrorOf([&] { drawn += !study::Draw("dataflow", {r.name}).empty(); });
    if (drawn > before) continue;
    ++lists;
    CHECK_THAT(error, ContainsSubstring("is a list of rules"));
  }
  CHECK((drawn > 100 && lists > 2));
}

TEST_CASE("A block's figure says the bits of an element", "[tools]") {
  const auto blocks = [](const char* dialect) { return study::Draw("blocks", {dialect}); };
  CHECK_THAT(blocks("nvfp4.te"), ContainsSubstring("= 4.5 bits per element; a binary32 scale"));
  CHECK_THAT(blocks("mxfp4.rceil"), ContainsSubstring("= 4.25 bits per element<"));
  CHECK_THAT(blocks("nvfp4.te.2d"), ContainsSubstring("= 4.03125 bits per element"));
  CHECK_THAT(blocks("fp8_e4m3.128x128.fp32"), ContainsSubstring("8 bits + 32/16384 for the scale"));
  CHECK_THAT(blocks("fp8_e4m3"), ContainsSubstring("8 bits per element; a binary32 scale"));
}

TEST_CASE("fp4lab draw refuses what it cannot draw in one line", "[tools]") {
  const auto says = [](const std::vector<std::string>& arguments, const std::string& problem) {
    std::vector<std::string> all = {"draw"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProcessResult run = RunProgram(all);
    CHECK((run.exit_code != 0 && run.output.empty() && IsOneLine(run.error)));
    CHECK_THAT(run.error, ContainsSubstring(problem));
  };
  says({"number-lin"}, "did you mean \"number-line\"?");
  says({"number-line"}, "takes FORMAT ..., 1 argument to 8, not 0");
  says({"dataflow", "bf16", "fp32"}, "takes RECIPE, 1 argument, not 2");
  says({"number-line", "e2m3fn", "e2m1"}, "did you mean \"e2m3\"?");
  says({"number-line", "bf16"}, "has 16 bits; draw formats of at most 8 bits");
  says({"blocks", "nvfp4.t"}, "did you mean \"nvfp4.te\"?");
  says({"scale-order", "128x5"}, "did you mean \"128x4\"?");
  says({"dataflow", "te_nvfp"}, "did you mean \"te_nvfp4\"?");
  says({"dataflow", "torchtitan_dsv3_16b_tail15"}, "is a list of rules");
  says({"hadamard", "8"}, "draw 16, 32, 64 or 128 elements");
  says({"rounding", "e4m3"}, "is not a format of at most 6 bits");
  says({"token-ratio", "none/results.json"}, "cannot be read");
  says({"--out", "x.svg"}, "has no effect without the name of a drawing");
}

}  // namespace
}  // namespace fp4lab
