#include "fp4lab/measure/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fp4lab::measure {
namespace {

std::string ValueText(const Row& row, const Cell& cell) {
  return cell.missing.empty() ? NumberText(cell.value.median) + " " + row.unit : "-";
}

// "0.774 [0.760, 0.781]", the quartiles in brackets where there was more than one repetition.
std::string RatioText(const Cell& cell) {
  if (!cell.missing.empty() || !cell.ratio) return "-";
  const Summary& r = *cell.ratio;
  std::string text = NumberText(r.median);
  if (r.count > 1) text += " [" + NumberText(r.low) + ", " + NumberText(r.high) + "]";
  return text;
}

std::string AgainstText(const Row& row) {
  for (const Cell& cell : row.cells) {
    if (!cell.against.empty()) return cell.against;
  }
  return row.against.empty() ? "-" : row.against;
}

std::string MetText(const Row& row) {
  const std::optional<bool> met = IsMet(row);
  if (met && !*met && IsOutOfReach(row)) return "no, beyond the limit";
  return !met ? "-" : *met ? "yes" : "no";
}

// "1.12 (moving the same bytes)", of the first column.
std::string LimitText(const Row& row) {
  if (row.cells.empty() || !row.cells.front().limit) return "-";
  const Cell& cell = row.cells.front();
  return NumberText(cell.limit->median) + " (" + cell.limit_of + ")";
}

bool Meets(const Target& target, double x) {
  return target.comparison == Comparison::kAtLeast ? x >= target.bound : x <= target.bound;
}

// Notes below a row: why cells of the row are missing. A reason that holds for all columns appears
// once.
std::vector<std::string> Notes(const Table& table, const Row& row) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    const std::string& missing = row.cells[i].missing;
    if (missing.empty()) continue;
    const bool everywhere = std::all_of(row.cells.begin(), row.cells.end(),
                                        [&](const Cell& c) { return c.missing == missing; });
    if (everywhere) return {missing};
    notes.push_back(table.columns[i] + ": " + missing);
  }
  return notes;
}

std::vector<std::string> Titles(const Table& table) {
  std::vector<std::string> titles = {"workload"};
  for (const std::string& column : table.columns) {
    titles.push_back(column);
    titles.push_back("ratio");
  }
  titles.insert(titles.end(), {"reference", "target", "target met", "limit here"});
  return titles;
}

std::vector<std::string> Fields(const Row& row) {
  std::vector<std::string> fields = {row.what};
  for (const Cell& cell : row.cells) {
    fields.push_back(ValueText(row, cell));
    fields.push_back(RatioText(cell));
  }
  fields.insert(fields.end(),
                {AgainstText(row), TargetText(row.target), MetText(row), LimitText(row)});
  return fields;
}

using Lines = std::vector<std::vector<std::string>>;

std::string Padded(const std::vector<std::string>& fields, const std::vector<std::size_t>& widths) {
  std::string line = " ";
  for (std::size_t i = 0; i < fields.size(); ++i) {
    line += " " + fields[i] + std::string(widths[i] - fields[i].size() + 1, ' ');
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string MarkdownLine(const std::vector<std::string>& fields) {
  std::string line = "|";
  for (const std::string& field : fields) line += " " + field + " |";
  return line + "\n";
}

}  // namespace

std::optional<bool> IsMet(const Row& row) {
  if (row.cells.empty() || !row.cells.front().missing.empty()) return std::nullopt;
  const Cell& cell = row.cells.front();
  if (row.target.comparison == Comparison::kNone) return std::nullopt;
  return Meets(row.target, cell.ratio ? cell.ratio->median : cell.value.median);
}

bool IsOutOfReach(const Row& row) {
  if (row.cells.empty() || !row.cells.front().limit) return false;
  return row.target.comparison != Comparison::kNone &&
         !Meets(row.target, row.cells.front().limit->median);
}

std::string TargetText(const Target& target) {
  char bound[32];
  std::snprintf(bound, sizeof(bound), "%g", std::round(target.bound * 1000) / 1000);
  switch (target.comparison) {
    case Comparison::kNone:
      return "-";
    case Comparison::kAtLeast:
      return std::string(">= ") + bound;
    case Comparison::kAtMost:
      return std::string("<= ") + bound;
  }
  return "";
}

std::string NumberText(double x) {
  if (x == 0 || !std::isfinite(x)) return x == 0 ? "0" : "not finite";
  const int exponent = static_cast<int>(std::floor(std::log10(std::fabs(x))));
  char text[64];
  if (exponent >= 2) {
    const double unit = std::pow(10.0, exponent - 2);
    std::snprintf(text, sizeof(text), "%.0f", std::round(x / unit) * unit);
  } else {
    std::snprintf(text, sizeof(text), "%.*f", std::min(2 - exponent, 9), x);
  }
  return text;
}

std::string AsText(const Table& table) {
  Lines lines = {Titles(table)};
  for (const Row& row : table.rows) lines.push_back(Fields(row));
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& fields : lines) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      widths[i] = std::max(widths[i], fields[i].size());
    }
  }
  std::string text;
  for (const std::string& line : table.heading) text += line + "\n";
  if (!table.rows.empty()) text += "\n" + Padded(lines[0], widths);
  std::string topic;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Row& row = table.rows[i];
    if (row.topic != topic) text += row.topic + "\n";
    topic = row.topic;
    text += Padded(lines[i + 1], widths);
    for (const std::string& note : Notes(table, row)) text += "      " + note + "\n";
  }
  return text;
}

std::string AsMarkdown(const Table& table) {
  std::string text;
  for (const std::string& line : table.heading) text += line + "  \n";
  const std::vector<std::string> titles = Titles(table);
  text +=
      "\n" + MarkdownLine(titles) + MarkdownLine(std::vector<std::string>(titles.size(), "---"));
  std::string topic;
  for (const Row& row : table.rows) {
    std::vector<std::string> fields = Fields(row);
    if (row.topic != topic) fields[0] = "**" + row.topic + "** " + fields[0];
    topic = row.topic;
    for (const std::string& note : Notes(table, row)) fields[0] += " (" + note + ")";
    text += MarkdownLine(fields);
  }
  return text;
}

}  // namespace fp4lab::measure
