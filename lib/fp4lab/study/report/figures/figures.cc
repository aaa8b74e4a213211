#include "fp4lab/study/report/figures/figures.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/plot.h"
#include "fp4lab/study/report/study_report.h"

namespace fp4lab::study {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 84, kTop = 62, kPanelHeight = 300;
constexpr int kDigits = 6;  // of losses and gaps in the titles of marks

Box PanelBox(const Results& results) {
  return {kLeft, kTop, kWidth - kLeft - RoomForNames(results.arms), kPanelHeight};
}

// The horizontal offset, px, of the marks of arm i of n from the budget's tick.
double Beside(std::size_t i, std::size_t n, double step) {
  return (static_cast<double>(i) - (static_cast<double>(n) - 1) / 2) * step;
}

std::vector<std::size_t> ArmsWithGaps(const Results& results) {
  std::vector<std::size_t> arms;
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    if (results.arms[arm] != results.question.reference) arms.push_back(arm);
  }
  return arms;
}

std::string SeedWord(const Results& results) {
  return std::to_string(results.seeds.size()) + (results.seeds.size() == 1 ? " seed" : " seeds");
}

std::string MeanOf(const Summary& summary) {
  if (summary.count == 1) return "; one seed";
  return "; mean of " + std::to_string(summary.count) + " seeds, s.d. " +
         Fixed(summary.deviation, kDigits);
}

// Draws one arm of the figure of losses: a mark a seed beside the tick, and the line of the means.
void DrawLossesOf(Svg* svg, const Panel& panel, const Results& results, const Analysis& analysis,
                  std::size_t arm, std::size_t series) {
  const std::string style = SeriesClass(series), &name = results.arms[arm];
  const double shift = Beside(arm, results.arms.size(), 5);
  std::vector<Dot> line;
  std::vector<std::string> titles;
  for (const std::int64_t tokens : results.budgets) {
    const ArmLoss* loss = analysis.FindLoss(name, tokens, Precision::kTraining);
    if (loss->summary.count == 0) continue;
    line.push_back(panel.At(static_cast<double>(tokens), loss->summary.mean));
    titles.push_back(name + ": loss " + Fixed(loss->summary.mean, kDigits) +
                     AtTokens(results, tokens) + MeanOf(loss->summary));
  }
  svg->BeginSeries(name);
  svg->Polyline(line, style + " line");
  for (const RunResult& run : results.runs) {
    if (run.arm != name) continue;
    for (const AnnealedPoint& p : run.points) {
      if (!std::isfinite(p.loss)) continue;
      svg->Marker(panel.At(static_cast<double>(p.tokens), p.loss, shift), series, 3.2,
                  style + " soft",
                  ArmAndSeed(name, run.seed) + ": loss " + Fixed(p.loss, kDigits) +
                      AtTokens(results, p.tokens));
    }
  }
  for (std::size_t i = 0; i < line.size(); ++i) {
    svg->Marker(line[i], series, 4.4, style + " fill", titles[i]);
  }
  svg->End();
}

// Draws one arm of the figure of gaps: mean and interval, with the seeds beside them.
void DrawGapsOf(Svg* svg, const Panel& panel, const Results& results, const Analysis& analysis,
                const std::string& arm, std::size_t series, double shift) {
  const std::string style = SeriesClass(series);
  std::vector<Dot> line;
  std::vector<std::string> titles;
  svg->BeginSeries(arm);
  for (const std::int64_t tokens : results.budgets) {
    const LossGap* gap =
        analysis.FindGap(arm, results.question.reference, tokens, Precision::kTraining);
    if (gap == nullptr || gap->summary.count == 0) continue;
    const auto x = static_cast<double>(tokens);
    line.push_back(panel.At(x, gap->summary.mean, shift));
    titles.push_back(arm + ": gap " + Signed(gap->summary.mean, kDigits) +
                     (gap->interval ? " " + IntervalText(*gap->interval, kDigits) : "") +
                     AtTokens(results, tokens) + MeanOf(gap->summary));
    if (gap->interval) panel.Whisker(x, *gap->interval, shift, style + " thin");
    for (std::size_t s = 0; s < gap->per_seed.size(); ++s) {
      const std::optional<double>& value = gap->per_seed[s];
      if (!value) continue;
      svg->Marker(panel.At(x, *value, shift + 7), series, 2.2, style + " soft",
                  ArmAndSeed(arm, results.seeds[s]) + ": gap " + Signed(*value, kDigits) +
                      AtTokens(results, tokens));
    }
  }
  svg->Polyline(line, style + " thin faint");
  for (std::size_t i = 0; i < line.size(); ++i) {
    svg->Marker(line[i], series, 4.6, style + " fill", titles[i]);
  }
  svg->End();
}

// All values that the y axis of the figure of gaps must cover.
std::vector<double> GapValues(const Results& results, const Analysis& analysis) {
  std::vector<double> values = {0};
  for (const LossGap& gap : analysis.gaps) {
    if (gap.reference != results.question.reference || gap.precision != Precision::kTraining) {
      continue;
    }
    if (gap.summary.count > 0) values.push_back(gap.summary.mean);
    if (gap.interval) values.insert(values.end(), {gap.interval->low, gap.interval->high});
    for (const auto& value : gap.per_seed) values.push_back(value.value_or(NAN));
  }
  return values;
}

}  // namespace

Figure DrawLoss(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  const std::vector<std::size_t> series = SeriesOf(results);
  std::vector<double> values;
  for (const RunResult& run : results.runs) {
    for (const AnnealedPoint& point : run.points) values.push_back(point.loss);
  }
  Figure figure{
      "loss.svg", "Validation loss after the decay",
      "Small marks: one seed each, at the end of its decay to that budget. Lines join the "
      "means over " +
          SeedWord(results) + ". Validated in the precision of the training.",
      "", ""};
  Svg svg(kWidth, kHeight, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  const Panel panel(&svg, PanelBox(results), BudgetAxis(results, 0.12),
                    Labelled(AxisAround(values, 0.06, 7), "loss, nats per token"));
  std::vector<Panel::EndLabel> labels;
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    DrawLossesOf(&svg, panel, results, analysis, arm, series[arm]);
    const ArmLoss* last =
        analysis.FindLoss(results.arms[arm], results.budgets.back(), Precision::kTraining);
    if (last->summary.count > 0) {
      labels.push_back({last->summary.mean, results.arms[arm], series[arm]});
    }
  }
  panel.EndLabels(labels, static_cast<double>(results.budgets.back()));
  return Finished(std::move(figure), svg);
}

Figure DrawGap(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  const std::vector<std::size_t> series = SeriesOf(results), arms = ArmsWithGaps(results);
  const std::string& reference = results.question.reference;
  const std::string whiskers =
      results.seeds.size() < kLeastSeeds
          ? "; an interval needs " + std::to_string(kLeastSeeds) + " seeds. "
          : ", whiskers its " + Fixed(100 * results.question.confidence, 0) + " % t interval. ";
  Figure figure{"gap.svg", "Gap to " + reference,
                "Loss minus the loss of " + reference +
                    " with the same seed. Small marks: one "
                    "seed each. Large marks: their mean" +
                    whiskers + "Marks of one budget are offset horizontally for legibility.",
                "", ""};
  Svg svg(kWidth, kHeight, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  const Panel panel(
      &svg, PanelBox(results), BudgetAxis(results, 0.16),
      Labelled(AxisAround(GapValues(results, analysis), 0.06, 7), "gap, nats per token"));
  panel.HorizontalLine(0, "zero");
  std::vector<Panel::EndLabel> labels;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const std::string& arm = results.arms[arms[i]];
    DrawGapsOf(&svg, panel, results, analysis, arm, series[arms[i]], Beside(i, arms.size(), 18));
    const LossGap* last =
        analysis.FindGap(arm, reference, results.budgets.back(), Precision::kTraining);
    if (last != nullptr && last->summary.count > 0) {
      labels.push_back({last->summary.mean, arm, series[arms[i]]});
    }
  }
  panel.EndLabels(labels, static_cast<double>(results.budgets.back()));
  return Finished(std::move(figure), svg);
}

std::vector<Figure> DrawFigures(const Results& results, const Analysis& analysis,
                                const std::vector<Overlay>& overlays) {
  const IeeeArithmetic ieee;
  std::vector<Figure> figures = {DrawLoss(results, analysis)};
  if (results.arms.size() > 1) {
    figures.push_back(DrawGap(results, analysis));
    if (results.budgets.size() > 1) figures.push_back(DrawTokenRatio(results, analysis));
  }
  for (const Diagnostic& diagnostic : Diagnostics()) {
    if (diagnostic.figure.empty() || !results.Has(diagnostic)) continue;
    figures.push_back(DrawOperands(results, diagnostic));
  }
  if (results.HasObservations()) figures.push_back(DrawCourse(results));
  if (HasCurves(results)) figures.push_back(DrawTraining(results, overlays));
  return figures;
}

}  // namespace fp4lab::study
