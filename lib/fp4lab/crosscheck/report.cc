// The results of a cross-check as JSON, as a self-contained HTML page, and as lines of text.
#include <cstdio>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/base/version.h"
#include "fp4lab/crosscheck/crosscheck.h"
#include "fp4lab/cuda/device/build.h"

namespace fp4lab::crosscheck {
namespace {

constexpr std::size_t kMostDifferences = 8;

std::string Formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string DeviceText(const cuda::DeviceDescription& d) {
  return d.name + ", compute capability " + std::to_string(d.major) + "." +
         std::to_string(d.minor) + ", driver for CUDA " + cuda::VersionText(d.driver) +
         ", runtime " + cuda::VersionText(d.runtime);
}

std::string Cells(const char* tag, const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) {
    row += "<" + std::string(tag) + ">" + EscapedMarkup(cell) + "</" + tag + ">";
  }
  return row + "</tr>\n";
}

constexpr const char* kStyle =
    "body{font:15px/1.5 sans-serif;max-width:1000px;margin:32px auto;padding:0 16px;color:#1f2430}"
    "table{border-collapse:collapse;font-size:13px}th,td{padding:3px 12px 3px 0;text-align:left;"
    "border-bottom:1px solid #dfe3e9}pre{background:#f4f5f8;padding:12px;overflow-x:auto;"
    "font-size:12px}.ok{color:#00694f}.bad{color:#b3261e}";

// The counts of a kernel, dialect and input, summed over families to keep the report short.
struct MergedRow {
  CheckRow sum;
  std::size_t families = 0;
  std::vector<std::string> different = {};  // names of the families that differ
};
std::map<std::tuple<std::string, std::string, std::string>, MergedRow> Merged(
    const Crosscheck& result) {
  std::map<std::tuple<std::string, std::string, std::string>, MergedRow> merged;
  for (const auto& [key, row] : result.rows) {
    const auto& [kernel, dialect, input, family] = key;
    MergedRow& m = merged[{kernel, dialect, input}];
    m.sum.calls += row.calls;
    m.sum.elements += row.elements;
    m.sum.bytes += row.bytes;
    m.sum.different += row.different;
    ++m.families;
    if (row.different > 0) m.different.push_back(family);
  }
  return merged;
}

std::string SpeedTable(const Crosscheck& result) {
  if (result.speeds.empty()) return "";
  std::string html =
      "<h2>Speed</h2><p>Against a copy on the same device that moves as many bytes, "
      "kernel and copy in turn, medians.</p><table>\n";
  html += Cells("th", {"what", "GB moved", "ms", "GB/s", "copy GB/s", "of the copy"});
  for (const SpeedRow& s : result.speeds) {
    html += Cells(
        "td", {s.what, Formatted("%.2f", s.bytes / 1e9), Formatted("%.3f", s.seconds * 1e3),
               Formatted("%.0f", s.bytes / s.seconds / 1e9),
               Formatted("%.0f", s.bytes / s.copy_seconds / 1e9), Formatted("%.2f", s.Ratio())});
  }
  return html + "</table>\n";
}

}  // namespace

std::size_t Crosscheck::Elements() const {
  std::size_t sum = 0;
  for (const auto& [key, row] : rows) sum += row.elements;
  return sum;
}

std::size_t Crosscheck::Different() const {
  std::size_t sum = 0;
  for (const auto& [key, row] : rows) sum += row.different;
  return sum;
}

void Crosscheck::Add(const KernelCall& call, const SideCall& side, const std::string& input,
                     const std::string& family, MatrixView<const float> x,
                     const SideBytes& expected, const SideBytes& got) {
  std::string dialect(call.dialect.name);
  if (side.bits == cuda::RandomBits::kCounter) dialect += " (counter)";
  if (side.bits == cuda::RandomBits::kInstruction) dialect += " (cvt.rs)";
  CheckRow& row = rows[{call.kernel, dialect, input, family}];
  const std::size_t different = DifferingBytes(expected, got);
  ++row.calls;
  row.elements += x.size();
  row.bytes += expected.codes.size() + expected.scales.size() + 2 * expected.values.size() +
               4 * expected.amax.size();
  if (different > 0 && row.different == 0 && differences.size() < kMostDifferences) {
    std::string text = call.kernel + ", " + dialect + ", " + input + ", " + family + ": " +
                       std::to_string(different) + " bytes differ\n";
    text += ExplainSide(call.dialect, side, x, expected, got);
    differences.push_back(text);
  }
  row.different += different;
}

Json CrosscheckJson(const Crosscheck& result) {
  const IeeeArithmetic ieee;
  Json rows = Json::array(), speeds = Json::array();
  for (const auto& [key, row] : Merged(result)) {
    const auto& [kernel, dialect, input] = key;
    rows.push_back({{"kernel", kernel},
                    {"dialect", dialect},
                    {"input", input},
                    {"families", row.families},
                    {"families_that_differ", row.different},
                    {"calls", row.sum.calls},
                    {"elements", row.sum.elements},
                    {"bytes", row.sum.bytes},
                    {"different", row.sum.different}});
  }
  for (const SpeedRow& s : result.speeds) {
    speeds.push_back({{"what", s.what},
                      {"bytes", s.bytes},
                      {"seconds", s.seconds},
                      {"copy_seconds", s.copy_seconds},
                      {"of_copy", s.Ratio()}});
  }
  const cuda::DeviceDescription& d = result.device;
  return {{"schema", "fp4lab.crosscheck/1"},
          {"fp4lab_version", kVersion},
          {"device",
           {{"name", d.name},
            {"compute_capability", std::to_string(d.major) + "." + std::to_string(d.minor)},
            {"driver", cuda::VersionText(d.driver)},
            {"runtime", cuda::VersionText(d.runtime)},
            {"multiprocessors", d.multiprocessors},
            {"memory", d.memory}}},
          {"elements", result.Elements()},
          {"different_bytes", result.Different()},
          {"differences", result.differences},
          {"notes", result.notes},
          {"seconds", result.seconds},
          {"checks", std::move(rows)},
          {"speed", std::move(speeds)}};
}

std::string CrosscheckHtml(const Crosscheck& result) {
  const IeeeArithmetic ieee;
  const bool equal = result.Different() == 0;
  std::string html =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>fp4lab "
      "crosscheck</title><style>" +
      std::string(kStyle) + "</style>\n<h1>fp4lab crosscheck</h1>\n";
  html += "<p>" + EscapedMarkup(DeviceText(result.device)) + ". fp4lab " + std::string(kVersion) +
          ".</p>\n";
  html += std::string("<p class=\"") + (equal ? "ok" : "bad") + "\">" +
          std::to_string(result.Different()) + " different bytes over " +
          std::to_string(result.Elements()) + " elements, in " + Formatted("%.0f", result.seconds) +
          " s.</p>\n";
  for (const std::string& text : result.differences)
    html += "<pre>" + EscapedMarkup(text) + "</pre>\n";
  for (const std::string& note : result.notes) html += "<p>" + EscapedMarkup(note) + ".</p>\n";
  html += SpeedTable(result);
  html += "<h2>Checks</h2><table>\n" + Cells("th", {"kernel", "dialect", "side, input", "calls",
                                                    "elements", "bytes", "different"});
  for (const auto& [key, row] : Merged(result)) {
    const auto& [kernel, dialect, input] = key;
    html += Cells("td", {kernel, dialect, input, std::to_string(row.sum.calls),
                         std::to_string(row.sum.elements), std::to_string(row.sum.bytes),
                         std::to_string(row.sum.different)});
  }
  return html + "</table></html>\n";
}

std::string CrosscheckText(const Crosscheck& result) {
  const IeeeArithmetic ieee;
  std::string text = DeviceText(result.device) + "\n";
  for (const SpeedRow& s : result.speeds) {
    char line[160];
    std::snprintf(line, sizeof line, "%-52s %8.3f ms %6.0f GB/s  %.2f of a copy\n", s.what.c_str(),
                  s.seconds * 1e3, s.bytes / s.seconds / 1e9, s.Ratio());
    text += line;
  }
  for (const auto& [key, row] : Merged(result)) {
    if (row.sum.different == 0) continue;
    const auto& [kernel, dialect, input] = key;
    text += "DIFFERENT  " + kernel + ", " + dialect + ", " + input + ": " +
            std::to_string(row.sum.different) + " of " + std::to_string(row.sum.bytes) + " bytes\n";
  }
  for (const std::string& note : result.notes) text += note + "\n";
  for (const std::string& difference : result.differences) text += "\n" + difference;
  text += std::to_string(result.Different()) + " different bytes over " +
          std::to_string(result.Elements()) + " elements and " +
          std::to_string(result.rows.size()) + " kinds of check, in " +
          Formatted("%.0f", result.seconds) + " s\n";
  return text;
}

}  // namespace fp4lab::crosscheck
