#include "fp4lab/study/report/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/study/analysis/analyze.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/figures/plot.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/study/report/page_script.h"
#include "fp4lab/study/report/tables/cost_table.h"
#include "fp4lab/study/report/tables/report_tables.h"
#include "fp4lab/study/report/tables/verdict_text.h"
#include "tests/study/support/synthetic.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

constexpr int kDraws = 100;

Results Read(const Json& json) { return ReadResults(json, "test.json"); }

// Studies that stress the figures: few seeds, many arms, many budgets, one budget, a divergence,
// gaps of 0.
std::vector<std::pair<std::string, Json>> Studies() {
  std::vector<std::pair<std::string, Json>> studies;
  studies.emplace_back("laptop", SyntheticResults());
  studies.emplace_back("quick", SyntheticResults({.seeds = 2, .arms = {"bf16", "nvfp4", "mxfp4"}}));
  studies.emplace_back(
      "budgets",
      SyntheticResults({.budgets = {512000, 720896, 1024000, 1450000, 2048000, 4096000, 8192000}}));
  studies.emplace_back("one budget", SyntheticResults({.budgets = {1024000}}));
  studies.emplace_back(
      "many arms",
      SyntheticResults({.arms = {"bf16", "fp8", "nvfp4", "mxfp4", "nvfp4-without-hadamard",
                                 "nvfp4-no2d", "mxfp4-floor", "a-long-name-for-an-arm", "last"}}));
  Json diverged = SyntheticResults();
  for (Json& run : diverged["runs"]) {
    if (run["arm"] != "mxfp4" || run["seed"] != 2) continue;
    run["status"] = "diverged";
    run["diverged_at"] = {{"step", 700}, {"tensor", "blocks.1.mlp.down.output"}};
    run["points"].erase(2);
    run["points"].erase(1);
  }
  studies.emplace_back("diverged", diverged);
  Json empty = SyntheticResults({.seeds = 3, .noise = 0});
  for (Json& run : empty["runs"]) {
    run["curve"] = Json::array();
    run["tensors"] = Json::array();
    run["trunk_points"] = Json::array();
    for (Json& point : run["points"]) point["validation_loss"] = 1.5;
  }
  studies.emplace_back("level", empty);
  return studies;
}

std::string Attribute(const std::string& element, const std::string& name) {
  std::smatch match;
  const std::regex pattern(" " + name + "=\"([^\"]*)\"");
  return std::regex_search(element, match, pattern) ? match[1].str() : "";
}

std::size_t CountOf(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct TextBox {
  std::string text;
  double left, right, top, bottom;
};

std::vector<TextBox> Texts(const std::string& svg) {
  std::vector<TextBox> boxes;
  const std::regex element("<text( [^>]*)>([^<]*)</text>");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), element);
       it != std::sregex_iterator(); ++it) {
    const std::string attributes = (*it)[1], style = Attribute(attributes, "class");
    std::string text = (*it)[2];
    text = std::regex_replace(text, std::regex("&[a-z]+;"), "<");
    const double size = style.find("title") != style.npos   ? 16
                        : style.find("small") != style.npos ? 12
                                                            : 13;
    const bool bold = style.find("strong") != style.npos || size == 16;
    const double width = TextWidth(text, size) * (bold ? 1.07 : 1);
    const double x = std::stod(Attribute(attributes, "x")),
                 y = std::stod(Attribute(attributes, "y"));
    const std::string anchor = Attribute(attributes, "text-anchor");
    const double before = anchor == "middle" ? width / 2 : anchor == "end" ? width : 0;
    if (!Attribute(attributes, "transform").empty()) {  // turned by -90 degrees about (x, y)
      boxes.push_back({text, x - 0.75 * size, x + 0.2 * size, y - (width - before), y + before});
    } else {
      boxes.push_back({text, x - before, x + width - before, y - 0.75 * size, y + 0.2 * size});
    }
  }
  return boxes;
}

// Every tag is closed in order, attributes are quoted, and there is no stray & or <.
bool WellFormed(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([A-Za-z0-9]+)((?: [A-Za-z0-9:-]+=\"[^\"<]*\")*)(/?)>");
  std::size_t at = 0;
  while (at < xml.size()) {
    const std::size_t next = xml.find_first_of("<&", at);
    if (next == xml.npos) break;
    std::smatch match;
    if (xml[next] == '&') {
      const std::string rest = xml.substr(next, 10);
      if (!std::regex_search(rest, std::regex("^&(amp|lt|gt|quot);"))) return false;
      at = next + 1;
      continue;
    }
    const auto from = xml.begin() + static_cast<std::ptrdiff_t>(next);
    if (!std::regex_search(from, xml.end(), match, tag, std::regex_constants::match_continuous)) {
      return false;
    }
    if (match[1] == "/") {
      if (open.empty() || open.back() != match[2]) return false;
      open.pop_back();
    } else if (match[4] != "/") {
      open.push_back(match[2]);
    }
    at = next + static_cast<std::size_t>(match.length());
  }
  return open.empty();
}

TEST_CASE("In no figure do texts overlap or leave the drawing", "[study]") {
  for (const auto& [name, json] : Studies()) {
    const Results results = Read(json);
    for (const Figure& figure : DrawFigures(results, Analyze(results, kDraws))) {
      const std::string& svg = figure.standalone;
      const double width = std::stod(Attribute(svg, "width"));
      const double height = std::stod(Attribute(svg, "height"));
      const std::vector<TextBox> boxes = Texts(svg);
      REQUIRE(boxes.size() > 6);
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        CAPTURE(name, figure.file, boxes[i].text);
        CHECK(boxes[i].left >= 0);
        CHECK(boxes[i].right <= width);
        CHECK(boxes[i].top >= 0);
        CHECK(boxes[i].bottom <= height);
        for (std::size_t j = 0; j < i; ++j) {
          CAPTURE(boxes[j].text);
          const bool apart = boxes[i].right <= boxes[j].left || boxes[j].right <= boxes[i].left ||
                             boxes[i].bottom <= boxes[j].top || boxes[j].bottom <= boxes[i].top;
          CHECK(apart);
        }
      }
    }
  }
}

TEST_CASE("Figures are well-formed and hold no number that is none", "[study]") {
  for (const auto& [name, json] : Studies()) {
    const Results results = Read(json);
    for (const Figure& figure : DrawFigures(results, Analyze(results, kDraws))) {
      CAPTURE(name, figure.file);
      CHECK(WellFormed(figure.standalone));
      CHECK(WellFormed(figure.embedded));
      CHECK(figure.standalone.find("\"-\"") == std::string::npos);  // Fixed(NaN)
      CHECK(figure.standalone.find("nan") == std::string::npos);
      CHECK(figure.standalone.find("inf\"") == std::string::npos);
    }
  }
}

TEST_CASE("Figures name the series of their marks, and say what each mark stands for", "[study]") {
  const Results results = Read(SyntheticResults());  // 4 arms, 5 seeds, 3 budgets
  const Analysis analysis = Analyze(results, kDraws);
  const std::string loss = DrawLoss(results, analysis).embedded;
  CHECK(CountOf(loss, "<g class=\"series\" data-series=\"nvfp4\">") == 1);
  CHECK(CountOf(loss, "<g class=\"key\" data-series=\"nvfp4\">") == 1);
  CHECK(CountOf(loss, "<title>nvfp4: loss ") == 3);
  CHECK(CountOf(loss, "<title>nvfp4, seed 2: loss ") == 3);
  const ArmLoss* mean = analysis.FindLoss("nvfp4", 2048000, Precision::kTraining);
  CHECK(loss.find("<title>nvfp4: loss " + Fixed(mean->summary.mean, 6) +
                  " at 2048000 tokens (D/N 10); mean of 5 seeds, s.d. ") != loss.npos);
  const std::string gap = DrawGap(results, analysis).embedded;
  const LossGap* seen = analysis.FindGap("mxfp4", "bf16", 1024000, Precision::kTraining);
  CHECK(gap.find("<title>mxfp4: gap " + Signed(seen->summary.mean, 6) + " " +
                 IntervalText(*seen->interval, 6) + " at 1024000 tokens") != gap.npos);
  const std::string ratio = DrawTokenRatio(results, analysis).embedded;
  CHECK(CountOf(ratio, "<title>mxfp4 to match nvfp4: ") == 3);
  CHECK(CountOf(ratio, "<g class=\"key\" data-series=\"mxfp4 to match nvfp4\">") == 1);
  // Each corner of a curve has its value, which only a page can show.
  const Figure training = DrawTraining(results);
  const std::size_t at = training.embedded.find("<polyline class=\"s2 thin\"");
  REQUIRE(at != training.embedded.npos);
  const std::string curve = training.embedded.substr(at, training.embedded.find('>', at) - at);
  const std::string points = Attribute(curve, "points"), values = Attribute(curve, "data-values");
  CHECK(CountOf(points, ",") == CountOf(values, " tokens"));
  CHECK(CountOf(points, ",") == CountOf(values, "|") + 1);
  CHECK(training.standalone.find("data-values") == training.standalone.npos);
}

TEST_CASE("The figure of token ratios has no numbers of other papers", "[study]") {
  Json json = SyntheticResults({.seeds = 3});
  for (const auto& [arm, recipe] : {std::pair{"nvfp4", "te_nvfp4"}, {"mxfp4", "mxfp4"}}) {
    json["study"]["arms"][arm]["recipe"] = ToJson(ReadRecipe(recipe, "test"));
  }
  const Results results = Read(json);
  const Figure figure = DrawTokenRatio(results, Analyze(results, 10));
  CHECK(figure.embedded.find("published") == std::string::npos);
  CHECK(figure.caption.find("arXiv") == std::string::npos);
}

TEST_CASE("The page begins with what the intervals tell, and its cards say so", "[study]") {
  const auto page = [](const SyntheticOptions& options) {
    const Results results = Read(SyntheticResults(options));
    const Analysis analysis = Analyze(results, kDraws);
    const LossGap* gap = analysis.FindGap("mxfp4", "nvfp4", 4096000, Precision::kTraining);
    REQUIRE(gap != nullptr);
    const std::string html = ReportHtml(results, analysis);
    const std::size_t verdict = html.find("<p class=\"verdict\">");
    CHECK(verdict < html.find("<div class=\"cards\">"));
    const std::size_t begin = html.find('>', verdict) + 1;
    return std::pair(html.substr(begin, html.find("</p>", begin) - begin), html);
  };
  const auto [clear, clear_page] = page({.seeds = 5});
  CHECK_THAT(clear, StartsWith("mxfp4 - nvfp4: +0.0") &&
                        EndsWith(" nats at 4.10M tokens, told apart (95 %, 5 seeds and the "
                                 "validation text)"));
  const auto [unclear, unclear_page] = page({.seeds = 3, .noise = 40});
  CHECK_THAT(unclear,
             ContainsSubstring(", not told apart (95 %, 3 seeds and the validation text)"));
  CHECK(unclear_page.find(", not told apart</span>") != std::string::npos);
  const auto [few, few_page] = page({.seeds = 2});
  CHECK_THAT(few, EndsWith("no interval from 2 seeds"));
  CHECK(few_page.find("no interval from 2 seeds</span>") != std::string::npos);
}

TEST_CASE("The error of the validation text decides with the seeds", "[study]") {
  // Five seeds agree on a gap that a quarter of the text makes.
  Json json = SyntheticResults({.seeds = 5, .noise = 0});
  for (Json& run : json["runs"]) {
    for (Json& point : run["points"]) {
      Json& chunks = point["chunk_losses"];
      if (run["arm"] != "mxfp4" || !chunks.is_array()) continue;
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        const double others = 4 * c < chunks.size() ? 1.2 : -0.4;
        chunks[c] = chunks[c].get<double>() + others;
      }
    }
  }
  const Results results = Read(json);
  const Analysis analysis = Analyze(results, kDraws);
  const LossGap* gap = analysis.FindGap("mxfp4", "nvfp4", 4096000, Precision::kTraining);
  REQUIRE(gap != nullptr);
  CHECK_FALSE(gap->interval->Contains(0));
  CHECK(GapInterval(*gap, analysis)->Contains(0));
  CHECK(VerdictSentences(results, analysis)[0].find(", not told apart (95 %, 5 seeds and") !=
        std::string::npos);
  CHECK(ReportHtml(results, analysis).find(", not told apart</span>") != std::string::npos);
}

TEST_CASE("Without a contrast each arm has its sentence against the reference", "[study]") {
  Json json = SyntheticResults({.seeds = 3});
  json["study"]["analysis"].erase("contrast");
  const Results results = Read(json);
  const std::vector<std::string> sentences = VerdictSentences(results, Analyze(results, 10));
  REQUIRE(sentences.size() == 3);
  CHECK_THAT(sentences[0], StartsWith("fp8 - bf16: +"));
  json = SyntheticResults({.seeds = 3, .arms = {"bf16", "fp8", "nvfp4", "mxfp4", "same"}});
  json["study"]["analysis"].erase("contrast");
  const Results more = Read(json);
  const std::vector<std::string> groups = VerdictSentences(more, Analyze(more, 10));
  REQUIRE(groups.size() == 1);
  CHECK_THAT(
      groups[0],
      StartsWith("To bf16 at 4.10M tokens (95 %, 3 seeds and the validation text): told apart: ") &&
          ContainsSubstring("nvfp4, mxfp4; not told apart: ") && EndsWith("same"));
}

TEST_CASE("Figures are files without scripts, and take the style of a page on it", "[study]") {
  const Results results = Read(SyntheticResults({.seeds = 3}));
  for (const Figure& figure : DrawFigures(results, Analyze(results, 10))) {
    CAPTURE(figure.file);
    CHECK(figure.standalone.find("<script") == figure.standalone.npos);
    CHECK(CountOf(figure.standalone, "<style>") == 1);
    CHECK(figure.embedded.find("<style>") == figure.embedded.npos);
  }
}

TEST_CASE("The name of an arm cannot write into a figure or the page", "[study]") {
  // Readers refuse such a name; the escape must hold without them.
  const std::string name = "\"><script>&'";
  Results results = Read(SyntheticResults({.seeds = 3}));
  for (RunResult& run : results.runs) {
    if (run.arm == "fp8") run.arm = name;
  }
  std::replace(results.arms.begin(), results.arms.end(), std::string("fp8"), name);
  results.study["arms"][name] = results.study["arms"]["fp8"];
  results.question.criteria = Json::array();
  const Analysis analysis = Analyze(results, 10);
  for (const Figure& figure : DrawFigures(results, analysis)) {
    CAPTURE(figure.file);
    CHECK(WellFormed(figure.standalone));
    CHECK(WellFormed(figure.embedded));
    CHECK(figure.embedded.find("data-series=\"&quot;&gt;&lt;script&gt;&amp;") !=
          figure.embedded.npos);
  }
  CHECK(CountOf(ReportHtml(results, analysis), "<script") == 1);
}

TEST_CASE("The well-formedness check can fail", "[study]") {
  CHECK(WellFormed("<a b=\"1\"><c/>x &lt; y</a>"));
  CHECK(!WellFormed("<a><b></a></b>"));
  CHECK(!WellFormed("<a>x & y</a>"));
  CHECK(!WellFormed("<a>x < y</a>"));
}

TEST_CASE("A line's marks stand where its numbers are", "[study]") {
  const Results results = Read(SyntheticResults({.noise = 0}));
  const Analysis analysis = Analyze(results, kDraws);
  const std::string svg = DrawLoss(results, analysis).standalone;
  // The bf16 line: three points, evenly spaced in ln D; heights in proportion to the losses.
  const std::size_t at = svg.find("class=\"s0 line\" points=\"");
  REQUIRE(at != svg.npos);
  const std::string points = Attribute(svg.substr(at - 1, 200), "points");
  double x[3], y[3];
  REQUIRE(std::sscanf(points.c_str(), "%lf,%lf %lf,%lf %lf,%lf", &x[0], &y[0], &x[1], &y[1], &x[2],
                      &y[2]) == 6);
  CHECK(x[1] - x[0] == Approx(x[2] - x[1]).epsilon(1e-3));
  const auto mean = [&](std::int64_t tokens) {
    return analysis.FindLoss("bf16", tokens, Precision::kTraining)->summary.mean;
  };
  CHECK((y[2] - y[1]) / (y[1] - y[0]) ==
        Approx((mean(2048000) - mean(4096000)) / (mean(1024000) - mean(2048000))).epsilon(2e-3));
}

TEST_CASE("A leaning interval ends where its function says, and is cut at the panel", "[study]") {
  Svg svg(400, 300, "", "");
  const Panel panel(&svg, {0, 0, 200, 100}, {1, 100, true, "", {}}, {1, 10, true, "", {}});
  const auto x_of = [](double y) { return 20 / y; };
  const auto line = [&](const std::string& style) {
    const std::string document = svg.Document(true);
    const std::size_t at = document.find("<line class=\"" + style + "\"");
    REQUIRE(at != document.npos);
    const std::string tag = document.substr(at, document.find('>', at) - at);
    std::vector<double> ends;
    for (const char* name : {"x1", "y1", "x2", "y2"})
      ends.push_back(std::stod(Attribute(tag, name)));
    return ends;
  };
  const auto check = [&](const std::string& style, double top, double bottom) {
    const std::vector<double> ends = line(style);
    CHECK(ends[0] == Approx(panel.X(x_of(top)) + 3).margin(0.06));
    CHECK(ends[1] == Approx(panel.Y(top)).margin(0.06));
    CHECK(ends[2] == Approx(panel.X(x_of(bottom)) + 3).margin(0.06));
    CHECK(ends[3] == Approx(panel.Y(bottom)).margin(0.06));
  };
  panel.Whisker(x_of, {2, 4}, 3, "inside");
  check("inside", 4, 2);
  panel.Whisker(x_of, {0.5, INFINITY}, 3, "cut");
  check("cut", 10, 1);
  CHECK(CountOf(svg.Document(true), "<line class=\"inside\"") == 3);   // with an end line each
  CHECK(CountOf(svg.Document(true), "<polyline class=\"cut\"") == 2);  // arrow heads

  TokenRatio ratio;
  ratio.tokens = 600;
  ratio.form = Form::kExtend;
  CHECK(TokensOfReference(ratio, 1.5) == 600);
  ratio.form = Form::kShrink;
  CHECK(TokensOfReference(ratio, 1.5) == 400);
}

TEST_CASE("Ticks are round numbers and few enough", "[study]") {
  const auto labels = [](const std::vector<Tick>& ticks) {
    std::string text;
    for (const Tick& tick : ticks) text += tick.label + " ";
    return text;
  };
  CHECK(labels(RoundTicks(0, 1, 5)) == "0.0 0.2 0.4 0.6 0.8 1.0 ");
  CHECK(labels(RoundTicks(-0.013, 0.11, 7)) == "0.00 0.02 0.04 0.06 0.08 0.10 ");
  CHECK(labels(RoundTicks(1.38, 1.74, 7)) == "1.4 1.5 1.6 1.7 ");
  CHECK(labels(RoundTicks(0, 3.3e6, 4)) == "0 1000000 2000000 3000000 ");
  CHECK(RoundTicks(1, 1, 5).empty());
}

TEST_CASE("Labels are spread out by as little as needed", "[study]") {
  using V = std::vector<double>;
  CHECK(SpreadOut(V{10, 50}, 15, 0, 100) == V{10, 50});
  CHECK(SpreadOut(V{50, 50}, 10, 0, 100) == V{45, 55});
  CHECK(SpreadOut(V{52, 50, 90}, 10, 0, 100) == V{56, 46, 90});
  CHECK(SpreadOut(V{-5, 0}, 10, 0, 100) == V{0, 10});
  CHECK(SpreadOut(V{100, 99}, 10, 0, 100) == V{100, 90});
}

TEST_CASE("The page stands on its own", "[study]") {
  for (const auto& [name, json] : Studies()) {
    CAPTURE(name);
    const Results results = Read(json);
    std::string html = ReportHtml(results, Analyze(results, kDraws));
    const std::string space = "xmlns=\"http://www.w3.org/2000/svg\"";  // a name, not an address
    for (std::size_t at = html.find(space); at != html.npos; at = html.find(space)) {
      html.erase(at, space.size());
    }
    for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "<link", "fetch(",
                                "XMLHttpRequest", "eval(", " onclick=", " onload="}) {
      CAPTURE(outside);
      CHECK(html.find(outside) == html.npos);
    }
    CHECK(CountOf(html, "<script") == 1);
    CHECK(html.find("<script>" + std::string(PageScript()) + "</script>") != html.npos);
    CHECK(html.find("content=\"" + PagePolicy() + "\"") != html.npos);
    for (const std::string& arm : results.arms) CHECK(html.find(arm) != html.npos);
    CHECK(html.find(results.train_sha256) != html.npos);
    CHECK(html.find("prefers-color-scheme:dark") != html.npos);
  }
}

TEST_CASE("Long lines of a table's texts are broken, short ones and numbers are not", "[study]") {
  HtmlTable table;
  table.head = {"verdict", "criterion", "numbers"};
  table.text_columns = 2;
  const std::string line(61, 'a'), limit(60, 'a');
  table.rows = {{"<span>" + line + "</span>", "short<br>" + line, line}, {limit, limit, limit}};
  const std::string html = table.Html();
  CHECK_THAT(html, ContainsSubstring("<td class=\"text\"><span>"));
  CHECK_THAT(html, ContainsSubstring("<td class=\"text wrap\">short<br>" + line + "</td>"));
  CHECK_THAT(html, ContainsSubstring("<td>" + line + "</td>"));
  CHECK_THAT(html, ContainsSubstring("<td class=\"text\">" + limit + "</td>"));
}

TEST_CASE("A title cannot write into the page", "[study]") {
  Json json = SyntheticResults({.seeds = 2});
  json["study"]["title"] = "<script>alert(1)</script> & more";
  json["study"]["description"] = "a < b";
  const Results results = Read(json);
  const std::string html = ReportHtml(results, Analyze(results, 10));
  CHECK(CountOf(html, "<script") == 1);  // the page's own
  CHECK(html.find("&lt;script&gt;alert(1)&lt;/script&gt; &amp; more") != html.npos);
}

TEST_CASE("The page tells of divergence and of what is not identified", "[study]") {
  const Results results = Read(Studies()[5].second);
  const std::string html = ReportHtml(results, Analyze(results, kDraws));
  CHECK(html.find("<b>mxfp4, seed 2 diverged</b> at step 700, first in blocks.1.mlp.down.output") !=
        html.npos);
  CHECK(html.find("1 of 5 seeds diverged") != html.npos);
  CHECK(html.find("needs 4 budgets, has 3") != html.npos);
}

TEST_CASE("The page says that intervals over seeds leave out the validation text", "[study]") {
  const Results results = Read(SyntheticResults());
  const std::string html = ReportHtml(results, Analyze(results, kDraws));
  CHECK(html.find("The t interval leaves out the error of the validation text") != html.npos);
  CHECK(html.find("It leaves out the error of the validation text") != html.npos);
  CHECK(CostTable(results, Analyze(results, kDraws)).find("does not decide between formats") !=
        std::string::npos);
}

TEST_CASE("The page says which GPUs trained how many runs, and warns of several kinds", "[study]") {
  const auto page = [](const Json& json) {
    const Results results = Read(json);
    return ReportHtml(results, Analyze(results, 10));
  };
  Json json = SyntheticResults({.seeds = 2});
  const std::string cpu = page(json);
  CHECK(cpu.find("<td>GPU</td>") == cpu.npos);
  for (Json& run : json["runs"]) run["processors"] = {"NVIDIA H200, cuBLASLt 13.1.0"};
  const std::string one = page(json);
  const std::string runs = std::to_string(json["runs"].size());
  CHECK(one.find("<code>NVIDIA H200, cuBLASLt 13.1.0: " + runs + " runs</code>") != one.npos);
  CHECK(one.find("Several kinds of GPUs") == one.npos);
  json["runs"][0]["processors"].push_back("NVIDIA H100, cuBLASLt 13.1.0");
  const std::string two = page(json);
  CHECK(two.find("cuBLASLt 13.1.0, then NVIDIA H100, cuBLASLt 13.1.0: 1 run<") != two.npos);
  CHECK(two.find("<b>Several kinds of GPUs</b>") != two.npos);
}

TEST_CASE("The page has every diagnostic of every operand, and says which the file lacks",
          "[study]") {
  Json json = SyntheticResults({.seeds = 2});
  for (Json& run : json["runs"]) {
    for (Json& tensor : run["tensors"]) {
      for (const Diagnostic& d : Diagnostics()) tensor[std::string(d.key)] = 12.5;
    }
  }
  std::string html = ReportHtml(Read(json), Analyze(Read(json), 10));
  for (const Diagnostic& d : Diagnostics()) {
    CAPTURE(d.key);
    CHECK(html.find("<th>" + std::string(d.label)) != html.npos);
  }
  CHECK(html.find("<td class=\"text\">fprop input</td>") != html.npos);
  CHECK(html.find("Missing in this file") == html.npos);
  for (Json& run : json["runs"]) {  // as a version without the diagnostic wrote it
    for (Json& tensor : run["tensors"]) tensor.erase("clip_percent");
  }
  const Results older = Read(json);
  CHECK(std::isnan(older.Find("nvfp4", 1)->tensors[0].values["clip_percent"]));
  html = ReportHtml(older, Analyze(older, 10));
  CHECK(html.find("Missing in this file of fp4lab " + older.version + ": clipped.") != html.npos);
  CHECK(html.find("<th>clipped") == html.npos);  // no column of nothing but dashes
}

TEST_CASE("The costs are an arm's products, their time, and their time to an equal loss",
          "[study]") {
  Json json = SyntheticResults();
  Json& arms = json["study"]["arms"];
  arms["fp8"]["recipe"] = ToJson(ReadRecipe("te_mxfp8", "test"));
  arms["nvfp4"]["recipe"] = ToJson(ReadRecipe("te_mxfp8_fwd_nvfp4_bwd", "test"));
  arms["mxfp4"]["recipe"] = {{"base", "of another version"}};
  const Results results = Read(json);
  const Analysis analysis = Analyze(results, kDraws);
  const std::string html = CostTable(results, analysis);
  const auto row = [&](const std::string& arm) {
    const std::size_t first = html.find("<tr><td class=\"text\">" + arm + "</td>");
    REQUIRE(first != html.npos);
    return html.substr(first, html.find("</tr>", first) - first);
  };
  const auto cells = [](const std::vector<std::string>& values) {
    std::string text;
    for (const std::string& value : values) text += "<td>" + value + "</td>";
    return text;
  };
  CAPTURE(html);
  CHECK(row("bf16") == "<tr><td class=\"text\">bf16</td>" +
                           cells({"", "", "100.0 %", "1.00", "1", "<b>1.00</b>", "", ""}));
  const auto ratio = [&](const char* arm) {
    const TokenRatio* shown = ShownRatio(analysis, {arm, "bf16"}, results.question.primary_tokens);
    REQUIRE(shown != nullptr);
    REQUIRE(shown->identified);
    return *shown;
  };
  const TokenRatio extended = ratio("fp8"), shrunk = ratio("nvfp4");
  CHECK(extended.form == Form::kExtend);
  CHECK(shrunk.form == Form::kShrink);
  CHECK(row("fp8") == "<tr><td class=\"text\">fp8</td>" +
                          cells({"", "100.0 %", "", "0.50", Fixed(extended.ratio, 2),
                                 "<b>" + Fixed(extended.ratio / 2, 2) + "</b>", "", ""}));
  // S*: over the 8-bit arm, in a form that both have: seed by seed, the ratio of the ratios.
  const auto of_form = [&](const char* arm) {
    return analysis.FindRatio(arm, "bf16", results.question.primary_tokens, Precision::kTraining,
                              Estimator::kCrossing, Form::kShrink);
  };
  std::vector<double> differences;
  for (std::size_t s = 0; s < results.seeds.size(); ++s) {
    differences.push_back(of_form("nvfp4")->per_seed[s].value - of_form("fp8")->per_seed[s].value);
  }
  const Summary summary = Summarize(differences);
  const Interval logs = *StudentInterval(summary, results.question.confidence);
  const Interval ends = {std::exp(logs.low), std::exp(logs.high)};
  std::string pays;
  for (const double speed : {1.31, 1.35, 1.44, 1.73}) {
    pays += (pays.empty() ? "" : ", ") + Fixed(speed, 2) + ": " +
            (ends.Contains(speed) ? "open"
             : speed > ends.high  ? "yes"
                                  : "no");
  }
  CHECK(row("nvfp4") ==
        "<tr><td class=\"text\">nvfp4</td>" +
            cells({"66.7 %", "33.3 %", "", "0.33", Fixed(shrunk.ratio, 2) + " r'",
                   "<b>" + Fixed(shrunk.ratio / 3, 2) + "</b>",
                   Fixed(std::exp(summary.mean), 2) + " " + IntervalText(ends, 2) + " r'", pays}));
  const std::string unread = row("mxfp4");
  CHECK(unread.substr(0, unread.find("%")) == unread);
  CHECK(unread.find("<td>-</td>") != unread.npos);
  CHECK(unread.find("<b>-</b>") != unread.npos);

  // A reference that is not BF16 is the unit of time.
  json["study"]["analysis"]["reference"] = "fp8";
  const Results other = Read(json);
  const std::string relative = CostTable(other, Analyze(other, kDraws));
  CHECK(relative.find("<tr><td class=\"text\">bf16</td>" + cells({"", "", "100.0 %", "2.00"})) !=
        relative.npos);
}

TEST_CASE("Results of versions before a diagnostic are read with those that they have", "[study]") {
  const std::filesystem::path source = std::getenv("FP4LAB_SOURCE_DIR");
  std::size_t files = 0;
  for (const auto& folder : std::filesystem::directory_iterator(source / "studies/results")) {
    if (!std::filesystem::exists(folder.path() / "results.json")) continue;  // a table's folder
    CAPTURE(folder.path());
    const Results results = LoadResults(folder.path());
    const auto measured = [](const RunResult& run) { return !run.tensors.empty(); };
    if (std::none_of(results.runs.begin(), results.runs.end(), measured)) continue;  // publish.py
    for (const Diagnostic& d : Diagnostics()) {
      const std::string_view all[] = {"amax", "underflow_percent", "clip_percent", "sqnr_db"};
      if (std::find(std::begin(all), std::end(all), d.key) != std::end(all)) CHECK(results.Has(d));
    }
    CHECK_FALSE(OperandTable(results).empty());
    ++files;
  }
  CHECK(files >= 5);
}

TEST_CASE("The CSV holds a row a run and budget", "[study]") {
  const Results results = Read(Studies()[5].second);
  const std::string csv = RunsCsv(results);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 1 + 4 * 5 * 3 - 2);
  CHECK(csv.find("mxfp4,2,diverged,1024000,500,") != csv.npos);
  const AnnealedPoint& p = results.Find("bf16", 1)->points[0];
  CHECK(csv.find("\nbf16,1,ok,1024000,500,5.208333333333333," + Json(p.loss).dump() + "," +
                 Json(p.loss_high).dump() + ",100.0\n") != csv.npos);
}

TEST_CASE("A study whose question came after its runs is called exploratory", "[study]") {
  Json json = SyntheticResults({.seeds = 3});
  CHECK(SummaryText(Read(json), Analyze(Read(json), 10)).find("exploratory") == std::string::npos);
  json["exploratory"] = true;
  const Results results = Read(json);
  const Analysis analysis = Analyze(results, 10);
  CHECK(SummaryText(results, analysis).find("\nexploratory: ") != std::string::npos);
  CHECK(ReportHtml(results, analysis).find("<b>Exploratory.</b>") != std::string::npos);
}

TEST_CASE("The summary fits a terminal and says the verdicts", "[study]") {
  const Results results = Read(SyntheticResults());
  const std::string text = SummaryText(results, Analyze(results, kDraws));
  std::size_t start = 0, longest = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', start)) {
    longest = std::max(longest, end - start);
    start = end + 1;
  }
  CHECK(longest <= 100);
  CHECK(text.find("mxfp4 to match nvfp4") != text.npos);
  CHECK(text.find("  held           mean losses in the order bf16 < fp8 < nvfp4 < mxfp4") !=
        text.npos);
  CHECK(text.find("gap to bf16") != text.npos);
  const Results two = Read(SyntheticResults({.seeds = 2}));
  CHECK(SummaryText(two, Analyze(two, 10)).find("no intervals: they need 3 seeds") !=
        std::string::npos);
}

TEST_CASE("A report is written whole, twice the same, and keeps the results", "[study]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "fp4lab_report_test";
  std::filesystem::remove_all(folder);
  const Json json = SyntheticResults({.seeds = 3});
  WriteFileAtomically(folder / "results.json", json.dump(1));
  const ReportFiles files = WriteReport(folder);
  CHECK(!files.summary.empty());
  std::vector<std::filesystem::path> written;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) written.push_back(entry.path());
  }
  CHECK(written.size() == 8);  // results.json, report.html, results.csv and five figures
  std::vector<std::string> first;
  for (const auto& path : written) first.push_back(ReadFile(path));
  WriteReport(folder / "results.json");
  for (std::size_t i = 0; i < written.size(); ++i) {
    CAPTURE(written[i]);
    CHECK(ReadFile(written[i]) == first[i]);
  }
  Json after = ReadJsonFile(folder / "results.json");
  CHECK(after["analysis"]["token_ratios"].size() == 4 * 3 * 3 * 2 * 2);
  after.erase("analysis");
  CHECK(after["sha256"].get<std::string>().size() == 64);
  after.erase("sha256");
  CHECK(after == json);
  CHECK_THROWS_AS(WriteReport(folder / "nowhere"), Error);
  std::filesystem::remove_all(folder);
}

// The notebook and its test read this file. To renew it after a change of synthetic.h, set
// FP4LAB_WRITE_FIXTURES=1 and run this test.
TEST_CASE("The committed fixture is what the generator makes", "[study]") {
  const std::filesystem::path path = std::filesystem::path(std::getenv("FP4LAB_SOURCE_DIR")) /
                                     "tests/study/support/synthetic_results.json";
  const std::string text =
      SyntheticResults({.seeds = 3, .chunks = 12, .curve_points = 30}).dump() + "\n";
  if (std::getenv("FP4LAB_WRITE_FIXTURES") != nullptr) WriteFileAtomically(path, text);
  CHECK(ReadFile(path) == text);
}

}  // namespace
}  // namespace fp4lab::study
