#include "fp4lab/judge/explain.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/base/error.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Interval {
  float low, high;
};

// The magnitudes that a format rounds, to nearest even and saturating, to a code (sign left out).
Interval RoundsTo(const Format& f, std::uint32_t code) {
  const std::uint32_t magnitude = code & MagnitudeMask(f);
  if (IsNan(f, magnitude) || f.specials == Specials::kOnlyOnesNan) return {kNaN, kNaN};
  const auto middle = [&](std::uint32_t lower) {
    return 0.5f * (Decode(f, lower) + Decode(f, lower + 1));
  };
  const bool even = magnitude % 2 == 0;
  Interval interval{0.0f, std::numeric_limits<float>::infinity()};
  if (magnitude > 0) {
    const float tie = middle(magnitude - 1);
    interval.low = even ? tie : std::nextafter(tie, kFloatMax);
  }
  if (magnitude < MaxFiniteCode(f)) {
    const float tie = middle(magnitude);
    interval.high = even ? tie : std::nextafter(tie, 0.0f);
  }
  return interval;
}

TheirElement TheirsAt(const Kernel& kernel, const Trace& ours, const StoredMatrix& got,
                      const Places& places, std::uint32_t random) {
  const Dialect& d = kernel.dialect;
  TheirElement t;
  const std::size_t bit = places.CodeBit(ours.row, ours.col);
  if (places.Fits(bit, got.codes.size())) {
    t.has_code = true;
    t.code = places.CodeAt(got.codes, bit);
    t.value = Decode(d.element, t.code);
    const Interval v = RoundsTo(FormatOf(d.element), t.code);
    t.scaled_low = v.low;
    t.scaled_high = v.high;
  }
  if (d.block_rows == 0 || got.scales.empty()) return t;
  const std::size_t copy = !kernel.layout.expanded_scales ? 0
                           : kernel.layout.transposed
                               ? ours.col % static_cast<std::size_t>(d.block_cols)
                               : ours.row % static_cast<std::size_t>(d.block_rows);
  const std::size_t place =
      places.ScaleByte(ours.row / static_cast<std::size_t>(d.block_rows),
                       ours.col / static_cast<std::size_t>(d.block_cols), copy);
  if (place >= got.scales.size()) return t;
  t.has_scale = true;
  t.scale_byte = got.scales[place];
  t.scale = ScaleValueOf(d, t.scale_byte);
  const Interval s = RoundsTo(FormatOf(d.scale), t.scale_byte);
  t.scale_low = s.low;
  t.scale_high = s.high;
  const Level level{.encode = ours.encode, .decode = ours.decode, .amax = ours.amax};
  t.factor = FactorOf(d, ours.block_amax, t.scale, t.scale_byte, level);
  t.scaled = Scaled(d, ours.x, t.factor, level);
  t.code_from_their_scale = CodeOf(d, ours.x, t.scale, t.scaled, random);
  return t;
}

// The element of a block to show: the first whose code differs, else the one of largest magnitude.
std::pair<std::size_t, std::size_t> ElementToShow(const BlockBytes& block, const Places& places,
                                                  const StoredMatrix& got,
                                                  MatrixView<const float> x) {
  std::pair<std::size_t, std::size_t> largest{block.row, block.col};
  for (std::size_t r = 0; r < block.rows; ++r) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      const std::size_t row = block.row + r, col = block.col + c;
      const std::size_t bit = places.CodeBit(row, col);
      if (places.Fits(bit, got.codes.size()) &&
          places.CodeAt(got.codes, bit) != block.codes[r * block.cols + c]) {
        return {row, col};
      }
      if (Magnitude(x(row, col)) > Magnitude(x(largest.first, largest.second))) {
        largest = {row, col};
      }
    }
  }
  return largest;
}

// Both read as the asked layout says. Products of a code's and a scale's value are exact.
struct Comparison {
  const Evaluator& evaluator;
  const Places& places;
  const Dialect& dialect;
  const StoredMatrix& got;

  double TheirScale(const BlockBytes& block, std::size_t i, std::size_t j) const {
    if (!evaluator.grid().stores_scales) return 1.0;
    const std::size_t place = places.ScaleByte(i, j, 0);
    const std::uint8_t byte = place < got.scales.size() ? got.scales[place] : block.scale;
    return ScaleValueOf(dialect, byte);
  }

  bool Block(std::size_t i, std::size_t j, const BlockBytes& block, Extent* extent,
             std::vector<bool>* rows) const {
    const double ours = evaluator.grid().stores_scales ? ScaleValueOf(dialect, block.scale) : 1.0f;
    const double theirs = TheirScale(block, i, j);
    bool same = true;
    for (std::size_t r = 0; r < block.rows; ++r) {
      for (std::size_t c = 0; c < block.cols; ++c) {
        const std::size_t bit = places.CodeBit(block.row + r, block.col + c);
        if (!places.Fits(bit, got.codes.size())) return false;
        const std::uint8_t expected = block.codes[r * block.cols + c];
        const std::uint8_t code = places.CodeAt(got.codes, bit);
        const double a = Decode(dialect.element, expected) * ours;
        const double b = Decode(dialect.element, code) * theirs;
        same = same && (a == b || (a != a && b != b));
        if (code == expected) continue;
        (*rows)[block.row + r] = true;
        ++extent->by_column[(block.col + c) % extent->by_column.size()];
      }
    }
    return same;
  }
};

void Compare(const Kernel& kernel, ByteMatcher& matcher, Explanation* e) {
  const Evaluator evaluator = matcher.MakeEvaluator(PlanOf(kernel));
  const Places places(PlanOf(kernel), evaluator.rows(), evaluator.cols());
  const Comparison comparison{evaluator, places, kernel.dialect, matcher.got()};
  const BlockGrid& grid = evaluator.grid();
  const auto width = static_cast<std::size_t>(std::max(1, kernel.dialect.block_cols));
  e->extent.by_column.assign(width, 0);
  bool same = !e->counts.level_two_differs;
  BlockBytes block;
  std::vector<bool> rows(evaluator.rows(), false);
  for (std::size_t i = 0; i < grid.rows; ++i) {
    for (std::size_t j = 0; j < grid.cols; ++j) {
      evaluator.Evaluate(i, j, &block);
      same = comparison.Block(i, j, block, &e->extent, &rows) && same;
    }
  }
  e->extent.rows = static_cast<std::size_t>(std::count(rows.begin(), rows.end(), true));
  e->same_values = same;
}

Reproducer CutOut(const Kernel& kernel, MatrixView<const float> quantized,
                  const Evaluator& evaluator, const StoredMatrix& got, const Places& places,
                  const Trace& ours) {
  const BlockGrid& grid = evaluator.grid();
  const std::size_t i = ours.row / grid.block_rows, j = ours.col / grid.block_cols;
  BlockBytes block;
  evaluator.Evaluate(i, j, &block);
  Reproducer cut{.dialect = std::string(kernel.dialect.name), .row = block.row, .col = block.col};
  cut.x = Matrix<float>(block.rows, block.cols);
  for (std::size_t r = 0; r < block.rows; ++r) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      cut.x(r, c) = quantized(block.row + r, block.col + c);
    }
  }
  if (!evaluator.amax().empty()) {
    const bool by_row = kernel.dialect.row_scaled;
    cut.amax = {evaluator.amax()[by_row ? block.row : 0]};
  }
  cut.expected = {.rows = block.rows, .cols = block.cols, .codes = block.codes};
  cut.expected.amax = cut.amax;
  if (grid.stores_scales) {
    cut.expected.scale_rows = cut.expected.scale_cols = 1;
    cut.expected.scales = {block.scale};
  }
  cut.got = cut.expected;
  for (std::size_t k = 0; k < block.codes.size(); ++k) {
    const std::size_t bit = places.CodeBit(block.row + k / block.cols, block.col + k % block.cols);
    if (places.Fits(bit, got.codes.size())) cut.got.codes[k] = places.CodeAt(got.codes, bit);
  }
  const std::size_t place = places.ScaleByte(i, j, 0);
  if (grid.stores_scales && place < got.scales.size()) cut.got.scales = {got.scales[place]};
  return cut;
}

// The first differing element: traces and the block.
void ShowFirst(const Kernel& kernel, ByteMatcher& matcher, ByteMatcher::Block at, Explanation* e) {
  const KernelPlan plan = PlanOf(kernel);
  const Evaluator evaluator = matcher.MakeEvaluator(plan);
  const Places places(plan, evaluator.rows(), evaluator.cols());
  BlockBytes block;
  evaluator.Evaluate(at.first, at.second, &block);
  Matrix<float> transformed;
  MatrixView<const float> quantized = matcher.x();
  if (kernel.hadamard != 0) {
    transformed = InputOf(plan.input, matcher.x());
    quantized = transformed.View();
  }
  const auto [row, col] = ElementToShow(block, places, matcher.got(), quantized);
  DialectOptions options = matcher.options();
  options.amax = evaluator.amax();
  e->ours = TraceAs(kernel.dialect, quantized, row, col, options);
  const std::uint32_t random =
      IsStochastic(kernel.dialect) ? options.random[row * quantized.cols + col] : 0u;
  e->theirs = TheirsAt(kernel, e->ours, matcher.got(), places, random);
  e->reproducer = CutOut(kernel, quantized, evaluator, matcher.got(), places, e->ours);
}

void CheckSizes(const StoredMatrix& got) {
  const StoredSizes sizes = SizesOf(got, "layout");
  if (got.codes.empty() && sizes.codes > 0) throw Error("codes", "there are none");
  // A wrong layout may take more or fewer bytes, but not another order of magnitude.
  const auto far_off = [](std::size_t given, std::size_t asked) {
    return given > 600 * asked + 600 || given < asked / 2;
  };
  if (far_off(got.codes.size(), sizes.codes)) {
    throw Error("codes", std::to_string(got.codes.size()) + " bytes cannot hold " +
                             std::to_string(got.rows) + "x" + std::to_string(got.cols) +
                             " codes, which take " + std::to_string(sizes.codes) +
                             ": check the shape of the input");
  }
}

}  // namespace

Explanation Explain(const Kernel& kernel, MatrixView<const float> x, const StoredMatrix& got,
                    const ExplainOptions& options) {
  CheckSizes(got);
  CheckOptions(kernel.dialect, x, options.dialect);
  ByteMatcher matcher(x, got, options.dialect);
  Explanation e;
  const KernelPlan plan = PlanOf(kernel);
  std::vector<ByteMatcher::Block> differ;
  e.counts = matcher.Count(plan, false, &differ);
  e.equal = e.counts.Equal();
  if (e.equal) return e;
  if (e.counts.level_two_differs) e.level_two = ReadTensorNumber(kernel, matcher);
  if (e.OnlyLevelTwo()) {
    e.causes = FindCauses(kernel, matcher, 0, {.pairs = false});
    return e;
  }
  matcher.AddSample(plan, differ);
  Compare(kernel, matcher, &e);
  if (x.size() > 0) {
    ShowFirst(kernel, matcher, differ.empty() ? ByteMatcher::Block{0, 0} : differ.front(), &e);
  }
  e.causes = FindCauses(kernel, matcher, e.counts.Different(), options.search);
  return e;
}

}  // namespace fp4lab
