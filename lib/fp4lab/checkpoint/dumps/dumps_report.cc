// The report of two dumps as text and as JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/checkpoint/dumps/dumps.h"
#include "fp4lab/checkpoint/original/error_sums.h"
#include "fp4lab/checkpoint/report_table.h"
#include "fp4lab/exchange/shape.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostListed = 40;  // tensors that the text lists
constexpr std::size_t kMostNames = 4;    // of tensors in one dump only

Json NumberJson(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}
std::string Decibels(double db) { return db >= 999 ? "exact" : TextOf("%.1f", db); }

std::string PlaceText(const std::vector<std::size_t>& place) {
  std::string text = "(";
  for (std::size_t i = 0; i < place.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(place[i]);
  }
  return text + ")";
}

std::string DtypeText(const DumpedTensor& t) {
  return t.dtype == t.second_dtype ? t.dtype : t.dtype + ", " + t.second_dtype;
}

std::string RangeText(const char* noun, std::size_t first, std::size_t last) {
  const std::string from = std::to_string(first);
  return first == last ? std::string(noun) + " " + from
                       : std::string(noun) + "s " + from + ".." + std::to_string(last);
}

std::vector<std::string> Row(const DumpedTensor& t) {
  return {t.name,
          ShapeText(t.shape),
          DtypeText(t),
          t.accepted ? "accepted" : "differs",
          std::to_string(t.different) + " of " + std::to_string(t.elements),
          TextOf("%.4g", t.max_difference),
          TextOf("%.3g", t.max_relative),
          Decibels(t.sqnr_db),
          TextOf("%.6g", t.factor),
          PlaceText(t.place)};
}

// The facts of a tensor that the table does not show.
std::string DetailText(const DumpedTensor& t) {
  std::string text =
      "  first at " + PlaceText(t.place) + ": " + TextOf("%.9g", t.got) + " and " +
      TextOf("%.9g", t.second_got) + "; " + RangeText("row", t.first_row, t.last_row) + " (" +
      std::to_string(t.rows_different) + " of " + std::to_string(t.rows) + "), " +
      RangeText("column", t.first_col, t.last_col) + " of " + std::to_string(t.cols) + "\n";
  if (t.first_nans + t.second_nans > 0) {
    text += "  NaN: " + std::to_string(t.first_nans) + " in the first, " +
            std::to_string(t.second_nans) + " in the second, " + std::to_string(t.lone_nans) +
            " in one only\n";
  }
  if (!t.cause.empty()) text += "  cause: " + t.cause + "\n";
  return text;
}

std::string NamesText(const std::vector<std::string>& names, const char* where) {
  if (names.empty()) return "";
  std::string text =
      "only in the " + std::string(where) + " (" + std::to_string(names.size()) + "): ";
  for (std::size_t i = 0; i < names.size() && i < kMostNames; ++i) {
    text += (i == 0 ? "" : ", ") + Printable(names[i]);
  }
  return text + (names.size() > kMostNames ? ", ..." : "") + "\n";
}

}  // namespace

std::string ReportText(const DumpReport& report) {
  const IeeeArithmetic ieee;
  std::size_t equal = 0, accepted = 0, different = 0, problems = 0;
  for (const DumpedTensor& t : report.tensors) {
    equal += t.Equal() ? 1 : 0;
    problems += t.problem.empty() ? 0 : 1;
    accepted += t.accepted && !t.Equal() ? 1 : 0;
  }
  different = report.tensors.size() - equal - accepted - problems;
  std::string text = Printable(report.path) + " and " + Printable(report.second_path) + ": " +
                     CountText(report.tensors.size(), "tensor") + ", " + std::to_string(equal) +
                     " equal, " + (accepted > 0 ? std::to_string(accepted) + " accepted, " : "") +
                     std::to_string(different) + " different" +
                     (problems > 0 ? ", " + std::to_string(problems) + " not compared" : "") + "\n";
  std::vector<std::vector<std::string>> rows = {{"tensor", "shape", "dtype", "result", "different",
                                                 "max", "max rel", "SQNR dB", "factor",
                                                 "first at"}};
  const DumpedTensor* first = nullptr;
  std::string details;
  std::size_t left = 0;
  for (const DumpedTensor& t : report.tensors) {
    if (t.Equal() || !t.problem.empty()) continue;
    if (first == nullptr && !t.accepted) first = &t;
    if (rows.size() > kMostListed) {
      ++left;
      continue;
    }
    rows.push_back(Row(t));
    if (!t.cause.empty() && &t != first) {
      details += Printable(t.name) + ": " + t.cause + "\n";
    }
  }
  if (rows.size() > 1) text += TableText(rows);
  if (left > 0) text += "and " + std::to_string(left) + " more (--json lists all)\n";
  for (const DumpedTensor& t : report.tensors) {
    if (!t.problem.empty()) text += Printable(t.name) + ": " + t.problem + "\n";
  }
  text += NamesText(report.only_first, "first") + NamesText(report.only_second, "second");
  if (first != nullptr) {
    text += "the first that differs: " + Printable(first->name) + "\n" + DetailText(*first);
  }
  return text + details;
}

Json ReportJson(const DumpReport& report) {
  const IeeeArithmetic ieee;
  Json tensors = Json::array();
  Json first = nullptr;
  for (const DumpedTensor& t : report.tensors) {
    Json json = {{"name", t.name},
                 {"second_name", t.second_name},
                 {"dtypes", {t.dtype, t.second_dtype}},
                 {"shape", t.shape},
                 {"second_shape", t.second_shape},
                 {"equal", t.Equal()},
                 {"accepted", t.accepted},
                 {"problem", t.problem},
                 {"elements", t.elements},
                 {"different", t.different}};
    if (t.problem.empty()) {
      json["nans"] = {{"first", t.first_nans}, {"second", t.second_nans}, {"lone", t.lone_nans}};
      json["max_difference"] = NumberJson(t.max_difference);
      json["max_relative"] = NumberJson(t.max_relative);
      json["sqnr_db"] = t.sqnr_db >= 999 ? Json(nullptr) : NumberJson(t.sqnr_db);
      json["factor"] = NumberJson(t.factor);
      json["cause"] = t.cause;
    }
    if (t.different > 0) {
      json["first"] = {{"place", t.place},
                       {"values", {NumberJson(t.got), NumberJson(t.second_got)}}};
      json["where"] = {{"rows", {t.first_row, t.last_row}},
                       {"columns", {t.first_col, t.last_col}},
                       {"rows_different", t.rows_different},
                       {"blocks_of_16_different", t.blocks_different}};
    }
    if (first.is_null() && !t.accepted) first = t.name;
    tensors.push_back(std::move(json));
  }
  return {{"paths", {report.path, report.second_path}},
          {"tensors", std::move(tensors)},
          {"only_first", report.only_first},
          {"only_second", report.only_second},
          {"first_different", first},
          {"accepted", report.Accepted()}};
}

}  // namespace fp4lab
