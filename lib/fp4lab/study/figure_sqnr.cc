// The figure of SQNR, operand by operand.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "fp4lab/study/figure_parts.h"
#include "fp4lab/study/figures.h"
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
  // By GEMM, then operand, then linear in the order of the network, which is that of the first
  // GEMM.
  std::vector<std::string> linears;
  for (const SqnrRow& row : rows) {
    if (std::find(linears.begin(), linears.end(), row.linear) == linears.end()) {
      linears.push_back(row.linear);
    }
  }
  const auto place = [&](const SqnrRow& row) {
    constexpr std::array<std::string_view, 3> kGemms = {"fprop", "dgrad", "wgrad"};
    return std::tuple(std::find(kGemms.begin(), kGemms.end(), row.gemm) - kGemms.begin(),
                      row.operand,
                      std::find(linears.begin(), linears.end(), row.linear) - linears.begin());
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const SqnrRow& x, const SqnrRow& y) { return place(x) < place(y); });
  return rows;
}

constexpr double kRow = 19, kGroup = 30, kLeft = 190, kPanelWidth = 540, kWidth = 760;

// Where the rows and the headings of their groups stand.
struct Layout {
  std::vector<double> rows;
  std::vector<std::pair<double, std::string>> headings;
  double bottom = 0;
};

Layout LayOut(const std::vector<SqnrRow>& rows, double top) {
  Layout layout;
  std::string group;
  layout.bottom = top;
  for (const SqnrRow& row : rows) {
    if (row.gemm + " " + row.operand != group) {
      group = row.gemm + " " + row.operand;
      layout.bottom += kGroup;
      layout.headings.emplace_back(layout.bottom - 15, group);
    }
    layout.rows.push_back(layout.bottom);
    layout.bottom += kRow;
  }
  return layout;
}

Axis SqnrAxis(const std::vector<SqnrRow>& rows) {
  std::vector<double> values;
  for (const SqnrRow& row : rows) {
    for (const auto& [arm, blocks] : row.arms) {
      for (const auto& [block, summary] : blocks) values.push_back(summary.mean);
    }
  }
  return Labelled(AxisAround(values, 0.05, 10), "SQNR, dB");
}

std::vector<LegendEntry> LegendOf(const Results& results, const std::vector<SqnrRow>& rows,
                                  const std::vector<std::size_t>& series) {
  std::set<std::size_t> arms;
  for (const SqnrRow& row : rows) {
    for (const auto& [arm, blocks] : row.arms) arms.insert(arm);
  }
  std::vector<LegendEntry> entries;
  for (const std::size_t arm : arms) {
    entries.push_back({results.arms[arm], series[arm], series[arm]});
  }
  return entries;
}

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

}  // namespace

Figure DrawSqnr(const Results& results) {
  const std::vector<SqnrRow> rows = RowsOf(results);
  const std::vector<std::size_t> series = SeriesOf(results);
  Figure figure{"sqnr.svg", "Signal to quantization noise, operand by operand",
                "10 log10(sum x^2 / sum (x - q)^2) of each quantized operand at the end of the "
                "trunk, as the GEMM reads it (after the Hadamard transform, where there is one). "
                "Small marks: one block each, averaged over seeds; large: their mean. 6 dB is a "
                "factor of two in relative error. Stochastic rounding costs SQNR by design: it "
                "trades it for an unbiased mean.",
                "", ""};
  // The legend decides where the rows begin, and so how tall the drawing is.
  const std::vector<LegendEntry> entries = LegendOf(results, rows, series);
  const double top = LegendBottom(kWidth, entries) - 8;
  const Layout layout = LayOut(rows, top);
  Svg svg(kWidth, layout.bottom + 62, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  DrawLegend(&svg, kWidth, entries);
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    svg.Rect(kLeft, layout.rows[i] - kRow / 2, kPanelWidth, kRow, "stripe");
  }
  const Axis axis = SqnrAxis(rows);
  const Panel panel(&svg, {kLeft, top + 8, kPanelWidth, layout.bottom - top - 8}, axis, Axis{});
  for (const Tick& tick : axis.ticks) {
    svg.Line({panel.X(tick.value), top + 8}, {panel.X(tick.value), layout.bottom}, "grid");
  }
  for (const auto& [at, text] : layout.headings) svg.Text({18, at}, text, "t strong");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    DrawRow(&svg, rows[i], layout.rows[i], axis, series);
  }
  return Finished(std::move(figure), svg);
}

}  // namespace fp4lab::study
