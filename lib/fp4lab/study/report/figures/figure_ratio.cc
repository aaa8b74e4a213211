// The figure of token ratios.
#include <algorithm>
#include <cmath>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/figures/plot.h"

namespace fp4lab::study {
namespace {

constexpr double kWidth = 760, kPanelHeight = 300, kBelow = 88;

struct Series {
  ArmPair pair;
  std::size_t colour;
  std::string text;
};

std::vector<Series> SeriesOfRatios(const Results& results) {
  const std::vector<std::size_t> colours = SeriesOf(results);
  std::vector<Series> series;
  for (const ArmPair& pair : PairsOf(results)) {
    const bool contrast = pair.format == results.question.format &&
                          pair.reference == results.question.format_reference;
    series.push_back({pair, contrast ? 4 : colours[IndexOf(results.arms, pair.format)],
                      pair.format + " to match " + pair.reference});
  }
  return series;
}

Axis RatioAxis(const Results& results, const Analysis& analysis,
               const std::vector<Series>& series) {
  double low = 0.95, high = 1.45;
  for (const Series& s : series) {
    for (const std::int64_t tokens : results.budgets) {
      const TokenRatio* ratio = ShownRatio(analysis, s.pair, tokens);
      if (!ratio->identified) continue;
      low = std::min(low, ratio->ratio * 0.95);
      high = std::max(high, ratio->ratio * 1.05);
      if (!ratio->interval) continue;
      // A very wide interval must not flatten the panel, which cuts it instead.
      low = std::min(low, std::max(ratio->interval->low * 0.98, 0.6 * ratio->ratio));
      high = std::max(high, std::min(ratio->interval->high * 1.02, 1.8 * ratio->ratio));
    }
  }
  return {low, high, true, "token ratio", RoundTicks(low, high, 8)};
}

// To the last place where something is drawn: shrink forms stand before their budgets.
Axis TokensAxis(const Results& results, const Analysis& analysis,
                const std::vector<Series>& series) {
  double last = 0;
  for (const Series& s : series) {
    for (const std::int64_t tokens : results.budgets) {
      const TokenRatio* ratio = ShownRatio(analysis, s.pair, tokens);
      const double at =
          ratio->identified ? TokensOfReference(*ratio, ratio->ratio) : static_cast<double>(tokens);
      last = std::clamp(at, last, static_cast<double>(results.budgets.back()));
    }
  }
  return Labelled(BudgetAxis(results, 0.16, last),
                  "tokens D of the second format, and per block parameter (D/N)");
}

// "mxfp4 to match nvfp4: r = 1.359 [1.214, 1.520] at 2048000 tokens (D/N 10)"
std::string TitleOf(const Results& results, const TokenRatio& ratio, const std::string& name) {
  std::string text = name + ": ";
  if (ratio.identified) {
    text += (ratio.form == Form::kExtend ? "r = " : "shrink form r' = ") + Fixed(ratio.ratio, 4);
    if (ratio.interval) text += " " + IntervalText(*ratio.interval, 4);
  } else {
    text += "not identified, " + ratio.reason;
  }
  text += AtTokens(results, ratio.tokens);
  return ratio.disagreement.empty() ? text : text + "; not identified: " + ratio.disagreement;
}

void DrawSeries(Svg* svg, const Panel& panel, const Axis& axis, const Results& results,
                const Analysis& analysis, const Series& series, double shift) {
  struct Mark {
    Dot at;
    bool filled;
    std::string title;
  };
  const std::string style = SeriesClass(series.colour);
  std::vector<Mark> marks;
  svg->BeginSeries(series.text);
  for (const std::int64_t tokens : results.budgets) {
    const TokenRatio* ratio = ShownRatio(analysis, series.pair, tokens);
    const auto x_of = [ratio](double value) { return TokensOfReference(*ratio, value); };
    if (!ratio->identified) {
      const bool below = ratio->reason.starts_with('<');
      const double y = below ? panel.Area().Bottom() - 5 : panel.Area().y + 12;
      svg->BeginTitled(TitleOf(results, *ratio, series.text));
      svg->Text({panel.X(static_cast<double>(tokens)) + shift, y}, "?", "t strong ink " + style,
                Anchor::kMiddle);
      svg->End();
      continue;
    }
    if (ratio->interval) panel.Whisker(x_of, *ratio->interval, shift, style + " thin");
    for (std::size_t s = 0; s < ratio->per_seed.size(); ++s) {
      const LogRatio& r = ratio->per_seed[s];
      const double value = std::exp(r.value);
      if (r.status == LogRatio::Status::kIdentified && value > axis.low && value < axis.high) {
        svg->Marker(panel.At(x_of(value), value, shift + 7), series.colour, 2.2, style + " soft",
                    ArmAndSeed(series.text, results.seeds[s]) + ": " + Fixed(value, 4) +
                        AtTokens(results, tokens));
      }
    }
    marks.push_back({panel.At(x_of(ratio->ratio), ratio->ratio, shift),
                     ratio->form == Form::kExtend, TitleOf(results, *ratio, series.text)});
  }
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.at.x < b.at.x; });
  for (const bool filled : {true, false}) {  // a line a form
    std::vector<Dot> line;
    for (const Mark& mark : marks) {
      if (mark.filled == filled) line.push_back(mark.at);
    }
    if (!line.empty()) svg->Polyline(line, style + (filled ? " thin faint" : " thin faint dash"));
  }
  for (const Mark& mark : marks) {
    svg->Marker(mark.at, series.colour, 4.8, style + (mark.filled ? " fill" : " hollow"),
                mark.title);
  }
  svg->End();
}

}  // namespace

Figure DrawTokenRatio(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  Figure figure{
      "token_ratio.svg", "Token ratio",
      "How many times the tokens the first format needs to end at the loss of the second, against "
      "the tokens of the second: geometric mean over seeds, " +
          Fixed(100 * results.question.confidence, 0) +
          " % t interval of ln r, small marks single seeds. Filled: extend form r = D_f/D, where "
          "the second ended at D. Hollow: shrink form r' = D/D_R, where the first ended at D and "
          "the second passed that loss at D_R, at which the mark stands; its interval leans, since "
          "a larger ratio puts D_R further back. Each form has a line of its own, dashed for "
          "shrink. A "
          "question mark where neither is identified.",
      "", ""};
  const std::vector<Series> series = SeriesOfRatios(results);
  std::vector<LegendEntry> entries;
  for (const Series& s : series) entries.push_back({s.text, s.colour, s.colour});
  // The legend's height decides where the panel begins and how tall the drawing is.
  const double top = LegendBottom(kWidth, entries);
  Svg svg(kWidth, top + kPanelHeight + kBelow, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  DrawLegend(&svg, kWidth, entries);
  const Axis axis = RatioAxis(results, analysis, series);
  const Panel panel(&svg, {84, top, 646, kPanelHeight}, TokensAxis(results, analysis, series),
                    axis);
  panel.HorizontalLine(1, "zero dash");
  const double middle = (static_cast<double>(series.size()) - 1) / 2;
  const double spacing = std::min(18.0, 50 / std::max(middle, 0.5));  // px
  for (std::size_t i = 0; i < series.size(); ++i) {
    DrawSeries(&svg, panel, axis, results, analysis, series[i],
               (static_cast<double>(i) - middle) * spacing);
  }
  return Finished(std::move(figure), svg);
}

}  // namespace fp4lab::study
