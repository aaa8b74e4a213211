#include "fp4lab/study/report/figures/figure_compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/plot.h"

namespace fp4lab::study {
namespace {

constexpr double kWidth = 760, kPanelHeight = 320, kBelow = 62;

struct Point {
  double x = 0;  // tokens per block parameter
  double y = 0;
  std::optional<Interval> interval;
  bool leans = false;  // whether x times y is what is known, so that the interval's ends keep it
  bool filled = true;
  std::string title;
};

struct Series {
  std::string pair;   // "mxfp4 to match nvfp4"
  std::string study;  // "token-gap-h200"
  std::size_t colour = 0, shape = 0;
  std::vector<Point> points;

  std::string Name() const { return pair + ", " + study; }
};

// The colours of pairs: those of the first study that has a pair.
class Colours {
 public:
  std::size_t Of(const std::string& pair, std::size_t wanted) {
    return colours_.try_emplace(pair, wanted).first->second;
  }

 private:
  std::map<std::string, std::size_t> colours_;
};

double PerParameter(const Results& results, double tokens) {
  return tokens / static_cast<double>(results.block_parameters);
}

std::string StudyName(const std::string& label, const StudyReport& study, const Results& model) {
  if (study.models.size() == 1) return label;
  return label + " " + TokensText(static_cast<double>(model.block_parameters));
}

std::vector<Series> RatioSeries(const std::vector<StudyReport>& studies,
                                const std::vector<std::string>& labels) {
  std::vector<Series> series;
  Colours colours;
  for (std::size_t s = 0; s < studies.size(); ++s) {
    for (const ModelReport& model : studies[s].models) {
      const Results& results = model.results;
      const std::vector<std::size_t> own = SeriesOf(results);
      for (const ArmPair& pair : PairsOf(results)) {
        const bool contrast = pair.format == results.question.format &&
                              pair.reference == results.question.format_reference;
        const std::string what = pair.format + " to match " + pair.reference;
        Series line{what,
                    StudyName(labels[s], studies[s], results),
                    colours.Of(what, contrast ? 4 : own[IndexOf(results.arms, pair.format)]),
                    s,
                    {}};
        for (const std::int64_t tokens : results.budgets) {
          const TokenRatio* r = ShownRatio(model.analysis, pair, tokens);
          if (r == nullptr || !r->identified) continue;
          std::string title = line.Name() + ": " + Fixed(r->ratio, 4);
          if (r->interval) title += " " + IntervalText(*r->interval, 4);
          title += AtTokens(results, tokens);
          if (r->form == Form::kShrink) title += ", shrink form";
          if (!r->disagreement.empty()) title += "; not identified: " + r->disagreement;
          const bool shrink = r->form == Form::kShrink;
          line.points.push_back({PerParameter(results, TokensOfReference(*r, r->ratio)), r->ratio,
                                 r->interval, shrink, !shrink && r->disagreement.empty(),
                                 std::move(title)});
        }
        std::stable_sort(line.points.begin(), line.points.end(),
                         [](const Point& a, const Point& b) { return a.x < b.x; });
        if (!line.points.empty()) series.push_back(std::move(line));
      }
    }
  }
  return series;
}

std::vector<Series> GapSeries(const std::vector<StudyReport>& studies,
                              const std::vector<std::string>& labels) {
  std::vector<Series> series;
  Colours colours;
  for (std::size_t s = 0; s < studies.size(); ++s) {
    for (const ModelReport& model : studies[s].models) {
      const Results& results = model.results;
      const std::string& reference = results.question.reference;
      const std::vector<std::size_t> own = SeriesOf(results);
      for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
        if (results.arms[arm] == reference) continue;
        const std::string what = results.arms[arm] + " to " + reference;
        Series line{
            what, StudyName(labels[s], studies[s], results), colours.Of(what, own[arm]), s, {}};
        for (const std::int64_t tokens : results.budgets) {
          const LossGap* gap =
              model.analysis.FindGap(results.arms[arm], reference, tokens, Precision::kTraining);
          if (gap == nullptr || gap->summary.count == 0) continue;
          std::string title = line.Name() + ": gap " + Signed(gap->summary.mean, 6);
          if (gap->interval) title += " " + IntervalText(*gap->interval, 6);
          line.points.push_back({PerParameter(results, static_cast<double>(tokens)),
                                 gap->summary.mean, gap->interval, false, true,
                                 title + AtTokens(results, tokens)});
        }
        if (!line.points.empty()) series.push_back(std::move(line));
      }
    }
  }
  return series;
}

// Draws a row a pair from (18, top) on: its name, then the keys of its studies in columns. Returns
// the y, px, at which the panel may begin.
double DrawKeys(Svg* svg, double top, const std::vector<Series>& series) {
  constexpr double kLeft = 18, kMark = 16, kGap = 14, kRowHeight = 20;
  constexpr double kWider = 1.15;  // fonts that stand in for Helvetica
  double pair_width = 0, study_width = 0;
  std::vector<std::string> pairs;
  for (const Series& line : series) {
    pair_width = std::max(pair_width, kWider * TextWidth(line.pair, 13) + kGap);
    study_width = std::max(study_width, kWider * TextWidth(line.study, 13) + kMark + kGap);
    if (std::find(pairs.begin(), pairs.end(), line.pair) == pairs.end()) pairs.push_back(line.pair);
  }
  double y = top;
  for (const std::string& pair : pairs) {
    svg->Text({kLeft, y}, pair, "t muted");
    double x = kLeft + pair_width;
    for (const Series& line : series) {
      if (line.pair != pair) continue;
      if (x > kLeft + pair_width && x + study_width - kGap > kWidth) {
        x = kLeft + pair_width;
        y += kRowHeight;
      }
      svg->BeginKey(line.Name());
      svg->Marker({x + 6, y - 4.5}, line.shape, 4.5, SeriesClass(line.colour) + " fill");
      svg->Text({x + kMark, y}, line.study, "t");
      svg->End();
      x += study_width;
    }
    y += kRowHeight;
  }
  return y + 4;
}

// Ticks at 1, 2 and 5 times powers of ten.
Axis PerParameterAxis(const std::vector<Series>& series) {
  double low = INFINITY, high = 0;
  for (const Series& line : series) {
    for (const Point& point : line.points) {
      low = std::min(low, point.x);
      high = std::max(high, point.x);
    }
  }
  Axis axis{low / 1.3, high * 1.3, true, "", {}};
  for (double power = std::pow(10, std::floor(std::log10(axis.low))); power <= axis.high;
       power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * power;
      if (value < axis.low || value > axis.high) continue;
      axis.ticks.push_back({value, value < 1 ? SignificantText(value) : Fixed(value, 0), ""});
    }
  }
  return axis;
}

// The values that an axis covers. A very wide interval must not flatten the panel, which cuts it.
std::vector<double> Covered(const std::vector<Series>& series, std::vector<double> values) {
  for (const Series& line : series) {
    for (const Point& point : line.points) values.push_back(point.y);
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = *least, high = *most, room = 0.3 * (high - low);
  for (const Series& line : series) {
    for (const Point& point : line.points) {
      if (!point.interval) continue;
      values.push_back(std::max(point.interval->low, low - room));
      values.push_back(std::min(point.interval->high, high + room));
    }
  }
  return values;
}

// How far, px, the marks of a study stand from their D/N, so that two studies do not hide each
// other.
double Shift(std::size_t study) { return static_cast<double>(study % 4) * 5; }

Figure Draw(Figure figure, const std::vector<Series>& series, const std::string& subtitle,
            const std::string& tokens, Axis values, double zero) {
  Svg nowhere(kWidth, 0, "", "");
  const double top = DrawKeys(&nowhere, 70, series);
  Svg svg(kWidth, top + kPanelHeight + kBelow, figure.title, figure.caption);
  svg.Text({18, 24}, figure.title, "t title");
  svg.Text({18, 43}, subtitle, "t small muted");
  DrawKeys(&svg, 70, series);
  const Panel panel(&svg, {84, top, kWidth - 84 - 26, kPanelHeight},
                    Labelled(PerParameterAxis(series), tokens + " per block parameter (D/N)"),
                    std::move(values));
  panel.HorizontalLine(zero, "zero dash");
  for (const Series& line : series) {
    const std::string style = SeriesClass(line.colour);
    std::vector<Dot> dots;
    svg.BeginSeries(line.Name());
    for (const Point& point : line.points) {
      dots.push_back(panel.At(point.x, point.y, Shift(line.shape)));
      if (point.interval) {
        const auto x_of = [&](double y) { return point.leans ? point.x * point.y / y : point.x; };
        panel.Whisker(x_of, *point.interval, Shift(line.shape), style + " thin faint");
      }
    }
    svg.Polyline(dots, style + " thin faint");
    for (std::size_t i = 0; i < dots.size(); ++i) {
      svg.Marker(dots[i], line.shape, 4.8, style + (line.points[i].filled ? " fill" : " hollow"),
                 line.points[i].title);
    }
    svg.End();
  }
  return Finished(std::move(figure), svg);
}

}  // namespace

std::vector<Figure> DrawComparison(const std::vector<StudyReport>& studies,
                                   const std::vector<std::string>& labels) {
  const IeeeArithmetic ieee;
  const std::string subtitle =
      std::to_string(studies.size()) + " studies: a shape is a study, a colour a pair of formats";
  std::vector<Figure> figures;
  const std::vector<Series> ratios = RatioSeries(studies, labels),
                            gaps = GapSeries(studies, labels);
  if (!ratios.empty()) {
    figures.push_back(Draw(
        {"compare_token_ratio.svg", "Token ratio of all studies",
         "How many times the tokens the first format needs to end at the loss of the second, "
         "against the tokens of the second: geometric mean over seeds with t interval, which leans "
         "in shrink form. Filled: extend form; hollow: shrink form, or estimators disagree. Marks "
         "of one study are shifted a little to the right of those of "
         "the study before. Ratios that are not identified are left out; the tables name them.",
         "", ""},
        ratios, subtitle, "tokens of the second format",
        Labelled(AxisAround(Covered(ratios, {1}), 0.06, 8), "token ratio"), 1));
  }
  if (!gaps.empty()) {
    figures.push_back(
        Draw({"compare_gap.svg", "Gap of all studies",
              "Loss minus the loss of the reference with the same seed: mean over seeds with t "
              "interval. Marks of one study are shifted a little to the right of those of the "
              "study before.",
              "", ""},
             gaps, subtitle, "training tokens",
             Labelled(AxisAround(Covered(gaps, {0}), 0.06, 7), "gap, nats per token"), 0));
  }
  return figures;
}

}  // namespace fp4lab::study
