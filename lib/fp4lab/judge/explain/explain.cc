#include "fp4lab/judge/explain/explain.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain/rounding_interval.h"

namespace fp4lab {
namespace {

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
      places.ScalePlace(ours.row / static_cast<std::size_t>(d.block_rows),
                        ours.col / static_cast<std::size_t>(d.block_cols), copy);
  if (!places.HasScale(got.scales.size(), place)) return t;
  t.has_scale = true;
  t.scale_type = places.scale_type();
  t.scale_code = places.ScaleAt(got.scales, place);
  const bool is_byte = t.scale_type == ScaleType::kByte;
  t.scale = is_byte ? ScaleValueOf(d, static_cast<std::uint8_t>(t.scale_code))
                    : ScaleValueOf(t.scale_type, d.scale, t.scale_code);
  t.scale_differs =
      t.scale_code != (is_byte ? ours.scale_byte : ScaleCodeOf(t.scale_type, d.scale, ours.scale));
  Interval s{t.scale, t.scale};
  if (t.scale_type != ScaleType::kFP32) {
    s = RoundsTo(FormatOf(is_byte ? d.scale : FormatId::kBF16), t.scale_code);
  }
  t.scale_low = s.low;
  t.scale_high = s.high;
  const auto byte = static_cast<std::uint8_t>(is_byte ? t.scale_code : Encode(d.scale, t.scale));
  const TensorScale tensor{.encode = ours.encode, .decode = ours.decode, .amax = ours.amax};
  t.factor = FactorOf(d, ours.block_amax, t.scale, byte, tensor);
  t.scaled = Scaled(d, ours.x, t.factor, tensor);
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

// The scale of a block alone.
void PutScale(ScaleType type, std::uint32_t code, Quantized* block) {
  if (type == ScaleType::kByte) {
    block->scales = {static_cast<std::uint8_t>(code)};
  } else {
    block->scale_values = {ScaleValueOf(type, {}, code)};
  }
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
    PutScale(places.scale_type(), block.scale, &cut.expected);
  }
  cut.got = cut.expected;
  for (std::size_t k = 0; k < block.codes.size(); ++k) {
    const std::size_t bit = places.CodeBit(block.row + k / block.cols, block.col + k % block.cols);
    if (places.Fits(bit, got.codes.size())) cut.got.codes[k] = places.CodeAt(got.codes, bit);
  }
  const std::size_t place = places.ScalePlace(i, j, 0);
  if (grid.stores_scales && places.HasScale(got.scales.size(), place)) {
    PutScale(places.scale_type(), places.ScaleAt(got.scales, place), &cut.got);
  }
  return cut;
}

// Fills in the numbers of the first differing element and its block.
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
  if (got.codes.empty() && sizes.codes > 0) throw Error("codes", "the answer has no codes");
  // A wrong layout may take more or fewer bytes, but not another order of magnitude.
  const auto far_off = [](std::size_t given, std::size_t asked) {
    return given > 600 * asked + 600 || given < asked / 2;
  };
  if (far_off(got.codes.size(), sizes.codes)) {
    throw Error("codes", std::to_string(got.codes.size()) + " bytes cannot hold " +
                             std::to_string(got.rows) + "x" + std::to_string(got.cols) +
                             " codes, which take " + std::to_string(sizes.codes) +
                             ": check the shape of the input, or find the layout with "
                             "fp4lab identify");
  }
}

}  // namespace

Explanation Explain(const Kernel& asked, MatrixView<const float> x, const StoredMatrix& got,
                    const ExplainOptions& options) {
  const IeeeArithmetic ieee;
  Kernel kernel = asked;  // causes may be dialects with scales of another type
  kernel.layout.scale_type = ScaleTypeOf(asked.dialect, asked.layout);
  CheckSizes(got);
  CheckOptions(kernel.dialect, x, options.dialect);
  ByteMatcher matcher(x, got, options.dialect);
  Explanation e;
  const KernelPlan plan = PlanOf(kernel);
  std::vector<ByteMatcher::Block> differ;
  e.counts = matcher.Count(plan, false, &differ);
  e.equal = e.counts.Equal();
  if (e.equal) return e;
  if (e.counts.tensor_scale_differs) e.tensor_scale = InterpretTensorScale(kernel, matcher);
  e.extent = ExtentOf(kernel, matcher);
  if (e.OnlyTensorScale()) {
    SearchOptions singles = options.search;
    singles.pairs = false;
    e.causes = FindCauses(kernel, matcher, 0, e.extent, singles);
    return e;
  }
  matcher.AddSample(plan, differ);
  e.same_values = e.extent.same_values && !e.counts.tensor_scale_differs;
  if (x.size() > 0) {
    ShowFirst(kernel, matcher, differ.empty() ? ByteMatcher::Block{0, 0} : differ.front(), &e);
  }
  e.causes = FindCauses(kernel, matcher, e.counts.Different(), e.extent, options.search);
  if (e.causes.certainty == Certainty::kNotToldApart && options.deciding_case) {
    std::vector<Cause> causes = {e.causes.exact[0]};
    causes.insert(causes.end(), e.causes.rivals.begin(), e.causes.rivals.end());
    e.deciding = FindDecidingCase(kernel, causes);
  }
  return e;
}

}  // namespace fp4lab
