#include "fp4lab/study/report/figures/overlay.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/report.h"
#include "tests/study/support/synthetic.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

using V = std::vector<double>;
using Catch::Matchers::ContainsSubstring;

// A file of a test, in a folder of its own.
class File {
 public:
  explicit File(const std::string& text, const std::string& name = "curve")
      : folder_(std::filesystem::temp_directory_path() / "fp4lab_overlay_test"),
        path_(folder_ / name) {
    WriteFileAtomically(path_, text);
  }
  ~File() { std::filesystem::remove_all(folder_); }
  std::string Path() const { return path_.string(); }

 private:
  std::filesystem::path folder_, path_;
};

TEST_CASE("A curve is read from CSV, as TensorBoard exports it, too", "[study]") {
  const File tokens("tokens,loss\n100,3.5\n200,3\n");
  Overlay overlay = ReadOverlay(tokens.Path());
  CHECK(overlay.label == "curve");
  CHECK(overlay.tokens == V{100, 200});
  CHECK(overlay.loss == V{3.5, 3});
  const File board(
      "\xEF\xBB\xBF\"Wall time\",Step,Value\r\n1.7e9,0,3.5\r\n1.7e9,10,\"3.25\"\r\n\r\n");
  overlay = ReadOverlay("mine=" + board.Path(), 2048);
  CHECK(overlay.label == "mine");
  CHECK(overlay.tokens == V{0, 20480});
  CHECK(overlay.loss == V{3.5, 3.25});
}

TEST_CASE("A curve is read from JSON Lines of MaxText and Megatron-LM", "[study]") {
  const File maxtext(
      "{\"step\": 0.0, \"learning/loss\": 10.5, \"perf/step_time_seconds\": 2}\n"
      "{\"step\": 0.0, \"eval/avg_loss\": 9}\n"
      "{\"step\": 1.0, \"learning/loss\": 9.5}\n");
  Overlay overlay = ReadOverlay(maxtext.Path(), 1000);
  CHECK(overlay.tokens == V{0, 1000});
  CHECK(overlay.loss == V{10.5, 9.5});
  const File megatron(
      "{\"iteration\": 10, \"consumed_tokens\": 500, \"lm loss\": 8.5}\n"
      "{\"iteration\": 20, \"consumed_tokens\": 1000, \"lm loss\": 8}\n");
  overlay = ReadOverlay(megatron.Path());  // tokens, where the file has them
  CHECK(overlay.tokens == V{500, 1000});
  CHECK(overlay.loss == V{8.5, 8});
}

TEST_CASE("A restart's steps replace those before it, and losses that are not finite are left out",
          "[study]") {
  const File file("step,loss\n1,5\n2,4\n3,nan\n2,4.5\n3,3.5\n4,inf\n");
  const Overlay overlay = ReadOverlay(file.Path(), 10);
  CHECK(overlay.tokens == V{10, 20, 30});
  CHECK(overlay.loss == V{5, 4.5, 3.5});
}

TEST_CASE("Points that are not in order are sorted, with a note", "[study]") {
  const File sorted("tokens,loss\n1,5\n2,4\n3,3\n"),
      shuffled("tokens,loss\n3,3\n1,5\n2,4\n", "shuffled");
  CHECK(ReadOverlay(sorted.Path()).note.empty());
  const Overlay overlay = ReadOverlay(shuffled.Path());
  CHECK(overlay.tokens == V{1, 2, 3});
  CHECK(overlay.loss == V{5, 4, 3});
  CHECK_THAT(overlay.note, ContainsSubstring(shuffled.Path() + ": line 3 goes back"));
}

TEST_CASE("An overlay of which no point would be drawn is an error", "[study]") {
  const File file(SyntheticResults({.seeds = 2}).dump(), "results.json");
  const std::filesystem::path out = std::filesystem::path(file.Path()).parent_path() / "out";
  CHECK_THROWS_WITH(WriteReport(file.Path(), out, {Overlay{"far", {9e11, 9e12}, {3, 2}}}),
                    ContainsSubstring("--overlay far: has points at 900B to 9T tokens, and the "
                                      "figure shows ") &&
                        ContainsSubstring("nothing would be drawn"));
  CHECK_THROWS_WITH(WriteReport(file.Path(), out, {Overlay{"zero", {0, 1}, {3, 2}}}),
                    ContainsSubstring("--overlay zero: "));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("A bad file of a curve is refused with its line and the remedy", "[study]") {
  const struct {
    const char *text, *problem;
  } kCases[] = {
      {"", "line 1: the file ends, with losses of 0 steps; a curve needs two"},
      {"time,accuracy\n1,2\n", "line 1: the header names no loss; name a column one of loss"},
      {"time,loss\n1,2\n", "line 1: the header names neither tokens nor steps"},
      {"tokens,loss\n1,2\n3,x\n", "line 3: \"x\" in column \"loss\" is no number"},
      {"tokens,loss\n1,2\n3\n", "line 3: has 1 cell, and the header has 2"},
      {"tokens,loss\n1,2\n-3,2\n", "line 3: tokens and steps must be 0 or more"},
      {"tokens,loss\n1,2\n", "line 2: the file ends, with losses of 1 step; a curve needs two"},
      {"step,loss\n1,2\n2,2\n", "line 2: has a step but no tokens; give --overlay-tokens-per-step"},
      {"{\"tokens\": 1, \"loss\": 2}\n{\"tokens\": ", "line 2: is no JSON object"},
      {"{\"step\": 1, \"loss\": \"2\"}\n", "line 1: \"loss\" must be a number"},
      {"{\"loss\": 2}\n", "line 1: has neither tokens nor steps; name a member one of tokens"},
  };
  for (const auto& c : kCases) {
    CAPTURE(c.text);
    const File file(c.text);
    CHECK_THROWS_WITH(ReadOverlay(file.Path()),
                      ContainsSubstring(file.Path() + ": ") && ContainsSubstring(c.problem));
  }
  CHECK_THROWS_WITH(ReadOverlay("=nowhere"), ContainsSubstring("write LABEL=FILE"));
  CHECK_THROWS_WITH(ReadOverlay("a=nowhere.csv"), ContainsSubstring("nowhere.csv"));
}

TEST_CASE("The figure of training names a curve as the reader's own", "[study]") {
  const Results results = ReadResults(SyntheticResults({.seeds = 3}), "test.json");
  const Overlay overlay{"<mine>", {1e5, 1e6, 2e6, 9e9}, {3, 2.5, 2.25, 1}};
  const Figure figure = DrawTraining(results, {overlay});
  CHECK_THAT(figure.embedded, ContainsSubstring("&lt;mine&gt; (your own curve)"));
  CHECK_THAT(figure.embedded, ContainsSubstring("2.2500 at 2000000 tokens"));
  CHECK_THAT(figure.embedded, !ContainsSubstring("9000000000"));  // beyond the study's tokens
  CHECK_THAT(figure.caption, ContainsSubstring("<mine>, 2 of 4 points in this range of tokens"));
  CHECK_THAT(DrawTraining(results).caption, !ContainsSubstring("reader"));
  // Its difference to the reference has a panel of its own, with its name at the end of the line.
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count(figure.embedded, "data-values") ==
        count(DrawTraining(results).embedded, "data-values") + 2);
  CHECK(count(figure.embedded, "class=\"key\" data-series=\"&lt;mine&gt; (your own curve)\"") == 1);
  const std::string& reference = results.question.reference;
  CHECK_THAT(figure.embedded, ContainsSubstring("minus " + reference + ", nats"));
  CHECK_THAT(figure.caption, ContainsSubstring("Below: their differences to " + reference));
  CHECK_THAT(DrawTraining(results).embedded, !ContainsSubstring("minus " + reference));
}

TEST_CASE("A curve that is the reference's own differs from it by nothing", "[study]") {
  const Results results = ReadResults(SyntheticResults({.seeds = 2}), "test.json");
  Overlay overlay{"same", {}, {}};
  std::map<std::int64_t, std::vector<double>> losses;
  for (const RunResult& run : results.runs) {
    if (run.arm != results.question.reference) continue;
    for (const CurvePoint& point : run.curve) losses[point.tokens].push_back(point.loss);
  }
  for (const auto& [tokens, of] : losses) {
    overlay.tokens.push_back(static_cast<double>(tokens));
    overlay.loss.push_back(Summarize(of).mean + 0.5);
  }
  const std::string drawn = DrawTraining(results, {overlay}).embedded;
  const std::size_t at = drawn.rfind("data-values=\"");
  REQUIRE(at != drawn.npos);
  const std::string values = drawn.substr(at, drawn.find(">", at) - at);
  std::size_t points = 0;
  for (std::size_t i = 0; (i = values.find(" at ", i)) != values.npos; ++i) {
    CHECK(values.substr(i - 6, 6) == "0.5000");
    ++points;
  }
  CHECK(points > 3);
}

TEST_CASE("A curve needs a study with training curves", "[study]") {
  Json json = SyntheticResults({.seeds = 2});
  for (Json& run : json["runs"]) run["curve"] = Json::array();
  const File file(json.dump(), "results.json");
  CHECK_THROWS_WITH(WriteReport(file.Path(), {}, {Overlay{"a", {1, 2}, {3, 2}}}),
                    ContainsSubstring("has no training curves"));
  CHECK_FALSE(
      std::filesystem::exists(std::filesystem::path(file.Path()).parent_path() / "report.html"));
}

}  // namespace
}  // namespace fp4lab::study
