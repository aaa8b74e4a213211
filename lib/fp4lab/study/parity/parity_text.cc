#include <cmath>
#include <string>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/parity/parity.h"
#include "fp4lab/study/report/tables/text_table.h"

namespace fp4lab::study {
namespace {

std::string NumberText(const Json& number) {
  if (!number.is_number()) return "-";
  const double x = number;
  return std::abs(x) >= 1000 ? TokensText(x) : SignificantText(x);
}

std::string PlaceText(const Json& number) { return TokensText(number.get<double>()); }

std::string ShareText(const Json& share) {
  return share.is_number() ? Signed(100 * share.get<double>(), 2) + " %" : "-";
}

std::string WidthText(const Json& share) { return Fixed(100 * share.get<double>(), 2) + " %"; }

const Metric& MetricOf(const Json& row) {
  for (const Metric& metric : kMetrics) {
    if (row["metric"] == metric.key) return metric;
  }
  return kMetrics[0];
}

std::string TitleOf(const Json& row) {
  const Metric& metric = MetricOf(row);
  std::string title(metric.title);
  if (!metric.unit.empty()) title += ", " + std::string(metric.unit);
  return title;
}

}  // namespace

std::string ParityText(const Json& document) {
  const IeeeArithmetic ieee;
  const Json &window = document["window"], &gap = document["gap"], &power = document["power"];
  std::string text = document["verdict"].get<std::string>() + "\n\n";
  text += CountText(document["runs"].size(), "run") + " against " +
          CountText(document["baseline"].size(), "run") + " of the baseline, " +
          window["of"].get<std::string>() + " " + PlaceText(window["from"]) + " to " +
          PlaceText(window["to"]) + " (" + std::to_string(window["points"].get<std::size_t>()) +
          " of " + std::to_string(window["common_points"].get<std::size_t>()) +
          " logged points that all have)" +
          (document["options"]["paired"] == true ? ", paired" : "") + "\n";
  text += std::string("the interval holds ") +
          (gap["seeds_known"] == true ? "seeds and steps" : "steps alone, no seeds") +
          "; blocks of " + CountText(gap["block_steps"].get<std::size_t>(), "point") + "\n";
  text += "such data show a margin of " + WidthText(power["smallest_margin"]) +
          ", or a difference of " + WidthText(power["smallest_difference"]) +
          ", in 8 of 10 cases\n\n";
  TextRows rows = {{"", "runs", "baseline", "ratio"}};
  for (const Json& row : document["metrics"]) {
    rows.push_back({row["statistic"].get<std::string>() + " " + TitleOf(row),
                    NumberText(row["runs"]), NumberText(row["baseline"]),
                    row["ratio"].is_number() ? Fixed(row["ratio"].get<double>(), 3) : "-"});
  }
  for (const Json& row : document["spikes"]) {
    rows.push_back({"spikes of " + std::string(MetricOf(row).title),
                    std::to_string(row["runs"].get<std::size_t>()),
                    std::to_string(row["baseline"].get<std::size_t>()),
                    "p " + Fixed(row["p"].get<double>(), 2)});
  }
  text += AlignedText(rows) + "\n";
  rows = {{window["of"].get<std::string>(), "runs", "baseline", "gap"}};
  for (const Json& row : document["course"]) {
    rows.push_back({PlaceText(row["from"]) + " to " + PlaceText(row["to"]),
                    Fixed(row["runs"].get<double>(), 4), Fixed(row["baseline"].get<double>(), 4),
                    ShareText(row["gap"])});
  }
  text += AlignedText(rows) + "\n";
  for (const Json& next : document["next"]) text += "next: " + next.get<std::string>() + "\n";
  for (const Json& note : document["notes"]) text += "note: " + note.get<std::string>() + "\n";
  return text;
}

}  // namespace fp4lab::study
