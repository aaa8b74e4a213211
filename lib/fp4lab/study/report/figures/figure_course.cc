// The figure of the diagnostics over the course of training: small multiples, a panel a diagnostic.
#include <algorithm>
#include <cmath>
#include <map>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/figures/plot.h"

namespace fp4lab::study {
namespace {

// The diagnostic of a panel; of the products of one GEMM if `gemm` names it.
struct PanelChoice {
  std::string_view key, gemm = "";
};
constexpr PanelChoice kPanels[] = {
    {"noise_ratio"},
    {"gradient_cosine"},
    {"loss_increase"},
    {"cosine", "fprop"},
    {"cosine", "dgrad"},
    {"cosine", "wgrad"},
    {"projection_percent", "fprop"},
    {"projection_percent", "dgrad"},
    {"projection_percent", "wgrad"},
    {"sqnr_db"},
    {"underflow_percent"},
    {"clip_percent"},
    {"kurtosis"},
    {"outlier_percent"},
    {"bias_percent"},
    {"scale_spread"},
    {"flips_percent"},
    {"returns_percent"},
};

const CourseDiagnostic& Named(std::string_view key) {
  const auto table = CourseDiagnostics();
  return *std::find_if(table.begin(), table.end(),
                       [&](const CourseDiagnostic& d) { return d.key == key; });
}

// The mean over the rows of an observation that have the number; NaN where none has.
double MeanOver(const Observation& observation, const PanelChoice& choice) {
  double sum = 0, count = 0;
  for (const ObservedRow& row : observation.rows) {
    const auto found = row.numbers.find(std::string(choice.key));
    const bool is_chosen =
        choice.gemm.empty() || row.name.ends_with("." + std::string(choice.gemm));
    if (found == row.numbers.end() || !is_chosen) continue;
    sum += found->second;
    count += 1;
  }
  return count > 0 ? sum / count : NAN;
}

struct Point {
  double step = 0;
  Summary summary;
};

// An arm's numbers by step, over seeds, on the way to the largest budget: the trunk and its decay.
std::vector<Point> PointsOf(const Results& results, const std::string& arm,
                            const PanelChoice& choice) {
  std::map<std::int64_t, std::vector<double>> by_step;
  for (const RunResult& run : results.runs) {
    if (run.arm != arm) continue;
    for (const Observation& o : run.observations) {
      if (o.budget != 0 && o.budget != results.budgets.back()) continue;
      const double value = MeanOver(o, choice);
      if (std::isfinite(value)) by_step[o.step].push_back(value);
    }
  }
  std::vector<Point> points;
  for (const auto& [step, values] : by_step) {
    points.push_back({static_cast<double>(step), Summarize(values)});
  }
  return points;
}

struct CoursePanel {
  PanelChoice choice;
  const CourseDiagnostic* diagnostic = nullptr;
  std::map<std::size_t, std::vector<Point>> arms;  // index of the arm -> by step
};

// The panels that have data.
std::vector<CoursePanel> PanelsOf(const Results& results) {
  std::vector<CoursePanel> panels;
  for (const PanelChoice& choice : kPanels) {
    CoursePanel panel{choice, &Named(choice.key), {}};
    for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
      std::vector<Point> points = PointsOf(results, results.arms[arm], choice);
      if (!points.empty()) panel.arms[arm] = std::move(points);
    }
    if (!panel.arms.empty()) panels.push_back(std::move(panel));
  }
  return panels;
}

std::string TitleOf(const CoursePanel& panel) {
  const std::string label(panel.diagnostic->label), unit(panel.diagnostic->unit);
  return label + (panel.choice.gemm.empty() ? "" : ", " + std::string(panel.choice.gemm)) +
         (unit.empty() ? "" : ", " + unit);
}

std::string ValueText(const CourseDiagnostic& diagnostic, double value) {
  const std::string unit(diagnostic.unit);
  return (diagnostic.digits > 0 ? Fixed(value, diagnostic.digits) : SignificantText(value)) +
         (unit.empty() ? "" : " " + unit);
}

constexpr double kWidth = 760, kColumn = 246, kLeft = 62, kPanelWidth = 172;
constexpr double kPanelHeight = 104, kPanelRow = 172;
constexpr std::size_t kColumns = 3;

void DrawPanel(Svg* svg, const CoursePanel& panel, Dot at, double last, const Results& results,
               const std::vector<std::size_t>& series) {
  std::vector<double> values;
  for (const auto& [arm, points] : panel.arms) {
    for (const Point& p : points) values.push_back(p.summary.mean);
  }
  const bool has_threshold = panel.choice.key == "noise_ratio";
  if (has_threshold) values.push_back(kNoiseThreshold);
  Axis x{0, last > 0 ? last : 1, false, "", {}};
  for (const Tick& tick : RoundTicks(0, x.high, 5)) {
    x.ticks.push_back({tick.value, tick.value == 0 ? "0" : TokensText(tick.value), ""});
  }
  svg->Text({at.x, at.y - 9}, TitleOf(panel), "t small strong");
  const Panel drawn(svg, {at.x, at.y, kPanelWidth, kPanelHeight}, x, AxisAround(values, 0.08, 4));
  if (has_threshold) drawn.HorizontalLine(kNoiseThreshold, "zero");
  for (const auto& [arm, points] : panel.arms) {
    const std::string style = SeriesClass(series[arm]), &name = results.arms[arm];
    std::vector<Dot> line;
    for (const Point& p : points) line.push_back(drawn.At(p.step, p.summary.mean));
    svg->BeginSeries(name);
    svg->Polyline(line, style + " thin");
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Summary& s = points[i].summary;
      svg->Marker(line[i], series[arm], 2.4, style + " fill",
                  name + ": " + TitleOf(panel) + " " + ValueText(*panel.diagnostic, s.mean) +
                      " after " + Fixed(points[i].step, 0) + " steps" +
                      (s.count > 1 ? "; mean of " + CountText(s.count, "seed") + ", s.d. " +
                                         ValueText(*panel.diagnostic, s.deviation)
                                   : ""));
    }
    svg->End();
  }
}

}  // namespace

Figure DrawCourse(const Results& results) {
  const IeeeArithmetic ieee;
  const std::vector<CoursePanel> panels = PanelsOf(results);
  const std::vector<std::size_t> series = SeriesOf(results);
  Figure figure{
      "course.svg", "Diagnostics over the course of training",
      "Across: optimizer steps, on the trunk and the decay to the largest budget: means over "
      "linears, operands and seeds. gradient / noise: " +
          std::string(Named("noise_ratio").definition) + ". The line is sqrt(3). " +
          std::string(Named("noise_ratio").reading) +
          " came back: " + std::string(Named("returns_percent").definition) + ". " +
          std::string(Named("returns_percent").reading) +
          " Each operand, product and weight by itself is in diagnostics.csv.",
      "", ""};
  std::vector<bool> shown(results.arms.size());
  double last = 0;
  for (const CoursePanel& panel : panels) {
    for (const auto& [arm, points] : panel.arms) {
      shown[arm] = true;
      last = std::max(last, points.back().step);
    }
  }
  std::vector<LegendEntry> entries;
  for (std::size_t arm = 0; arm < shown.size(); ++arm) {
    if (shown[arm]) entries.push_back({results.arms[arm], series[arm], series[arm]});
  }
  const double top = LegendBottom(kWidth, entries) + 18;
  const auto rows = static_cast<double>((panels.size() + kColumns - 1) / kColumns);
  Svg svg(kWidth, top + rows * kPanelRow, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  DrawLegend(&svg, kWidth, entries);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const Dot at{kLeft + kColumn * static_cast<double>(i % kColumns),
                 top + kPanelRow * static_cast<double>(i / kColumns)};
    DrawPanel(&svg, panels[i], at, last, results, series);
  }
  return Finished(std::move(figure), svg);
}

}  // namespace fp4lab::study
