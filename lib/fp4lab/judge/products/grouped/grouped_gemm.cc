#include "fp4lab/judge/products/grouped/grouped_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/products/gemm_kernel.h"

namespace fp4lab {
namespace {

using Part = GroupedKernel::Part;

MmaOperand RowsOf(const MmaOperand& x, std::size_t row, std::size_t rows) {
  MmaOperand part = x;
  part.rows = rows;
  const auto cut = [&](auto& values, std::size_t cols) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(row * cols);
    values = {first, first + static_cast<std::ptrdiff_t>(rows * cols)};
  };
  cut(part.codes, x.cols);
  cut(part.scales, x.ScaleCols());
  return part;
}

// The number of rows that a part may have from `row` on.
std::size_t Within(const GroupedKernel& k, std::size_t row, std::size_t rows) {
  return std::min(rows, k.in.a.rows - std::min(row, k.in.a.rows));
}

template <class Change>
bool ChangeParts(GroupedKernel& k, Change change) {
  const std::vector<Part> before = k.parts;
  for (std::size_t g = 0; g < k.parts.size(); ++g) {
    Part& p = k.parts[g];
    change(p, g);
    p.rows = Within(k, p.row, p.rows);  // one change after another may lead beyond A
  }
  return !std::equal(
      before.begin(), before.end(), k.parts.begin(), [](const Part& x, const Part& y) {
        return (x.rows == 0 && y.rows == 0) ||
               (x.row == y.row && x.rows == y.rows && x.weights == y.weights && x.alpha == y.alpha);
      });
}

std::size_t GroupsWithRowsBefore(const GroupedKernel& k, std::size_t group) {
  std::size_t count = 0;
  for (std::size_t g = 0; g < group; ++g) count += k.in.Size(g) > 0 ? 1 : 0;
  return count;
}

bool WeightsMoved(GroupedKernel& k, std::size_t by) {
  return ChangeParts(k,
                     [&, n = k.in.b.size()](Part& p, std::size_t g) { p.weights = (g + by) % n; });
}

// Group g takes the rows between the ends of group g and of the next one.
bool EndsAsBegins(GroupedKernel& k) {
  return ChangeParts(k, [&](Part& p, std::size_t g) {
    p.row = k.in.ends[g];
    p.rows = g + 1 < k.in.ends.size() ? Within(k, p.row, k.in.Size(g + 1)) : 0;
  });
}

// A tile of 16 rows belongs to the group of its first row.
bool TilesByFirstRow(GroupedKernel& k) {
  if (!k.in.sizes.empty()) return false;
  return ChangeParts(k, [&](Part& p, std::size_t g) {
    const std::size_t end = k.in.ends[g], begin = k.in.Begin(g);
    if (begin == end) return;
    const std::size_t first = (begin + 15) / 16 * 16, last = (end + 15) / 16 * 16;
    p.row = first;
    p.rows = last > first ? Within(k, first, last - first) : 0;
  });
}

// A's scales lie in tiles of 128x4, each group's from a tile of its own: `offset` tells from which
// byte the kernel reads scale (r, c) of a group. Bytes beyond the end are 0.
template <class Offset>
bool ScalesAt(GroupedKernel& k, Offset offset) {
  MmaOperand& a = k.in.a;
  if (!a.IsScaled()) return false;
  const std::size_t cols = a.ScaleCols(), row_bytes = (cols + 3) / 4 * 4;
  std::vector<std::uint8_t> bytes;
  std::vector<std::size_t> bases;
  for (std::size_t g = 0; g < k.in.ends.size(); ++g) {
    bases.push_back(bytes.size());
    const std::size_t rows = k.in.ends[g] - k.in.Begin(g);
    bytes.resize(bytes.size() + (rows + 127) / 128 * 128 * row_bytes);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < cols; ++c) {
        bytes[bases[g] + Offset128x4(r, c, cols)] = a.ScaleRow(k.in.Begin(g) + r)[c];
      }
    }
  }
  const std::vector<std::uint8_t> before = a.scales;
  for (std::size_t g = 0; g < k.in.ends.size(); ++g) {
    for (std::size_t row = k.in.Begin(g); row < k.in.ends[g]; ++row) {
      for (std::size_t c = 0; c < cols; ++c) {
        const std::size_t at = offset(k.in.Begin(g), row - k.in.Begin(g), c, cols, row_bytes);
        a.scales[row * cols + c] = at < bytes.size() ? bytes[at] : std::uint8_t{0};
      }
    }
  }
  return a.scales != before;
}

// The group's base is its first row, not rounded up to whole tiles.
bool ScalesAtUnpaddedBase(GroupedKernel& k) {
  return ScalesAt(
      k, [](std::size_t begin, std::size_t r, std::size_t c, std::size_t cols,
            std::size_t row_bytes) { return begin * row_bytes + Offset128x4(r, c, cols); });
}

bool ScalesOfJoinedRows(GroupedKernel& k) {
  return ScalesAt(k, [](std::size_t begin, std::size_t r, std::size_t c, std::size_t cols,
                        std::size_t) { return Offset128x4(begin + r, c, cols); });
}

bool WeightScalesOfFirstGroup(GroupedKernel& k) {
  bool changed = false;
  for (MmaOperand& b : k.in.b) {
    if (!b.IsScaled()) return false;
    changed = changed || b.scales != k.in.b[0].scales;
    b.scales = k.in.b[0].scales;
  }
  return changed;
}

using K = GroupedKernel;

// clang-format off
constexpr auto kGroupedTable = std::to_array<GroupedDeviation>({
    {"weights-of-next-group", "takes the weights of the next group",
     [](K& k) { return WeightsMoved(k, 1); }},
    {"weights-of-group-before", "takes the weights of the group before",
     [](K& k) { return WeightsMoved(k, k.in.b.size() - 1); }},
    {"weights-of-first-group", "takes the weights of the first group for all groups",
     [](K& k) { return ChangeParts(k, [](Part& p, std::size_t) { p.weights = 0; }); }},
    {"weight-scales-of-first-group", "takes the weight scales of the first group for all groups",
     WeightScalesOfFirstGroup},
    {"empty-groups-shift-weights", "does not count empty groups when it takes weights",
     [](K& k) { return ChangeParts(k, [&](Part& p, std::size_t g) { p.weights = GroupsWithRowsBefore(k, g); }); }},
    {"empty-groups-shift-alphas", "does not count empty groups when it takes alphas",
     [](K& k) { return ChangeParts(k, [&](Part& p, std::size_t g) { p.alpha = k.in.Alpha(GroupsWithRowsBefore(k, g)); }); }},
    {"empty-groups-shift-both", "does not count empty groups when it takes weights and alphas",
     [](K& k) { return ChangeParts(k, [&](Part& p, std::size_t g) {
        p.weights = GroupsWithRowsBefore(k, g);
        p.alpha = k.in.Alpha(p.weights);
      }); }},
    {"alphas-of-next-group", "takes the alpha of the next group",
     [](K& k) { return ChangeParts(k, [&](Part& p, std::size_t g) { p.alpha = k.in.Alpha((g + 1) % k.parts.size()); }); }},
    {"alphas-of-group-before", "takes the alpha of the group before",
     [](K& k) { return ChangeParts(k, [&, n = k.parts.size()](Part& p, std::size_t g) { p.alpha = k.in.Alpha((g + n - 1) % n); }); }},
    {"alphas-of-first-group", "takes the alpha of the first group for all groups",
     [](K& k) { return ChangeParts(k, [&](Part& p, std::size_t) { p.alpha = k.in.Alpha(0); }); }},
    {"alphas-missing", "leaves the groups' alphas out",
     [](K& k) { return ChangeParts(k, [](Part& p, std::size_t) { p.alpha = 1.0f; }); }},
    {"ends-as-begins", "takes the end of a group's rows for their beginning", EndsAsBegins},
    {"last-group-missing", "leaves the last group out",
     [](K& k) { return ChangeParts(k, [n = k.parts.size()](Part& p, std::size_t g) { p.rows = g + 1 == n ? 0 : p.rows; }); }},
    {"last-row-missing", "leaves the last row of every group out",
     [](K& k) { return ChangeParts(k, [](Part& p, std::size_t) { p.rows -= p.rows > 0 ? 1 : 0; }); }},
    {"padding-multiplied", "multiplies the padding of a group as if it were tokens",
     [](K& k) { return ChangeParts(k, [&](Part& p, std::size_t g) { p.rows = k.in.ends[g] - k.in.Begin(g); }); }},
    {"tiles-of-16-by-first-row", "gives a tile of 16 rows to the group of its first row", TilesByFirstRow},
    {"scales-at-unpadded-base", "reads a group's scales from its first row, not from a whole tile of 128 rows",
     ScalesAtUnpaddedBase},
    {"scales-of-joined-rows", "reads the groups' scales as one matrix in tiles of 128x4", ScalesOfJoinedRows},
});
// clang-format on

// The number of elements that differ from the plan's, if its parts are within the bounds and the
// rest is zero.
std::optional<std::size_t> Explains(const GroupedKernel& k, MatrixView<const float> d,
                                    const Accumulation& under) {
  std::vector<bool> written(d.rows, false);
  std::size_t different = 0;
  for (const Part& p : k.parts) {
    if (p.rows == 0) continue;
    if (!WhyNot(under, k.in.a, k.in.b[p.weights]).empty()) return std::nullopt;
    std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(p.row), p.rows, true);
    const MmaOperand a = RowsOf(k.in.a, p.row, p.rows);
    const GemmJudgement j = JudgeGemm({.a = a,
                                       .b = k.in.b[p.weights],
                                       .d = d.Block(p.row, 0, p.rows, d.cols),
                                       .alpha = p.alpha,
                                       .output = k.in.output},
                                      under);
    if (j.outside > 0) return std::nullopt;
    different += j.different;
  }
  for (std::size_t r = 0; r < d.rows; ++r) {
    for (std::size_t c = 0; c < d.cols && !written[r]; ++c) {
      if (d(r, c) != 0.0f) return std::nullopt;
    }
  }
  return different;
}

bool IsToken(const GroupedInputs& in, std::size_t row) {
  for (std::size_t g = 0; g < in.b.size(); ++g) {
    if (row >= in.Begin(g) && row < in.Begin(g) + in.Size(g)) return true;
  }
  return false;
}

// Operands of whole numbers and halves, with scales that are powers of two: exact in any order.
MmaOperand RandomNvfp4(std::size_t rows, std::size_t cols, std::uint64_t seed) {
  const RandomStream random{.seed = seed};
  MmaOperand x{.rows = rows,
               .cols = cols,
               .format = FormatOf(FormatId::kE2M1),
               .group = 16,
               .scale_format = FormatOf(FormatId::kE4M3)};
  for (std::size_t i = 0; i < rows * cols; ++i) x.codes.push_back(random.Bits32(i) >> 28);
  for (std::size_t i = 0; i < rows * x.ScaleCols(); ++i) {
    x.scales.push_back(static_cast<std::uint8_t>(0x28 + 8 * (random.Bits32(i) % 4)));
  }
  return x;
}

GroupedCase Case(std::string_view name, std::string_view what, std::uint64_t seed,
                 std::vector<std::size_t> sizes, std::size_t padded_to) {
  GroupedCase c{.name = name, .what = what, .in = {}};
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    c.in.ends.push_back((g == 0 ? 0 : c.in.ends[g - 1]) + RoundUp(sizes[g], padded_to));
    c.in.b.push_back(RandomNvfp4(8, 64, seed + 10 + g));
    c.in.alphas.push_back(1.0f + 0.375f * static_cast<float>(g + 1));
  }
  c.in.a = RandomNvfp4(c.in.ends.back(), 64, seed);
  if (padded_to > 1) c.in.sizes = std::move(sizes);
  return c;
}

}  // namespace

void CheckGroups(const GroupedInputs& in, std::string_view where) {
  const std::size_t groups = in.b.size();
  const auto of = [&](std::size_t n, const char* what) {
    throw Error(where, std::to_string(n) + " " + what + " for " + std::to_string(groups) +
                           " groups of weights");
  };
  if (groups == 0) throw Error(where, "there is no group: give weights of one group or more");
  if (in.ends.size() != groups) of(in.ends.size(), "ends");
  if (!in.sizes.empty() && in.sizes.size() != groups) of(in.sizes.size(), "sizes");
  if (in.alphas.size() > 1 && in.alphas.size() != groups) of(in.alphas.size(), "alphas");
  for (std::size_t g = 0; g < groups; ++g) {
    const std::string group = "group " + std::to_string(g);
    if (in.ends[g] < in.Begin(g) || in.ends[g] > in.a.rows) {
      throw Error(where, group + " ends at row " + std::to_string(in.ends[g]) +
                             "; ends are cumulative, from " + std::to_string(in.Begin(g)) + " to " +
                             std::to_string(in.a.rows));
    }
    if (in.Size(g) > in.ends[g] - in.Begin(g)) {
      throw Error(where, group + " has " + std::to_string(in.Size(g)) + " rows of tokens in " +
                             std::to_string(in.ends[g] - in.Begin(g)) + " rows");
    }
    if (in.b[g].cols != in.a.cols || in.b[g].rows != in.b[0].rows) {
      throw Error(where, "the weights of " + group + " are " + std::to_string(in.b[g].rows) + "x" +
                             std::to_string(in.b[g].cols) + "; they must be " +
                             std::to_string(in.b[0].rows) + "x" + std::to_string(in.a.cols));
    }
  }
}

GroupedJudgement JudgeGrouped(const GroupedInputs& in, MatrixView<const float> d,
                              const Accumulation& under) {
  const IeeeArithmetic ieee;
  Expects(d.rows == in.a.rows && !in.b.empty() && d.cols == in.b[0].rows, "d (rows of a, N)");
  GroupedJudgement result;
  std::vector<bool> tokens(d.rows, false);
  for (std::size_t g = 0; g < in.b.size(); ++g) {
    const std::size_t row = in.Begin(g), rows = in.Size(g);
    if (rows == 0) continue;
    std::fill_n(tokens.begin() + static_cast<std::ptrdiff_t>(row), rows, true);
    const MmaOperand a = RowsOf(in.a, row, rows);
    result.groups.push_back({g, JudgeGemm({.a = a,
                                           .b = in.b[g],
                                           .d = d.Block(row, 0, rows, d.cols),
                                           .alpha = in.Alpha(g),
                                           .output = in.output},
                                          under)});
    result.verdict = std::max(result.verdict, result.groups.back().judgement.verdict);
  }
  for (std::size_t r = 0; r < d.rows; ++r) {
    for (std::size_t c = 0; c < d.cols && !tokens[r]; ++c) {
      if (d(r, c) == 0.0f) continue;
      if (result.padding++ == 0) result.padding_row = r;
      result.verdict = GemmVerdict::kOutside;
    }
  }
  return result;
}

GroupedKernel KernelOf(const GroupedInputs& in) {
  GroupedKernel k{.in = in, .parts = {}};
  for (std::size_t g = 0; g < in.b.size(); ++g) {
    k.parts.push_back({in.Begin(g), in.Size(g), g, in.Alpha(g)});
  }
  return k;
}

Matrix<float> RunGroupedKernel(const GroupedKernel& k, const Accumulation& under) {
  const IeeeArithmetic ieee;
  Matrix<float> d(k.in.a.rows, k.in.b[0].rows);
  for (const Part& p : k.parts) {
    if (p.rows == 0) continue;
    MatrixView<float> rows = d.View().Block(p.row, 0, p.rows, d.cols);
    GemmAs(under, RowsOf(k.in.a, p.row, p.rows), k.in.b[p.weights],
           {.alpha = p.alpha, .output = k.in.output}, rows);
  }
  return d;
}

std::span<const GroupedDeviation> GroupedDeviations() { return kGroupedTable; }

std::vector<GemmCause> FindGroupedCauses(const GroupedInputs& in, MatrixView<const float> d,
                                         const Accumulation& under) {
  const IeeeArithmetic ieee;
  std::vector<GemmCause> causes;
  for (const GroupedDeviation& deviation : kGroupedTable) {
    GroupedKernel k = KernelOf(in);
    if (!deviation.apply(k)) continue;
    const std::optional<std::size_t> different = Explains(k, d, under);
    if (!different) continue;
    causes.push_back({std::string(deviation.name), std::string(deviation.what), *different});
  }
  const auto equal = [](const GemmCause& c) { return c.equal(); };
  if (std::any_of(causes.begin(), causes.end(), equal)) std::erase_if(causes, std::not_fn(equal));
  const GroupedJudgement judged = JudgeGrouped(in, d, under);
  if (!causes.empty() || judged.padding > 0) return causes;
  bool first = true;
  for (const GroupedJudgement::Group& g : judged.groups) {
    if (g.judgement.outside == 0) continue;
    const std::size_t row = in.Begin(g.group), rows = in.Size(g.group);
    const MmaOperand a = RowsOf(in.a, row, rows);
    const std::vector<GemmCause> own = FindGemmCauses({.a = a,
                                                       .b = in.b[g.group],
                                                       .d = d.Block(row, 0, rows, d.cols),
                                                       .alpha = in.Alpha(g.group),
                                                       .output = in.output},
                                                      under);
    const auto shared = [&](const GemmCause& c) {
      return std::any_of(own.begin(), own.end(),
                         [&](const GemmCause& o) { return o.name == c.name && o.elements == 0; });
    };
    if (first) {
      causes = own;
      std::erase_if(causes, [](const GemmCause& c) { return c.elements > 0; });
    } else {
      std::erase_if(causes, std::not_fn(shared));
    }
    first = false;
  }
  return causes;
}

std::vector<GroupedCase> MakeGroupedCases() {
  const IeeeArithmetic ieee;
  return {Case("groups", "weights, alphas and scales of other groups, empty groups", 201,
               {0, 20, 7, 0, 130, 3, 1}, 1),
          Case("groups-end-empty", "an empty last group, groups that end within a tile", 221,
               {5, 0, 33, 16, 0}, 1),
          Case("groups-padded-to-16", "rows of padding to 16", 241, {17, 0, 16, 5, 1, 0}, 16),
          Case("groups-padded-to-128", "rows of padding to 128, whole tiles of scales", 261,
               {129, 0, 3, 128}, 128)};
}

GroupedBench::GroupedBench(std::vector<GroupedCase> cases) : cases_(std::move(cases)) {
  const IeeeArithmetic ieee;
  const Accumulation& exact = *FindAccumulation("exact");
  for (const GroupedCase& c : cases_) right_.push_back(RunGroupedKernel(KernelOf(c.in), exact));
  for (const GroupedDeviation& deviation : kGroupedTable) {
    std::vector<Matrix<float>>& answers = wrong_.emplace_back();
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      GroupedKernel k = KernelOf(cases_[c].in);
      answers.push_back(deviation.apply(k) ? RunGroupedKernel(k, exact) : right_[c]);
    }
  }
}

std::vector<Matrix<float>> GroupedBench::AnswersOf(std::span<const std::size_t> w) const {
  const IeeeArithmetic ieee;
  std::vector<Matrix<float>> answers;
  for (const GroupedCase& c : cases_) {
    GroupedKernel k = KernelOf(c.in);
    for (const std::size_t i : w) kGroupedTable[i].apply(k);
    answers.push_back(RunGroupedKernel(k, *FindAccumulation("exact")));
  }
  return answers;
}

bool GroupedBench::IsRight(std::size_t c, const Matrix<float>& answer) const {
  return SameProduct(answer, right_[c]);
}

std::vector<std::size_t> GroupedBench::Name(
    std::span<const std::optional<Matrix<float>>> answers) const {
  const IeeeArithmetic ieee;
  Expects(cases_.size() == answers.size(), "an answer, or none, to every case");
  const auto fits = [&](const std::vector<Matrix<float>>& known) {
    for (std::size_t c = 0; c < known.size(); ++c) {
      if (answers[c] && !SameProduct(*answers[c], known[c])) return false;
    }
    return true;
  };
  std::vector<std::size_t> names;
  if (fits(right_)) return names;
  for (std::size_t i = 0; i < wrong_.size(); ++i) {
    if (fits(wrong_[i])) names.push_back(i);
  }
  return names;
}

std::vector<AccumulationMatch> IdentifyGrouped(const GroupedInputs& in, MatrixView<const float> d) {
  const IeeeArithmetic ieee;
  std::vector<AccumulationMatch> matches;
  for (const Accumulation& under : Accumulations()) {
    const auto refuses = [&](const MmaOperand& b) { return !WhyNot(under, in.a, b).empty(); };
    if (std::any_of(in.b.begin(), in.b.end(), refuses)) continue;
    const Matrix<float> right = RunGroupedKernel(KernelOf(in), under);
    std::size_t different = 0;
    for (std::size_t r = 0; r < d.rows; ++r) {
      for (std::size_t c = 0; c < d.cols; ++c) {
        const float x = d(r, c), y = right(r, c);
        different += std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
                             (x != x && y != y) || (x == 0.0f && y == 0.0f && !IsToken(in, r))
                         ? 0
                         : 1;
      }
    }
    matches.push_back({&under, different});
  }
  return matches;
}

}  // namespace fp4lab
