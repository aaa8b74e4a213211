// The figure of the training curves.
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

// Means over seeds of an arm's training loss, and of its difference to the reference with the same
// seed, by training tokens.
struct MeanCurves {
  std::vector<double> tokens, loss, gap;
};

MeanCurves CurvesOf(const Results& results, const std::string& arm) {
  std::map<std::int64_t, std::vector<double>> loss, gap;
  for (const RunResult& run : results.runs) {
    if (run.arm != arm) continue;
    std::map<std::int64_t, double> twin;
    if (const RunResult* r = results.Find(results.question.reference, run.seed)) {
      for (const CurvePoint& point : r->curve) twin[point.tokens] = point.loss;
    }
    for (const CurvePoint& point : run.curve) {
      if (!std::isfinite(point.loss)) continue;
      loss[point.tokens].push_back(point.loss);
      if (const auto t = twin.find(point.tokens); t != twin.end() && std::isfinite(t->second)) {
        gap[point.tokens].push_back(point.loss - t->second);
      }
    }
  }
  MeanCurves curves;
  for (const auto& [tokens, list] : loss) {
    curves.tokens.push_back(static_cast<double>(tokens));
    curves.loss.push_back(Summarize(list).mean);
    const auto found = gap.find(tokens);
    curves.gap.push_back(found == gap.end() ? NAN : Summarize(found->second).mean);
  }
  return curves;
}

// The running mean over five points, over fewer at the ends.
std::vector<double> Smoothed(const std::vector<double>& values) {
  std::vector<double> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t from = i < 2 ? 0 : i - 2, to = std::min(i + 3, values.size());
    result.push_back(Summarize(std::span(values).subspan(from, to - from)).mean);
  }
  return result;
}

// The smoothed curves without their first twentieth, whose range would flatten the rest.
MeanCurves ShownCurves(const Results& results, const std::string& arm) {
  MeanCurves curves = CurvesOf(results, arm);
  curves.loss = Smoothed(curves.loss);
  curves.gap = Smoothed(curves.gap);
  const auto skip = static_cast<std::ptrdiff_t>(curves.tokens.size() / 20);
  for (std::vector<double>* values : {&curves.tokens, &curves.loss, &curves.gap}) {
    values->erase(values->begin(), values->begin() + skip);
  }
  return curves;
}

// The part of an overlay from a twentieth of `last` tokens to `last`.
Overlay ShownOverlay(const Overlay& overlay, double last) {
  Overlay shown{overlay.label + " (your own curve)", {}, {}};
  for (std::size_t i = 0; i < overlay.tokens.size(); ++i) {
    if (overlay.tokens[i] < last / 20 || overlay.tokens[i] > last) continue;
    shown.tokens.push_back(overlay.tokens[i]);
    shown.loss.push_back(overlay.loss[i]);
  }
  return shown;
}

// Series 4 to 7, of which the arms of most studies use none.
std::size_t SeriesOfOverlay(std::size_t index) { return 4 + index % 4; }

Axis TokenAxis(double last) {
  Axis axis{0, last > 0 ? last : 1, false, "training tokens", {}};
  for (const Tick& tick : RoundTicks(0, axis.high, 4)) {
    axis.ticks.push_back({tick.value, tick.value == 0 ? "0" : TokensText(tick.value), ""});
  }
  return axis;
}

// The curve's mean loss at `tokens`, linear between its points; NaN beyond them.
double LossAt(const MeanCurves& curve, double tokens) {
  const auto next = std::lower_bound(curve.tokens.begin(), curve.tokens.end(), tokens);
  if (next == curve.tokens.end()) return NAN;
  const auto i = static_cast<std::size_t>(next - curve.tokens.begin());
  if (*next == tokens) return curve.loss[i];
  if (i == 0) return NAN;
  const double share = (tokens - curve.tokens[i - 1]) / (*next - curve.tokens[i - 1]);
  return curve.loss[i - 1] + share * (curve.loss[i] - curve.loss[i - 1]);
}

// The overlay's losses less the curve's at the same tokens.
std::vector<double> GapTo(const MeanCurves& curve, const Overlay& overlay) {
  std::vector<double> gap;
  for (std::size_t i = 0; i < overlay.tokens.size(); ++i) {
    gap.push_back(overlay.loss[i] - LossAt(curve, overlay.tokens[i]));
  }
  return gap;
}

double LastFinite(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(),
                                  [](double value) { return std::isfinite(value); });
  return found == values.rend() ? NAN : *found;
}

void DrawCurve(Svg* svg, const Panel& panel, const std::vector<double>& x,
               const std::vector<double>& y, const std::string& style, const std::string& arm) {
  std::vector<Dot> line;
  std::vector<std::string> values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) continue;
    line.push_back(panel.At(x[i], y[i]));
    values.push_back(Fixed(y[i], 4) + " at " + Fixed(x[i], 0) + " tokens");
  }
  svg->BeginSeries(arm);
  svg->Curve(line, style, arm, values);
  svg->End();
}

}  // namespace

double LastCurveTokens(const Results& results) {
  const IeeeArithmetic ieee;
  double last = 0;
  for (const RunResult& run : results.runs) {
    for (const CurvePoint& point : run.curve) {
      if (std::isfinite(point.loss)) last = std::max(last, static_cast<double>(point.tokens));
    }
  }
  return last;
}

std::size_t DrawnPoints(const Results& results, const Overlay& overlay) {
  const IeeeArithmetic ieee;
  return ShownOverlay(overlay, LastCurveTokens(results)).tokens.size();
}

Figure DrawTraining(const Results& results, const std::vector<Overlay>& overlays) {
  const IeeeArithmetic ieee;
  constexpr double kWidth = 760, kLeft = 84, kBetween = 98, kTop = 62;
  constexpr double kHeight = 250, kOwnHeight = 150, kAxis = 60;
  const std::vector<std::size_t> series = SeriesOf(results);
  const std::string& reference = results.question.reference;
  Figure figure{
      "training.svg", "Training loss along the trunk",
      "Means over seeds of the training loss at constant learning rate, and of its "
      "difference to " +
          reference +
          " on the same batches, each a running mean over "
          "five points. The trunk has not been annealed: compare formats by the losses after "
          "the decay.",
      "", ""};
  std::vector<MeanCurves> curves;
  std::vector<double> losses, gaps = {0}, own_gaps;
  const double last = LastCurveTokens(results);
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    curves.push_back(ShownCurves(results, results.arms[arm]));
    losses.insert(losses.end(), curves[arm].loss.begin(), curves[arm].loss.end());
    gaps.insert(gaps.end(), curves[arm].gap.begin(), curves[arm].gap.end());
  }
  const MeanCurves base = CurvesOf(results, reference);  // not smoothed, as overlays are not
  std::vector<Overlay> own;
  std::vector<std::vector<double>> own_gap;
  for (std::size_t i = 0; i < overlays.size(); ++i) {
    own.push_back(ShownOverlay(overlays[i], last));
    own_gap.push_back(GapTo(base, own[i]));
    own_gaps.insert(own_gaps.end(), own_gap[i].begin(), own_gap[i].end());
    losses.insert(losses.end(), own[i].loss.begin(), own[i].loss.end());
    figure.caption += i == 0 ? " Dashed: curves of the reader, not of fp4lab, as given: " : "; ";
    figure.caption += overlays[i].label + ", " + std::to_string(own[i].loss.size()) + " of " +
                      CountText(overlays[i].loss.size(), "point") + " in this range of tokens";
  }
  if (!own.empty()) {
    figure.caption += ". Below: their differences to " + reference +
                      "'s curve, which is read between its points. Another model, text or "
                      "vocabulary makes their level another; compare shapes.";
  }
  // Names stand at the ends of the differences, which lie apart where the losses do not.
  const double names = RoomForNames(results.arms), room = kWidth - kLeft - kBetween - names;
  Svg svg(kWidth, kTop + kHeight + kAxis + (own.empty() ? 0 : kOwnHeight + kAxis + 20),
          figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  const Panel left(&svg, {kLeft, kTop, room / 2, kHeight}, TokenAxis(last),
                   Labelled(AxisAround(losses, 0.04, 6), "loss, nats per token"));
  const Panel right(&svg, {kLeft + room / 2 + kBetween, kTop, room / 2, kHeight}, TokenAxis(last),
                    Labelled(AxisAround(gaps, 0.06, 6), "difference to " + reference + ", nats"));
  right.HorizontalLine(0, "zero");
  for (std::size_t i = 0; i < own.size(); ++i) {
    DrawCurve(&svg, left, own[i].tokens, own[i].loss,
              SeriesClass(SeriesOfOverlay(i)) + " thin dash", own[i].label);
  }
  std::vector<Panel::EndLabel> labels;
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    const std::string style = SeriesClass(series[arm]) + " thin", &name = results.arms[arm];
    DrawCurve(&svg, left, curves[arm].tokens, curves[arm].loss, style, name);
    if (name != reference) {
      DrawCurve(&svg, right, curves[arm].tokens, curves[arm].gap, style, name);
    }
    const double end = name == reference ? 0 : LastFinite(curves[arm].gap);
    if (!curves[arm].loss.empty() && std::isfinite(end)) labels.push_back({end, name, series[arm]});
  }
  right.EndLabels(labels, last);
  if (own.empty()) return Finished(std::move(figure), svg);
  std::vector<std::string> own_names;
  for (const Overlay& overlay : own) own_names.push_back(overlay.label);
  const Panel below(
      &svg,
      {kLeft, kTop + kHeight + kAxis + 20, kWidth - kLeft - RoomForNames(own_names), kOwnHeight},
      TokenAxis(last), Labelled(AxisAround(own_gaps, 0.08, 4), "minus " + reference + ", nats"));
  labels.clear();
  for (std::size_t i = 0; i < own.size(); ++i) {
    DrawCurve(&svg, below, own[i].tokens, own_gap[i],
              SeriesClass(SeriesOfOverlay(i)) + " thin dash", own[i].label);
    const double end = LastFinite(own_gap[i]);
    if (std::isfinite(end)) labels.push_back({end, own[i].label, SeriesOfOverlay(i)});
  }
  below.EndLabels(labels, last);
  return Finished(std::move(figure), svg);
}

}  // namespace fp4lab::study
