#include "fp4lab/judge/explain/extent.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {
namespace {

void Grow(Rectangle* r, std::size_t row, std::size_t col, std::size_t rows, std::size_t cols) {
  if (r->rows == 0) {
    *r = {row, col, rows, cols};
    return;
  }
  const std::size_t bottom = std::max(r->row + r->rows, row + rows);
  const std::size_t right = std::max(r->col + r->cols, col + cols);
  r->row = std::min(r->row, row);
  r->col = std::min(r->col, col);
  r->rows = bottom - r->row;
  r->cols = right - r->col;
}

// Compares one block after the other. Products of a code's and a scale's value are exact in
// binary64.
struct Comparison {
  const Evaluator& evaluator;
  const Places& places;
  const KernelPlan& plan;
  ByteMatcher& matcher;
  Extent* extent;
  std::vector<bool>* code_rows;

  bool IsTie(std::size_t row, std::size_t col, const BlockNumbers& n) const {
    if (plan.kernel.hadamard != 0) return false;
    const Dialect& d = plan.kernel.dialect;
    const std::size_t at = d.row_scaled ? row : 0;
    const TensorScale tensor =
        evaluator.amax().empty() ? TensorScale{} : TensorScaleOf(d, evaluator.amax()[at]);
    const float v = Magnitude(Scaled(d, matcher.x()(row, col), n.factor, tensor));
    const Format& f = FormatOf(d.element);
    const std::uint32_t low = Encode(f, v, Rounding::kTowardZero);
    return low < MaxFiniteCode(f) && v == 0.5f * (Decode(f, low) + Decode(f, low + 1));
  }

  void Code(const BlockBytes& block, std::size_t row, std::size_t col, bool right_scale) const {
    extent->row_differs[row] = extent->col_differs[col] = (*code_rows)[row] = true;
    ++extent->by_column[col % extent->by_column.size()];
    Grow(&extent->codes, row, col, 1, 1);
    if (!right_scale) return;
    ++extent->under_right_scale;
    extent->ties += IsTie(row, col, block.numbers) ? 1 : 0;
  }

  void Scale(const BlockBytes& block) const {
    for (std::size_t r = 0; r < block.rows; ++r) extent->row_differs[block.row + r] = true;
    for (std::size_t c = 0; c < block.cols; ++c) extent->col_differs[block.col + c] = true;
  }

  // The kernel's scale of the block; the reference's if the bytes have none.
  std::uint32_t TheirScale(const BlockBytes& block, std::size_t i, std::size_t j) const {
    if (!evaluator.grid().stores_scales) return block.scale;
    const std::vector<std::uint8_t>& scales = matcher.got().scales;
    const std::size_t place = places.ScalePlace(i, j, 0);
    return places.HasScale(scales.size(), place) ? places.ScaleAt(scales, place) : block.scale;
  }
  double ValueOf(std::uint32_t scale) const {
    if (!evaluator.grid().stores_scales) return 1.0;
    const Dialect& d = plan.kernel.dialect;
    if (places.scale_type() != ScaleType::kByte) {
      return ScaleValueOf(places.scale_type(), d.scale, scale);
    }
    return ScaleValueOf(d, static_cast<std::uint8_t>(scale));
  }

  void Block(std::size_t i, std::size_t j, const BlockBytes& block) const {
    const Dialect& d = plan.kernel.dialect;
    const std::uint32_t scale = TheirScale(block, i, j);
    const double ours = ValueOf(block.scale), theirs = ValueOf(scale);
    bool differs = scale != block.scale;
    if (differs) Scale(block);
    for (std::size_t k = 0; k < block.codes.size(); ++k) {
      const std::size_t row = block.row + k / block.cols, col = block.col + k % block.cols;
      const std::size_t bit = places.CodeBit(row, col);
      if (!places.Fits(bit, matcher.got().codes.size())) {
        extent->same_values = false;
        continue;
      }
      const std::uint8_t code = places.CodeAt(matcher.got().codes, bit);
      const double a = Decode(d.element, block.codes[k]) * ours;
      const double b = Decode(d.element, code) * theirs;
      extent->same_values = extent->same_values && (a == b || (a != a && b != b));
      if (code == block.codes[k]) continue;
      Code(block, row, col, scale == block.scale);
      differs = true;
    }
    if (!differs) return;
    extent->differing.emplace_back(i, j);
    Grow(&extent->blocks, block.row, block.col, block.rows, block.cols);
  }
};

constexpr std::size_t kMostTiles = 4;

// The corners of all tiles with a differing block; empty if there are more than kMostTiles.
std::set<std::pair<std::size_t, std::size_t>> Corners(const Extent& e, const BlockGrid& grid,
                                                      std::size_t side) {
  std::set<std::pair<std::size_t, std::size_t>> corners;
  for (const auto& [i, j] : e.differing) {
    const std::size_t bottom = std::min((i + 1) * grid.block_rows, e.rows);
    const std::size_t right = std::min((j + 1) * grid.block_cols, e.cols);
    for (std::size_t r = i * grid.block_rows / side * side; r < bottom; r += side) {
      for (std::size_t c = j * grid.block_cols / side * side; c < right; c += side) {
        corners.emplace(r, c);
        if (corners.size() > kMostTiles) return {};
      }
    }
  }
  return corners;
}

// The smallest tiles that hold all differences and are at most half of the rectangle around them.
Tiles TilesOf(const Extent& e, const BlockGrid& grid) {
  for (const std::size_t side : {16u, 32u, 64u, 128u}) {
    const auto corners = Corners(e, grid, side);
    Rectangle around;
    for (const auto& [row, col] : corners) Grow(&around, row, col, side, side);
    const std::size_t within = around.rows / side * (around.cols / side);
    if (corners.size() > 1 && 2 * corners.size() <= within) {
      return {side, {corners.begin(), corners.end()}};
    }
  }
  return {};
}

// " = 15 modulo 16" if all marked indices fit the pattern and chance seldom makes it so; else "".
std::string Pattern(const std::vector<bool>& marked) {
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < marked.size(); ++i) {
    if (marked[i]) at.push_back(i);
  }
  for (std::size_t bits = 7; bits > 0; --bits) {
    const std::size_t modulus = std::size_t{1} << bits;
    const auto is_first = [&](std::size_t i) { return i % modulus == at[0] % modulus; };
    if (at.size() < 2 || bits * (at.size() - 1) < 10) continue;
    if (!std::all_of(at.begin(), at.end(), is_first)) continue;
    return " = " + std::to_string(at[0] % modulus) + " modulo " + std::to_string(modulus);
  }
  return "";
}

// The span from the first to the last marked index.
std::string Span(const char* what, const std::vector<bool>& marked) {
  const std::string name(what);
  const auto begin = std::find(marked.begin(), marked.end(), true);
  const auto first = static_cast<std::size_t>(begin - marked.begin());
  std::size_t end = marked.size();
  while (end > first && !marked[end - 1]) --end;
  if (first == 0 && end == marked.size()) return "all " + name + "s";
  std::string text = name + (first + 1 == end ? " " : "s ") + std::to_string(first);
  if (first + 1 < end) text += ".." + std::to_string(end - 1);
  return text + " of " + std::to_string(marked.size());
}

}  // namespace

Extent ExtentOf(const Kernel& kernel, ByteMatcher& matcher) {
  const IeeeArithmetic ieee;
  const KernelPlan plan = PlanOf(kernel);
  const Evaluator evaluator = matcher.MakeEvaluator(plan);
  const Places places(plan, evaluator.rows(), evaluator.cols());
  Extent extent;
  extent.rows = evaluator.rows();
  extent.cols = evaluator.cols();
  extent.by_column.assign(static_cast<std::size_t>(std::max(1, kernel.dialect.block_cols)), 0);
  extent.row_differs.assign(extent.rows, false);
  extent.col_differs.assign(extent.cols, false);
  extent.same_values = true;
  std::vector<bool> code_rows(extent.rows, false);
  const Comparison comparison{evaluator, places, plan, matcher, &extent, &code_rows};
  BlockBytes block;
  for (std::size_t i = 0; i < evaluator.grid().rows; ++i) {
    for (std::size_t j = 0; j < evaluator.grid().cols; ++j) {
      evaluator.Evaluate(i, j, &block);
      comparison.Block(i, j, block);
    }
  }
  extent.rows_with_codes =
      static_cast<std::size_t>(std::count(code_rows.begin(), code_rows.end(), true));
  extent.tiles = TilesOf(extent, evaluator.grid());
  return extent;
}

std::string Text(const Extent& e) {
  const IeeeArithmetic ieee;
  if (e.differing.empty()) return "";
  std::string text = Span("row", e.row_differs) + ", " + Span("column", e.col_differs);
  const std::string row_pattern = Pattern(e.row_differs), col_pattern = Pattern(e.col_differs);
  if (!row_pattern.empty()) text += "; only at row" + row_pattern;
  if (!col_pattern.empty()) text += "; only at column" + col_pattern;
  if (e.tiles.side > 0) {
    const std::string side = std::to_string(e.tiles.side);
    std::vector<std::string> corners;
    for (const auto& [row, col] : e.tiles.corners) {
      corners.push_back("(" + std::to_string(row) + ", " + std::to_string(col) + ")");
    }
    text +=
        "\n           only in the tiles of " + side + "x" + side + " at " + Joined(corners, ", ");
  }
  if (e.ties > 1 && e.ties == e.under_right_scale) {
    text += "\n           every code that differs under a right scale is an exact tie";
  }
  return text;
}

Json ToJson(const Extent& e) {
  const IeeeArithmetic ieee;
  return {{"first_row", e.blocks.row},
          {"rows", e.blocks.rows},
          {"first_column", e.blocks.col},
          {"columns", e.blocks.cols},
          {"blocks_different", e.differing.size()},
          {"row_pattern", Pattern(e.row_differs)},
          {"column_pattern", Pattern(e.col_differs)},
          {"tile_side", e.tiles.side},
          {"tiles", e.tiles.corners},
          {"codes_under_right_scale", e.under_right_scale},
          {"ties", e.ties}};
}

}  // namespace fp4lab
