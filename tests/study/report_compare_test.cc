#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/report/compare.h"
#include "fp4lab/study/report/figures/figure_compare.h"
#include "tests/study/support/synthetic.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string Numerics(char digit) { return std::string(64, digit); }

// A study named `name` whose arm nvfp4 has the fingerprint of `digit`; ' ': the file has none.
Json Named(const std::string& name, char digit,
           const std::vector<std::int64_t>& budgets = {1024000, 2048000}) {
  Json json =
      SyntheticResults({.seeds = 3, .budgets = budgets, .arms = {"bf16", "nvfp4", "mxfp4"}});
  json["name"] = name;
  json["study"]["title"] = "Title of " + name;
  if (digit == ' ') return json;
  json["numerics"] = {
      {"bf16", Numerics('b')}, {"nvfp4", Numerics(digit)}, {"mxfp4", Numerics('c')}};
  json["fp4lab_commit"] = "0123456789abcdef";
  return json;
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "fp4lab_compare_test") {
    std::filesystem::remove_all(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path Add(const std::string& name, const Json& json) const {
    WriteFileAtomically(path_ / name / "results.json", json.dump());
    return path_ / name;
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::vector<StudyReport> Load(const std::vector<std::filesystem::path>& paths) {
  std::vector<StudyReport> studies;
  for (const auto& path : paths) studies.push_back(LoadStudyReport(path));
  return studies;
}

TEST_CASE("Several studies stand on one page, twice the same", "[study]") {
  const Folder folder;
  const auto first = folder.Add("a", Named("one", '1'));
  const auto second = folder.Add("b", Named("two", '1', {2048000, 4096000}));
  const ReportFiles files = WriteComparison({first, second}, {.out_dir = folder / "out"});
  const std::string html = ReadFile(files.html);
  CHECK_THAT(html, ContainsSubstring("<h1>2 studies side by side</h1>"));
  CHECK_THAT(html, ContainsSubstring("the largest budget that all studies have"));
  CHECK_THAT(html, ContainsSubstring("2.05M, D/N 10"));
  CHECK_THAT(html, ContainsSubstring("<a href=\"#study-2\">two</a>"));
  CHECK_THAT(html, ContainsSubstring("<h1 class=\"study\" id=\"study-2\">two: Title of two</h1>"));
  CHECK_THAT(html, ContainsSubstring("<code>111111111111</code>"));
  CHECK_THAT(html, ContainsSubstring("0.1.0, 0123456789ab"));
  CHECK_THAT(html, ContainsSubstring("data-series=\"mxfp4 to match nvfp4, two\""));
  CHECK_THAT(html, ContainsSubstring("data-series=\"nvfp4 to bf16, one\""));
  CHECK_THAT(html, !ContainsSubstring("mixed"));
  CHECK_THAT(files.summary, ContainsSubstring("token ratio"));
  for (const char* name : {"compare_token_ratio.svg", "compare_gap.svg"}) {
    CHECK_THAT(ReadFile(files.figures / name), !ContainsSubstring("<script"));
  }
  CHECK(files.notes.size() == 2);  // neither file has a hash
  WriteComparison({first, second}, {.out_dir = folder / "out"});
  CHECK(ReadFile(files.html) == html);
}

TEST_CASE("Studies without a common budget stand at their largest", "[study]") {
  const Folder folder;
  const auto studies = Load({folder.Add("a", Named("one", '1', {1024000, 1450000})),
                             folder.Add("b", Named("two", '1', {2048000, 4096000}))});
  const std::string html = ComparisonHtml(studies, {});
  CHECK_THAT(html, ContainsSubstring("each study's largest budget"));
  CHECK_THAT(html, ContainsSubstring("1.45M, D/N 7.4"));
  CHECK_THAT(html, ContainsSubstring("4.10M, D/N 21"));
}

TEST_CASE("Other numerics of one recipe are refused, or marked where they are allowed", "[study]") {
  const Folder folder;
  const auto first = folder.Add("a", Named("one", '1')),
             second = folder.Add("b", Named("two", '2'));
  CHECK_THROWS_WITH(WriteComparison({first, second}, {.out_dir = folder / "out"}),
                    ContainsSubstring("arm \"nvfp4\" of " + (first / "results.json").string() +
                                      " (numerics 111111111111)") &&
                        ContainsSubstring((second / "results.json").string() + " (222222222222)") &&
                        ContainsSubstring("--allow-mixed"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  const ReportFiles files =
      WriteComparison({first, second}, {.out_dir = folder / "out", .allow_mixed = true});
  const std::string html = ReadFile(files.html);
  CHECK_THAT(html, ContainsSubstring("<b>Mixed numerics.</b>"));
  CHECK_THAT(html, ContainsSubstring("<code>222222222222</code> <span class=\"failed\">mixed"));
  CHECK_THAT(files.summary, ContainsSubstring("nvfp4 (mixed)"));
}

TEST_CASE("Only arms that a fingerprint measures alike are compared", "[study]") {
  const Folder folder;
  const auto first = folder.Add("a", Named("one", '1'));
  Json recipe = Named("two", '2');
  recipe["study"]["arms"]["nvfp4"]["recipe"]["wgrad"]["grad"]["hadamard"] = 32;
  CHECK(NumericsConflicts(Load({first, folder.Add("recipe", recipe)})).empty());
  Json device = Named("two", '2');
  device["study"]["device"] = "cuda";
  CHECK(NumericsConflicts(Load({first, folder.Add("device", device)})).empty());
  Json activation = Named("two", '2');
  activation["study"]["model"]["activation"] = "swiglu";
  CHECK(NumericsConflicts(Load({first, folder.Add("activation", activation)})).empty());
  const auto old = folder.Add("old", Named("two", ' '));  // before there were fingerprints
  CHECK(NumericsConflicts(Load({first, old})).empty());
  const std::string html = ComparisonHtml(Load({first, old}), {});
  CHECK_THAT(html, ContainsSubstring("without fingerprints of their numerics: two."));
  CHECK_THAT(html, ContainsSubstring("not in the file"));
}

TEST_CASE("Studies of one name are told apart, and one file is no two studies", "[study]") {
  const Folder folder;
  const auto first = folder.Add("a", Named("same", '1')),
             second = folder.Add("b", Named("same", '1'));
  CHECK(LabelsOf(Load({first, second})) == std::vector<std::string>{"same (a)", "same (b)"});
  CHECK(LabelsOf(Load({first, first})) == std::vector<std::string>{"same (a) 1", "same (a) 2"});
  CHECK_THROWS_WITH(WriteComparison({first, first / "results.json"}, {.out_dir = folder / "out"}),
                    ContainsSubstring("is named twice"));
}

TEST_CASE("Exploratory studies and ratios that are not identified are marked", "[study]") {
  const Folder folder;
  Json exploratory = Named("two", '1', {1024000});  // no ratio from one budget
  exploratory["exploratory"] = true;
  const std::string html =
      ComparisonHtml(Load({folder.Add("a", Named("one", '1')), folder.Add("b", exploratory)}), {});
  CHECK_THAT(html, ContainsSubstring("<span class=\"failed\">exploratory</span>"));
  CHECK_THAT(html, ContainsSubstring("<span class=\"open\">not identified</span>"));
}

TEST_CASE("The name of a study cannot write into the page", "[study]") {
  const Folder folder;
  const auto studies =
      Load({folder.Add("a", Named("<script>&\"", '1')), folder.Add("b", Named("two", '1'))});
  const std::string html = ComparisonHtml(studies, {});
  CHECK(html.find("<script") == html.rfind("<script"));  // the page's own
  CHECK_THAT(html, ContainsSubstring("data-series=\"nvfp4 to bf16, &lt;script&gt;&amp;&quot;\""));
}

}  // namespace
}  // namespace fp4lab::study
