// The report of `fp4lab check` as text and as JSON.
#include "fp4lab/checkpoint/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/checkpoint/report_table.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostOfAKind = 8;  // findings of a kind that the text lists

Json NumberJson(float x) {  // JSON has no Inf and NaN
  if (std::isfinite(x)) return x;
  return ShortestText(x);
}
Json NumbersJson(const std::vector<float>& numbers) {
  Json list = Json::array();
  for (const float x : numbers) list.push_back(NumberJson(x));
  return list;
}

std::string ShapeOf(const Reading& r) {
  const std::string shape = std::to_string(r.rows) + "x" + std::to_string(r.cols);
  return r.parts == 1 ? shape : std::to_string(r.parts) + "x" + shape;
}

std::string LayoutOf(const CheckedMatrix& m) {
  const Reading& r = m.reading;
  std::string text(Name(r.codes));
  text += ", " + m.scales;
  if (r.block_rows == 0) return text;
  text += " " + std::string(Named(r.order).name);
  const bool rows = r.stored_rows != r.scale_rows, cols = r.stored_cols != r.scale_cols;
  if (r.order == ScaleOrder::kLinear && (rows || cols)) {
    text += rows ? ", rows padded" : ", columns padded";
  }
  return text;
}

std::string NumberOf(const CheckedMatrix& m) {
  if (m.tensor_scale.empty()) return "none";
  const std::string name(Name(m.convention));
  return m.tensor_scale.size() == 1 ? name : name + " a part";
}

// The name with each number as '*': experts and layers share a row.
std::string Template(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c < '0' || c > '9') {
      text += c;
    } else if (text.empty() || text.back() != '*') {
      text += '*';
    }
  }
  return text;
}

std::vector<std::vector<std::string>> Rows(const CheckReport& report) {
  std::map<std::vector<std::string>, std::size_t> counts;
  std::map<std::vector<std::string>, std::string> only;
  for (const CheckedMatrix& m : report.matrices) {
    std::set<std::string> names;
    for (const FindingKind kind : m.findings) names.emplace(Named(kind).name);
    const std::vector<std::string> found(names.begin(), names.end());
    std::vector<std::string> row = {Template(m.name),
                                    m.naming,
                                    m.formula.empty() ? "?" : m.formula,
                                    ShapeOf(m.reading),
                                    m.formula.empty() ? "?" : LayoutOf(m),
                                    NumberOf(m),
                                    found.empty() ? "ok" : Joined(std::span(found), ", ")};
    ++counts[row];
    only[row] = m.name;
  }
  std::vector<std::vector<std::string>> rows = {{"matrices", "name", "naming", "formula", "shape",
                                                 "codes, scales", "tensor scale", "findings"}};
  for (const auto& [row, count] : counts) {
    std::vector<std::string> cells = {std::to_string(count)};
    cells.insert(cells.end(), row.begin(), row.end());
    if (count == 1) cells[1] = only[row];
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::string ReadingText(const ReadingVerdict& r) {
  char text[128];
  std::snprintf(text, sizeof text, "%.2f dB", r.sqnr_db);
  std::string line = "codes " + std::string(Name(r.codes)) + ", scales " +
                     std::string(Named(r.scales).name) + ": " + text;
  if (r.best_sqnr_db > r.sqnr_db + 0.5) {
    std::snprintf(text, sizeof text, " (%.2f dB divided by %.6g)", r.best_sqnr_db, r.factor);
    line += text;
  }
  return line + (r.as_stated ? " <- as stated" : "");
}

std::string OriginalsText(const CheckReport& report) {
  std::string text;
  std::size_t listed = 0, left = 0;
  for (const CheckedMatrix& m : report.matrices) {
    if (!m.original || !m.original->problem.empty()) continue;
    const OriginalVerdict& v = *m.original;
    if (++listed > kMostOfAKind && v.cause.empty()) {
      ++left;
      continue;
    }
    text += Printable(m.name) + ": ";
    if (!v.dialect.empty()) {
      text += "equal, " + v.dialect;
    } else {
      text += "not equal";
      char share[32];
      std::snprintf(share, sizeof share, "%.2f%%", 100 * v.share_of_codes);
      if (!v.nearest.empty()) text += "; nearest " + v.nearest + ", " + share + " of the codes";
    }
    if (!v.note.empty()) text += (v.dialect.empty() ? "; " : ", ") + v.note;
    text += "\n";
    for (const ReadingVerdict& r : v.readings) text += "  " + ReadingText(r) + "\n";
  }
  if (left > 0)
    text += "and " + std::to_string(left) + " more without a cause (--json lists all)\n";
  return text;
}

std::string FindingsText(const CheckReport& report) {
  std::string text;
  for (const NamedFinding& kind : kFindings) {
    std::size_t count = 0;
    for (const Finding& f : report.findings) count += f.kind == kind.kind ? 1 : 0;
    if (count == 0) continue;
    text += std::string(kind.name) + " (" + std::to_string(count) +
            "): " + std::string(kind.remedy) + "\n";
    std::size_t listed = 0;
    for (const Finding& f : report.findings) {
      if (f.kind != kind.kind || ++listed > kMostOfAKind) continue;
      text += "  " + Printable(f.where) + ": " + Printable(f.text) + "\n";
    }
    if (count > kMostOfAKind) {
      text += "  and " + std::to_string(count - kMostOfAKind) + " more (--json lists all)\n";
    }
  }
  return text;
}

Json NumberJson(double x) {
  if (std::isfinite(x)) return x;
  return x > 0 ? "inf" : x < 0 ? "-inf" : "nan";
}

Json OriginalJson(const OriginalVerdict& v) {
  if (!v.problem.empty()) return {{"tensor", v.tensor}, {"problem", v.problem}};
  Json readings = Json::array();
  for (const ReadingVerdict& r : v.readings) {
    readings.push_back({{"codes_order", Name(r.codes)},
                        {"scales_order", Named(r.scales).name},
                        {"as_stated", r.as_stated},
                        {"sqnr_db", NumberJson(r.sqnr_db)},
                        {"best_sqnr_db", NumberJson(r.best_sqnr_db)},
                        {"factor", NumberJson(r.factor)}});
  }
  return {{"tensor", v.tensor},
          {"equal", !v.dialect.empty()},
          {"dialect", v.dialect},
          {"nearest", v.nearest},
          {"share_of_codes", v.share_of_codes},
          {"readings", readings},
          {"note", v.note},
          {"cause", v.cause}};
}

Json MatrixJson(const CheckedMatrix& m) {
  const Reading& r = m.reading;
  Json names = Json::array();
  for (const FindingKind kind : m.findings) names.push_back(Named(kind).name);
  Json json = {{"name", m.name},
               {"naming", m.naming},
               {"formula", m.formula},
               {"parts", r.parts},
               {"shape", {r.rows, r.cols}},
               {"bytes", m.bytes},
               {"shards", m.shards},
               {"findings", names},
               {"tensor_scale", NumbersJson(m.tensor_scale)},
               {"tensor_scale_is", Name(m.convention)},
               {"input_scale", NumbersJson(m.input_scale)}};
  if (m.original) json["original"] = OriginalJson(*m.original);
  if (m.values) {
    const ValuesVerdict& v = *m.values;
    json["values"] = {
        {"tensor", v.tensor},       {"problem", v.problem},           {"elements", v.elements},
        {"different", v.different}, {"factor", NumberJson(v.factor)}, {"cause", v.cause}};
  }
  if (m.formula.empty()) return json;
  json["element"] = m.element.empty() ? Named(r.element).name : std::string_view(m.element);
  json["scales"] = m.scales;
  json["block"] = {r.block_rows, r.block_cols};
  json["codes_order"] = Name(r.codes);
  json["scales_order"] = Named(r.order).name;
  json["scale_grid"] = {r.stored_rows, r.stored_cols};
  json["largest_value"] = NumberJson(m.largest_value);
  return json;
}

Json ConfigJson(const QuantizationConfig& c) {
  if (c.file.empty()) return nullptr;
  Json json = {{"file", c.file}, {"method", c.method}, {"algorithm", c.algorithm}};
  if (c.group_size > 0) json["group_size"] = c.group_size;
  if (c.block_rows > 0) json["weight_block_size"] = {c.block_rows, c.block_cols};
  if (c.input_scales) json["input_scales"] = *c.input_scales;
  return json;
}

}  // namespace

Json ReportJson(const CheckReport& report) {
  const IeeeArithmetic ieee;
  Json matrices = Json::array(), findings = Json::array();
  for (const CheckedMatrix& m : report.matrices) matrices.push_back(MatrixJson(m));
  for (const Finding& f : report.findings) {
    findings.push_back({{"finding", Named(f.kind).name},
                        {"where", f.where},
                        {"text", f.text},
                        {"remedy", Named(f.kind).remedy}});
  }
  return {{"path", report.path},
          {"shards", report.shards},
          {"tensors", report.tensors},
          {"bytes", report.bytes},
          {"config", ConfigJson(report.config)},
          {"matrices", matrices},
          {"findings", findings},
          {"clean", report.findings.empty()}};
}

std::string ReportText(const CheckReport& report) {
  const IeeeArithmetic ieee;
  std::string text = Printable(report.path) + ": " + CountText(report.shards.size(), "file") +
                     ", " + CountText(report.tensors, "tensor") + ", " +
                     std::to_string(report.bytes) + " bytes, " +
                     (report.matrices.size() == 1
                          ? std::string("1 quantized matrix")
                          : std::to_string(report.matrices.size()) + " quantized matrices") +
                     "\n";
  if (!report.config.file.empty()) {
    text += report.config.file + ": " + Printable(report.config.method) +
            (report.config.algorithm.empty() ? "" : ", " + Printable(report.config.algorithm)) +
            "\n";
  }
  if (!report.matrices.empty()) text += TableText(Rows(report));
  text += OriginalsText(report);
  if (report.findings.empty()) return text + "no findings\n";
  return text + CountText(report.findings.size(), "finding") + "\n" + FindingsText(report);
}

}  // namespace fp4lab
