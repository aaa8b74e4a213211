#include "tools/bench/bench_json.h"

#include <ctime>

#include "fp4lab/base/version.h"
#include "fp4lab/measure/machine.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;
using measure::Comparison;
using measure::Summary;

std::string Size(std::size_t bytes) {
  if (bytes == 0) return "?";
  if (bytes >= std::size_t{1} << 30) return std::to_string(bytes >> 30) + " GiB";
  if (bytes >= std::size_t{1} << 20) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
  return text;
}

std::string PeersText(const BenchContext& c) {
  std::string text;
  for (const measure::SgemmPeer& p : c.inputs->Peers(measure::PeerVectors::kBest)) {
    if (!p.missing.empty()) continue;
    text += (text.empty() ? "" : ", ") + p.name + (p.detail.empty() ? "" : " " + p.detail);
  }
  return text.empty() ? "none found" : text;
}

Json SummaryJson(const Summary& s) {
  return {{"median", s.median}, {"low", s.low}, {"high", s.high}, {"count", s.count}};
}

Json CellJson(const Cell& cell) {
  if (!cell.missing.empty()) return {{"missing", cell.missing}};
  Json json = {{"value", SummaryJson(cell.value)}};
  if (cell.reference) json["reference"] = SummaryJson(*cell.reference);
  if (cell.ratio) json["ratio"] = SummaryJson(*cell.ratio);
  if (cell.limit) {
    json["limit"] = SummaryJson(*cell.limit);
    json["limit_of"] = cell.limit_of;
  }
  if (!cell.against.empty()) json["against"] = cell.against;
  return json;
}

Json TargetJson(const measure::Target& target) {
  switch (target.comparison) {
    case Comparison::kNone:
      return nullptr;
    case Comparison::kAtLeast:
      return {{"at_least", target.bound}};
    case Comparison::kAtMost:
      return {{"at_most", target.bound}};
  }
  return nullptr;
}

Json RowJson(const measure::Table& table, const measure::Row& row) {
  Json columns = Json::object();
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    columns[table.columns[i]] = CellJson(row.cells[i]);
  }
  const std::optional<bool> met = IsMet(row);
  return {{"id", row.id},
          {"topic", row.topic},
          {"what", row.what},
          {"unit", row.unit},
          {"against", row.against},
          {"target", TargetJson(row.target)},
          {"met", met ? Json(*met) : Json()},
          {"columns", std::move(columns)}};
}

}  // namespace

BenchHeading DescribeRun(const BenchContext& c, const std::vector<std::string>& columns) {
  const measure::Machine m = measure::ThisMachine();
  const std::string peers = PeersText(c), warning = measure::PeerWarning(), date = Today();
  char load[16];
  std::snprintf(load, sizeof(load), "%.1f", m.load);
  BenchHeading h;
  h.lines = {"fp4lab " + std::string(kVersion) + ", " + date + (c.quick ? ", --quick" : "") +
                 "; load average at the start " + load,
             m.cpu + ", " + std::to_string(m.cores) + " cores, " + std::to_string(c.threads) +
                 " threads used; matrices in DRAM of " + Size(c.inputs->MemoryBytes()) + "; L1d " +
                 Size(m.l1) + ", L2 " + Size(m.l2) + ", L3 " + Size(m.l3) + ", memory " +
                 Size(m.memory),
             m.compiler + ", Highway " + m.highway + ", SIMD target " + columns[0] +
                 "; FP32 libraries: " + peers};
  if (!warning.empty()) h.lines.push_back("warning: " + warning);
  h.json = {{"version", kVersion},
            {"date", date},
            {"quick", c.quick},
            {"load", m.load},
            {"cpu", m.cpu},
            {"cores", m.cores},
            {"threads", c.threads},
            {"l1d_bytes", m.l1},
            {"l2_bytes", m.l2},
            {"l3_bytes", m.l3},
            {"memory_bytes", m.memory},
            {"dram_matrix_bytes", c.inputs->MemoryBytes()},
            {"compiler", m.compiler},
            {"highway", m.highway},
            {"simd", columns},
            {"fp32_libraries", peers},
            {"warning", warning}};
  return h;
}

Json TableJson(const BenchHeading& heading, const measure::Table& table) {
  Json rows = Json::array();
  for (const measure::Row& row : table.rows) rows.push_back(RowJson(table, row));
  return {{"machine", heading.json}, {"rows", std::move(rows)}};
}

}  // namespace fp4lab::tools
