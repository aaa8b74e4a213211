// The figure of a diagnostic, operand by operand.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/figures/plot.h"
#include "fp4lab/study/report/tables/operand_name.h"

namespace fp4lab::study {
namespace {

// One row of the figure: the diagnostic of one operand of one GEMM of one linear.
struct OperandRow {
  std::string gemm, operand, linear;
  std::map<std::size_t, std::map<std::string, Summary>> arms;  // arm -> block -> over seeds
};

std::vector<OperandRow> RowsOf(const Results& results, const Diagnostic& diagnostic) {
  std::vector<OperandRow> rows;
  std::vector<std::map<std::pair<std::size_t, std::string>, std::vector<double>>> values;
  for (const RunResult& run : results.runs) {
    const std::size_t arm = IndexOf(results.arms, run.arm);
    for (const TensorStatistics& tensor : run.tensors) {
      const double value = tensor.values[diagnostic.key];
      if (!std::isfinite(value)) continue;
      const OperandName name = ParseOperandName(tensor.name);
      auto row = std::find_if(rows.begin(), rows.end(), [&](const OperandRow& r) {
        return r.gemm == name.gemm && r.operand == name.operand && r.linear == name.linear;
      });
      if (row == rows.end()) {
        rows.push_back({name.gemm, name.operand, name.linear, {}});
        values.emplace_back();
        row = rows.end() - 1;
      }
      values[static_cast<std::size_t>(row - rows.begin())][{arm, name.block}].push_back(value);
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [key, list] : values[i]) {
      rows[i].arms[key.first][key.second] = Summarize(list);
    }
  }
  // Rows are sorted by GEMM, then operand, then linear. Linears have the order of the network, in
  // which the runs list them.
  std::vector<std::string> linears;
  for (const OperandRow& row : rows) {
    if (std::find(linears.begin(), linears.end(), row.linear) == linears.end()) {
      linears.push_back(row.linear);
    }
  }
  const auto place = [&](const OperandRow& row) {
    return std::tuple(PlaceOfGemm(row.gemm), row.operand,
                      std::find(linears.begin(), linears.end(), row.linear) - linears.begin());
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const OperandRow& x, const OperandRow& y) { return place(x) < place(y); });
  return rows;
}

constexpr double kRow = 19, kGroup = 30, kLeft = 190, kPanelWidth = 540, kWidth = 760;

// The vertical positions, px, of the rows and of the headings of their groups.
struct Layout {
  std::vector<double> rows;
  std::vector<std::pair<double, std::string>> headings;
  double bottom = 0;
};

Layout LayOut(const std::vector<OperandRow>& rows, double top) {
  Layout layout;
  std::string group;
  layout.bottom = top;
  for (const OperandRow& row : rows) {
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

Axis ValueAxis(const std::vector<OperandRow>& rows, const Diagnostic& diagnostic) {
  std::vector<double> values;
  for (const OperandRow& row : rows) {
    for (const auto& [arm, blocks] : row.arms) {
      for (const auto& [block, summary] : blocks) values.push_back(summary.mean);
    }
  }
  return Labelled(AxisAround(values, 0.05, 10), LabelWithUnit(diagnostic));
}

std::vector<LegendEntry> LegendOf(const Results& results, const std::vector<OperandRow>& rows,
                                  const std::vector<std::size_t>& series) {
  std::set<std::size_t> arms;
  for (const OperandRow& row : rows) {
    for (const auto& [arm, blocks] : row.arms) arms.insert(arm);
  }
  std::vector<LegendEntry> entries;
  for (const std::size_t arm : arms) {
    entries.push_back({results.arms[arm], series[arm], series[arm]});
  }
  return entries;
}

// "SQNR 17.1234 dB"
std::string ValueText(const Diagnostic& diagnostic, double value) {
  const std::string unit(diagnostic.unit);
  return std::string(diagnostic.label) + " " +
         (diagnostic.digits > 0 ? Fixed(value, diagnostic.digits + 2) : SignificantText(value)) +
         (unit.empty() ? "" : " " + unit);
}

void DrawRow(Svg* svg, const OperandRow& row, double y, const Axis& axis, const Results& results,
             const Diagnostic& diagnostic, const std::vector<std::size_t>& series) {
  svg->Text({kLeft - 12, y + 4}, row.linear, "t small", Anchor::kEnd);
  const auto x = [&](double value) { return kLeft + kPanelWidth * axis.Fraction(value); };
  for (const auto& [arm, blocks] : row.arms) {
    const std::string style = SeriesClass(series[arm]), &name = results.arms[arm];
    const std::string what =
        name + ", " + row.gemm + " " + row.operand + " of " + row.linear + ": ";
    double sum = 0;
    svg->BeginSeries(name);
    for (const auto& [block, summary] : blocks) {
      svg->Marker(
          {x(summary.mean), y}, series[arm], 3, style + " soft",
          what + ValueText(diagnostic, summary.mean) + (block.empty() ? "" : ", block " + block));
      sum += summary.mean;
    }
    const double mean = sum / static_cast<double>(blocks.size());
    svg->Marker(
        {x(mean), y}, series[arm], 4.6, style + " fill",
        what + ValueText(diagnostic, mean) + ", mean of " + CountText(blocks.size(), "block"));
    svg->End();
  }
}

}  // namespace

Figure DrawOperands(const Results& results, const Diagnostic& diagnostic) {
  const IeeeArithmetic ieee;
  const std::vector<OperandRow> rows = RowsOf(results, diagnostic);
  const std::vector<std::size_t> series = SeriesOf(results);
  Figure figure{std::string(diagnostic.figure),
                std::string(diagnostic.name) + ", operand by operand",
                std::string(diagnostic.definition) +
                    " of each quantized operand at the end of the "
                    "trunk, as the GEMM reads it (after the Hadamard transform, where there is "
                    "one). Small marks: one block each, averaged over seeds; large: their mean. " +
                    std::string(diagnostic.reading),
                "", ""};
  // The legend's height decides where the rows begin and how tall the drawing is.
  const std::vector<LegendEntry> entries = LegendOf(results, rows, series);
  const double top = LegendBottom(kWidth, entries) - 8;
  const Layout layout = LayOut(rows, top);
  Svg svg(kWidth, layout.bottom + 62, figure.title, figure.caption);
  DrawTitle(&svg, figure.title, results);
  DrawLegend(&svg, kWidth, entries);
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    svg.Rect(kLeft, layout.rows[i] - kRow / 2, kPanelWidth, kRow, "stripe");
  }
  const Axis axis = ValueAxis(rows, diagnostic);
  const Panel panel(&svg, {kLeft, top + 8, kPanelWidth, layout.bottom - top - 8}, axis, Axis{});
  for (const Tick& tick : axis.ticks) {
    svg.Line({panel.X(tick.value), top + 8}, {panel.X(tick.value), layout.bottom}, "grid");
  }
  for (const auto& [at, text] : layout.headings) svg.Text({18, at}, text, "t strong");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    DrawRow(&svg, rows[i], layout.rows[i], axis, results, diagnostic, series);
  }
  return Finished(std::move(figure), svg);
}

}  // namespace fp4lab::study
