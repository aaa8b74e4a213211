// The figures of SQNR per tensor and of the training curves.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "fp4lab/study/figure_parts.h"
#include "fp4lab/study/figures.h"
#include "fp4lab/study/number_text.h"
#include "fp4lab/study/plot.h"

namespace fp4lab::study {
namespace {

// "blocks.0.mlp.up.fprop.input" in parts.
struct TensorName {
  std::string block, linear, gemm, operand;
};

TensorName Parse(const std::string& name) {
  std::string rest = name;
  const auto take_last = [&] {
    const std::size_t dot = rest.rfind('.');
    const std::string last = dot == rest.npos ? rest : rest.substr(dot + 1);
    rest = dot == rest.npos ? "" : rest.substr(0, dot);
    return last;
  };
  TensorName parts;
  parts.operand = take_last();
  parts.gemm = take_last();
  parts.linear = rest;
  if (rest.starts_with("blocks.")) {
    const std::size_t dot = rest.find('.', 7);
    parts.block = rest.substr(7, dot - 7);
    parts.linear = dot == rest.npos ? "" : rest.substr(dot + 1);
  }
  return parts;
}

// SQNR by (GEMM, operand, linear), arm and block: the means over seeds.
struct SqnrRow {
  std::string gemm, operand, linear;
  std::map<std::size_t, std::map<std::string, Summary>> arms;  // arm index -> block -> values
};

std::vector<SqnrRow> RowsOf(const Results& results) {
  std::vector<SqnrRow> rows;
  std::vector<std::map<std::pair<std::size_t, std::string>, std::vector<double>>> values;
  for (const RunResult& run : results.runs) {
    const std::size_t arm = IndexOf(results.arms, run.arm);
    for (const TensorRow& tensor : run.tensors) {
      if (!std::isfinite(tensor.sqnr_db)) continue;
      const TensorName name = Parse(tensor.name);
      auto row = std::find_if(rows.begin(), rows.end(), [&](const SqnrRow& r) {
        return r.gemm == name.gemm && r.operand == name.operand && r.linear == name.linear;
      });
      if (row == rows.end()) {
        rows.push_back({name.gemm, name.operand, name.linear, {}});
        values.emplace_back();
        row = rows.end() - 1;
      }
      values[static_cast<std::size_t>(row - rows.begin())][{arm, name.block}].push_back(
          tensor.sqnr_db);
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [key, list] : values[i]) {
      rows[i].arms[key.first][key.second] = Summarize(list);
    }
  }
  // By GEMM, then operand, then linear in the order of the network.
  const auto place = [](const std::string& gemm) {
    constexpr std::array<std::string_view, 3> kOrder = {"fprop", "dgrad", "wgrad"};
    return std::find(kOrder.begin(), kOrder.end(), gemm) - kOrder.begin();
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const SqnrRow& a, const SqnrRow& b) {
    return std::pair(place(a.gemm), a.operand) < std::pair(place(b.gemm), b.operand);
  });
  return rows;
}

constexpr double kRow = 19, kGroup = 30, kLeft = 190, kPanelWidth = 540, kWidth = 760;

void DrawRow(Svg* svg, const SqnrRow& row, double y, const Axis& axis,
             const std::vector<std::size_t>& series) {
  svg->Text({kLeft - 12, y + 4}, row.linear, "t small", Anchor::kEnd);
  const auto x = [&](double db) { return kLeft + kPanelWidth * axis.Fraction(db); };
  for (const auto& [arm, blocks] : row.arms) {
    const std::string style = SeriesClass(series[arm]);
    double sum = 0;
    for (const auto& [block, summary] : blocks) {
      svg->Marker({x(summary.mean), y}, series[arm], 3, style + " soft");
      sum += summary.mean;
    }
    svg->Marker({x(sum / static_cast<double>(blocks.size())), y}, series[arm], 4.6,
                style + " fill");
  }
}

// The mean over seeds of an arm's training loss, and of its difference to the reference with the
// same seed, by step.
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

// The mean over the points up to two places away.
std::vector<double> Smoothed(const std::vector<double>& values) {
  std::vector<double> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t from = i < 2 ? 0 : i - 2, to = std::min(i + 3, values.size());
    result.push_back(Summarize(std::span(values).subspan(from, to - from)).mean);
  }
  return result;
}

}  // namespace

Figure DrawSqnr(const Results& results) {
  const std::vector<SqnrRow> rows = RowsOf(results);
  const std::vector<std::size_t> series = SeriesOf(results);
  std::vector<double> values;
  std::set<std::size_t> arms;
  for (const SqnrRow& row : rows) {
    for (const auto& [arm, blocks] : row.arms) {
      arms.insert(arm);
      for (const auto& [block, summary] : blocks) values.push_back(summary.mean);
    }
  }
  Figure figure{"sqnr.svg", "Signal to quantization noise, operand by operand",
                "10 log10(sum x^2 / sum (x - q)^2) of each quantized operand at the end of the "
                "trunk, as the GEMM reads it (after the Hadamard transform, where there is one). "
                "Small marks: one block each, averaged over seeds; large: their mean. 6 dB is a "
                "factor of two in relative error. Stochastic rounding costs SQNR by design: it "
                "trades it for an unbiased mean.",
                "", ""};
  std::vector<LegendEntry> entries;
  for (const std::size_t arm : arms) {
    entries.push_back({results.arms[arm], series[arm], series[arm]});
  }
  // The legend decides where the rows begin, and so how tall the drawing is.
  Svg measured(kWidth, 0, "", "");
  const double top = DrawLegend(&measured, kWidth, entries) - 8;
  std::string group;
  double height = top;
  for (const SqnrRow& row : rows) {
    if (row.gemm + row.operand != group) height += kGroup;
    group = row.gemm + row.operand;
    height += kRow;
  }
  Svg svg(kWidth, height + 62, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  DrawLegend(&svg, kWidth, entries);
  const Axis axis = Labelled(AxisAround(values, 0.05, 10), "SQNR, dB");
  double y = top;
  group.clear();
  std::vector<std::pair<double, std::string>> headings;
  std::vector<double> row_y;
  for (const SqnrRow& row : rows) {
    if (row.gemm + row.operand != group) {
      y += kGroup;
      headings.emplace_back(y - 15, row.gemm + " " + row.operand);
      group = row.gemm + row.operand;
    }
    row_y.push_back(y);
    if (row_y.size() % 2 == 1) svg.Rect(kLeft, y - kRow / 2, kPanelWidth, kRow, "stripe");
    y += kRow;
  }
  const Panel panel(&svg, {kLeft, top + 8, kPanelWidth, y - top - 8}, axis, Axis{});
  for (const Tick& tick : axis.ticks) {
    svg.Line({panel.X(tick.value), top + 8}, {panel.X(tick.value), y}, "grid");
  }
  for (const auto& [at, text] : headings) svg.Text({18, at}, text, "t strong");
  for (std::size_t i = 0; i < rows.size(); ++i) DrawRow(&svg, rows[i], row_y[i], axis, series);
  return Finished(std::move(figure), svg);
}

Figure DrawTraining(const Results& results) {
  const std::vector<std::size_t> series = SeriesOf(results);
  Figure figure{
      "training.svg", "Training loss along the trunk",
      "Means over seeds of the training loss at constant learning rate, and of its "
      "difference to " +
          results.question.reference +
          " on the same batches, each a "
          "running mean over five points. The trunk has not been annealed: compare formats by "
          "the losses after the decay.",
      "", ""};
  std::vector<MeanCurves> curves;
  std::vector<double> losses, gaps = {0};
  double last = 0;
  for (const std::string& arm : results.arms) {
    curves.push_back(CurvesOf(results, arm));
    curves.back().loss = Smoothed(curves.back().loss);
    curves.back().gap = Smoothed(curves.back().gap);
    // The first twentieth is left out: it would flatten all the rest.
    const std::size_t skip = curves.back().tokens.size() / 20;
    const auto cut = [&](std::vector<double>* v) {
      v->erase(v->begin(), v->begin() + static_cast<std::ptrdiff_t>(skip));
    };
    cut(&curves.back().tokens);
    cut(&curves.back().loss);
    cut(&curves.back().gap);
    losses.insert(losses.end(), curves.back().loss.begin(), curves.back().loss.end());
    gaps.insert(gaps.end(), curves.back().gap.begin(), curves.back().gap.end());
    if (!curves.back().tokens.empty()) last = std::max(last, curves.back().tokens.back());
  }
  std::vector<LegendEntry> entries;
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    entries.push_back({results.arms[arm], series[arm], series[arm]});
  }
  Svg measured(kWidth, 0, "", "");
  const double top = DrawLegend(&measured, kWidth, entries);
  Svg svg(kWidth, top + 310, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  DrawLegend(&svg, kWidth, entries);
  Axis tokens{0, last > 0 ? last : 1, false, "training tokens", {}};
  for (const Tick& tick : RoundTicks(0, tokens.high, 4)) {
    tokens.ticks.push_back({tick.value, tick.value == 0 ? "0" : TokensText(tick.value), ""});
  }
  const Panel left(&svg, {84, top, 274, 250}, tokens,
                   Labelled(AxisAround(losses, 0.04, 6), "loss, nats per token"));
  const Panel right(&svg, {456, top, 274, 250}, tokens,
                    Labelled(AxisAround(gaps, 0.06, 6),
                             "difference to " + results.question.reference + ", nats"));
  right.Level(0, "zero");
  for (std::size_t arm = 0; arm < results.arms.size(); ++arm) {
    const std::string style = SeriesClass(series[arm]) + " thin";
    std::vector<Dot> loss, gap;
    for (std::size_t i = 0; i < curves[arm].tokens.size(); ++i) {
      loss.push_back(left.At(curves[arm].tokens[i], curves[arm].loss[i]));
      if (std::isfinite(curves[arm].gap[i])) {
        gap.push_back(right.At(curves[arm].tokens[i], curves[arm].gap[i]));
      }
    }
    svg.Polyline(loss, style);
    if (results.arms[arm] != results.question.reference) svg.Polyline(gap, style);
  }
  return Finished(std::move(figure), svg);
}

}  // namespace fp4lab::study
