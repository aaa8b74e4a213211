#include "fp4lab/checkpoint/groups/group_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/checkpoint/original/error_sums.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

constexpr std::size_t kComparedRows = 64;  // rows that are compared at a time

std::string ElementName(const GroupMatrix& g) {
  return g.table != nullptr ? std::string(g.table->name) : "INT" + std::to_string(g.bits);
}

// The sums of groups, and how many codes no other code of the group comes nearer than.
struct GroupSums : ErrorSums {
  std::size_t nearest = 0;
  using ErrorSums::Add;
  void Add(const GroupSums& o) {
    ErrorSums::Add(o);
    nearest += o.nearest;
  }
};

// A wrong way to read the codes.
struct OtherReading {
  const char* text;
  bool other_nibble = false;  // the other half of the byte
  float zero_shift = 0;
};
constexpr OtherReading kOtherReadings[] = {
    {"the low half of every byte first", true, 0},
    {"zeros that are one less", false, -1},
    {"zeros that are one more", false, 1},
};

bool Applies(const OtherReading& reading, const GroupMatrix& g) {
  if (reading.other_nibble) return g.naming->packing == GroupPacking::kNibbles && g.cols % 2 == 0;
  return !g.zeros.empty();
}

class GroupComparer {
 public:
  GroupComparer(const GroupMatrix& g, const RowReader& original) : g_(g), original_(original) {}

  OriginalVerdict Compare() {
    OriginalVerdict v;
    const GroupSums stated = SumsUnder({""}, g_.rows, true);
    v.readings.push_back({.codes = Order(),
                          .scales = ScaleOrder::kLinear,
                          .as_stated = true,
                          .sqnr_db = stated.Sqnr(1),
                          .best_sqnr_db = stated.Sqnr(stated.Best()),
                          .factor = stated.Best() != 0 ? 1 / stated.Best() : 0});
    v.nearest = ElementName(g_) + " to nearest under the stored scales";
    v.share_of_codes = static_cast<double>(stated.nearest) / static_cast<double>(g_.rows * g_.cols);
    if (stated.nearest == g_.rows * g_.cols) v.dialect = v.nearest;
    v.cause = Cause(v.readings.front());
    return v;
  }

 private:
  CodeOrder Order() const {
    return g_.naming->packing == GroupPacking::kNibbles ? CodeOrder::kHighFirst
           : g_.bits == 8                               ? CodeOrder::kBytes
                                                        : CodeOrder::kLowFirst;
  }

  GroupSums SumsUnder(const OtherReading& way, std::size_t rows, bool count_nearest) const {
    GroupSums all;
    for (std::size_t first = 0; first < rows; first += kComparedRows) {
      const std::size_t count = std::min(kComparedRows, rows - first);
      const Matrix<float> x = original_(first, count);
      std::vector<GroupSums> sums(count);
      ParallelFor(count, [&](std::size_t i) {
        for (std::size_t col = 0; col < g_.cols; ++col) {
          const std::size_t at = g_.GroupAt(first + i, col);
          const std::uint32_t code = g_.Code(first + i, way.other_nibble ? col ^ 1 : col);
          const float y = g_.Value(code, at, way.zero_shift);
          if (!std::isfinite(x(i, col)) || !std::isfinite(y)) continue;
          sums[i].Add(static_cast<double>(x(i, col)), static_cast<double>(y));
          if (count_nearest && IsNearest(x(i, col), code, at)) ++sums[i].nearest;
        }
      });
      for (const GroupSums& s : sums) all.Add(s);
    }
    return all;
  }

  // Whether no neighbouring code comes nearer, by more than rounding.
  bool IsNearest(float x, std::uint32_t code, std::size_t at) const {
    const float own = std::fabs(g_.Value(code, at) - x);
    const float slack = std::fabs(g_.scales[at]) * 1e-5f + std::fabs(x) * 1e-6f;
    const auto nearer = [&](std::uint32_t other) {
      return std::fabs(g_.Value(other, at) - x) + slack < own;
    };
    if (g_.table != nullptr) {
      for (std::uint32_t other = 0; other < 16; ++other) {
        if (nearer(other)) return false;
      }
      return true;
    }
    const std::uint32_t last = (1u << g_.bits) - 1;
    return !(code > 0 && nearer(code - 1)) && !(code < last && nearer(code + 1));
  }

  std::string Cause(const ReadingVerdict& stated) const {
    const std::size_t rows = std::min(g_.rows, 4 * kComparedRows);
    for (const OtherReading& way : kOtherReadings) {
      if (!Applies(way, g_)) continue;
      const GroupSums sums = SumsUnder(way, rows, false);
      const double db = sums.Sqnr(1);
      if (db < 6 || db < stated.sqnr_db + 3) continue;
      return std::string("read with ") + way.text + " the SQNR is " + TextOf("%.2f dB", db) +
             ", as stated " + TextOf("%.2f dB", stated.sqnr_db);
    }
    if (stated.best_sqnr_db > stated.sqnr_db + 1 && stated.best_sqnr_db > 6) {
      return "the values are " + TextOf("%.6g", stated.factor) + " times the original";
    }
    return stated.best_sqnr_db < 6 ? "no reading of the bytes is near the original" : "";
  }

  const GroupMatrix& g_;
  const RowReader& original_;
};

bool IsEqualValue(float got, float want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want || std::fabs(got - want) <= 0x1p-22f * std::fabs(want)) return true;
  for (const FormatId narrow : {FormatId::kBF16, FormatId::kFP16}) {
    if (got == Decode(narrow, Encode(narrow, want))) return true;
  }
  return false;
}

// The values that another program decoded against those of the matrix.
ValuesVerdict CompareDecoded(const GroupMatrix& g, const RowReader& values) {
  ValuesVerdict v;
  v.elements = g.rows * g.cols;
  GroupSums sums;
  for (std::size_t row = 0; row < g.rows; ++row) {
    const Matrix<float> x = values(row, 1);
    for (std::size_t col = 0; col < g.cols; ++col) {
      const float want = g.Value(g.Code(row, col), g.GroupAt(row, col));
      if (!IsEqualValue(x(0, col), want) && v.different++ == 0) {
        v.row = row;
        v.col = col;
        v.got = x(0, col);
        v.want = want;
      }
      if (std::isfinite(x(0, col)) && std::isfinite(want)) {
        sums.Add(static_cast<double>(x(0, col)), static_cast<double>(want));
      }
    }
  }
  if (v.different == 0) return v;
  v.factor = sums.Sqnr(sums.Best()) > 40 ? sums.Best() : 0;
  if (v.factor != 0 && std::fabs(v.factor - 1) > 0.003) {
    v.cause = "the values are " + TextOf("%.6g", v.factor) + " times what the matrix decodes to";
  }
  return v;
}

void SetLayout(const GroupMatrix& g, CheckedMatrix* m) {
  Reading& r = m->reading;
  r.rows = g.rows;
  r.cols = g.cols;
  r.block_rows = 1;
  r.block_cols = g.group;
  r.codes = g.naming->packing == GroupPacking::kNibbles ? CodeOrder::kHighFirst
            : g.bits == 8                               ? CodeOrder::kBytes
                                                        : CodeOrder::kLowFirst;
  r.numbers = true;
  r.scale_rows = r.stored_rows = g.naming->packing == GroupPacking::kNibbles ? 1 : g.rows;
  r.scale_cols = r.stored_cols = g.Groups();
  m->element = ElementName(g);
  m->scales = g.scales_dtype;
  m->formula = m->element + ", " + (g.table != nullptr ? "blocks of " : "groups of ") +
               std::to_string(g.group);
}

void JudgeScaleNumbers(const GroupMatrix& g, CheckedMatrix* m, std::vector<Finding>* findings) {
  const char* const noun = g.table != nullptr ? " absmaxes" : " scales";
  const std::size_t count = g.scales.size();
  std::size_t bad = 0, negative = 0, zeros = 0;
  for (const float s : g.scales) {
    bad += std::isfinite(s) ? 0u : 1u;
    negative += s < 0 ? 1u : 0u;
    zeros += s == 0 ? 1u : 0u;
  }
  const auto share = [&](std::size_t part) {
    return std::to_string(part) + " of " + std::to_string(count) + noun;
  };
  if (bad > 0) {
    Report(FindingKind::kNanScales, share(bad) + " are NaN or Inf", m, findings);
  }
  // MLX's scales have a sign; a symmetric scale has none.
  if (negative > 0 && g.biases.empty()) {
    Report(FindingKind::kNegativeScales, share(negative) + " have a sign", m, findings);
  }
  if (count >= 16 && std::ranges::all_of(g.scales, [&](float s) { return s == g.scales[0]; })) {
    Report(FindingKind::kConstantScales,
           "all " + std::to_string(count) + noun + " are " + ShortestText(g.scales[0]), m,
           findings);
  } else if (zeros > 0) {
    // Codes of a group of zeros are equal.
    std::vector<std::uint16_t> first(count, 0x100);
    std::vector<std::uint8_t> dead(count, 0);
    for (std::size_t row = 0; row < g.rows; ++row) {
      for (std::size_t col = 0; col < g.cols; ++col) {
        const std::size_t at = g.GroupAt(row, col);
        if (g.scales[at] != 0) continue;
        const auto code = static_cast<std::uint16_t>(g.Code(row, col));
        if (first[at] == 0x100) first[at] = code;
        if (first[at] != code) dead[at] = 1;
      }
    }
    const auto all = static_cast<std::size_t>(std::count(dead.begin(), dead.end(), 1));
    if (all > 0) {
      Report(FindingKind::kZeroScales,
             share(all) + " are 0 although the codes of their groups differ", m, findings);
    }
  }
}

void JudgeCodeBytes(const GroupMatrix& g, CheckedMatrix* m, std::vector<Finding>* findings) {
  if (g.codes.empty()) return;
  const bool constant =
      std::ranges::all_of(g.codes, [&](std::byte b) { return b == g.codes.front(); });
  if (!constant) return;
  const auto byte = static_cast<std::uint8_t>(g.codes.front());
  if (byte == 0 && g.table == nullptr) {
    Report(FindingKind::kZeroCodes, "every code is 0", m, findings);
  } else {
    Report(FindingKind::kConstantCodes, "every byte of the codes is " + HexText(byte, 2), m,
           findings);
  }
}

}  // namespace

void JudgeGroups(const GroupMatrix& g, const References& references, bool only, CheckedMatrix* m,
                 std::vector<Finding>* findings) {
  const IeeeArithmetic ieee;
  for (const Finding& f : g.findings) Report(f.kind, f.text, m, findings);
  if (!g.readable) return;
  SetLayout(g, m);
  JudgeCodeBytes(g, m, findings);
  JudgeScaleNumbers(g, m, findings);
  if (g.rows == 0 || g.cols == 0) return;
  if (references.original != nullptr) {
    OriginalVerdict v;
    const std::string tensor = references.original->Find(m->name, only);
    RowReader rows;
    if (tensor.empty()) {
      v.problem = "the original has no tensor of this name";
    } else {
      rows = references.original->Rows(tensor, m->reading, &v.problem);
    }
    if (rows) v = GroupComparer(g, rows).Compare();
    v.tensor = tensor;
    if (!v.cause.empty()) Report(FindingKind::kOriginal, v.cause, m, findings);
    if (!v.problem.empty()) Report(FindingKind::kOriginal, v.problem, m, findings);
    m->original = std::move(v);
  }
  if (references.values != nullptr) {
    ValuesVerdict v;
    const std::string tensor = references.values->Find(m->name, only);
    if (tensor.empty()) {
      v.problem = "there are no values of this name";
    } else if (const RowReader rows = references.values->Rows(tensor, m->reading, &v.problem)) {
      v = CompareDecoded(g, rows);
    }
    v.tensor = tensor;
    if (!v.problem.empty()) {
      Report(FindingKind::kValues, v.problem, m, findings);
    } else if (v.different > 0) {
      Report(FindingKind::kValues,
             std::to_string(v.different) + " of " + std::to_string(v.elements) +
                 " values differ, the first at (" + std::to_string(v.row) + ", " +
                 std::to_string(v.col) + "): " + ShortestText(v.got) + ", the matrix decodes to " +
                 ShortestText(v.want) + (v.cause.empty() ? "" : "; " + v.cause),
             m, findings);
    }
    m->values = std::move(v);
  }
}

}  // namespace fp4lab
