#include "fp4lab/judge/products/gemm_cause.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/products/gemm_kernel.h"
#include "fp4lab/judge/products/product_relation.h"
#include "fp4lab/judge/products/scale_readings.h"

namespace fp4lab {
namespace {

// Whether the kernel's elements have the bound of a claim: its operands and alpha are others, or it
// writes less, or to other places.
bool HasBound(const GemmKernel& k, const Accumulation& under) {
  return k.sums == PartialSums::kAsStated && k.finish == Finish::kAsStated && !k.adds_before &&
         k.under == &under;
}

// Whether the elements that the kernel does not write are as it leaves them.
bool RestIsLeft(const GemmKernel& k, MatrixView<const float> d) {
  for (std::size_t m = 0; m < d.rows; ++m) {
    for (std::size_t n = 0; n < d.cols; ++n) {
      if (m < k.rows_written && n < k.cols_written) continue;
      const float left = k.keeps_rest ? k.before(m, n) : 0.0f;
      if (std::bit_cast<std::uint32_t>(d(m, n)) != std::bit_cast<std::uint32_t>(left)) return false;
    }
  }
  return true;
}

MmaOperand FirstRows(const MmaOperand& x, std::size_t rows) {
  MmaOperand first = x;
  first.rows = rows;
  first.codes.resize(rows * x.cols);
  first.scales.resize(rows * x.ScaleCols());
  return first;
}

// The number of elements that differ from the kernel's; nullopt unless all elements lie within the
// kernel's bound, or equal its elements where it has no bound.
std::optional<std::size_t> Explains(const GemmKernel& k, const GemmClaim& claim,
                                    const Accumulation& under) {
  if (!HasBound(k, under)) {
    const Matrix<float> d = RunGemmKernel(k);
    for (std::size_t i = 0; i < d.values.size(); ++i) {
      const float x = d.values[i], y = claim.d(i / d.cols, i % d.cols);
      const bool same = std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
      if (!same && !(x != x && y != y)) return std::nullopt;
    }
    return 0;
  }
  MatrixView<const float> d = claim.d;
  if (!RestIsLeft(k, d)) return std::nullopt;
  const std::size_t rows = std::min(k.rows_written, d.rows),
                    cols = std::min(k.cols_written, d.cols);
  const MmaOperand a = FirstRows(k.a, rows), b = FirstRows(k.b, cols);
  if (k.transposed_output) {
    if (d.row_stride != d.cols) return std::nullopt;  // d is a part of a buffer
    d = MatrixView<const float>(d.data, d.rows, d.cols, 1, d.rows);
  }
  MatrixView<const float> c = k.c;
  if (k.transposed_output && claim.HasC()) return std::nullopt;  // C has the order of D
  if (claim.HasC()) c = c.Block(0, 0, rows, cols);
  const GemmJudgement j = JudgeGemm({.a = a,
                                     .b = b,
                                     .d = d.Block(0, 0, rows, cols),
                                     .alpha = k.alpha,
                                     .output = claim.output,
                                     .c = c,
                                     .beta = k.beta},
                                    under);
  if (j.outside > 0) return std::nullopt;
  return j.different;
}

}  // namespace

std::vector<GemmCause> FindGemmCauses(const GemmClaim& claim, const Accumulation& under) {
  const IeeeArithmetic ieee;
  std::vector<GemmCause> causes, between_them;
  for (const ReadingMatch& m : FindScaleReadings(claim, under)) {
    (m.elements == 0 ? causes : between_them)
        .push_back(
            {std::string(m.reading->name), std::string(m.reading->text), m.different, m.elements});
  }
  for (const GemmDeviation& d : GemmDeviations()) {
    GemmKernel kernel = KernelOf(claim, under);
    if (!d.apply(kernel) || !WhyNot(kernel).empty()) continue;
    const std::optional<std::size_t> different = Explains(kernel, claim, under);
    if (different) causes.push_back({std::string(d.name), std::string(d.what), *different});
  }
  const auto equal = [](const GemmCause& c) { return c.equal(); };
  if (std::any_of(causes.begin(), causes.end(), equal)) std::erase_if(causes, std::not_fn(equal));
  if (causes.empty()) causes = std::move(between_them);
  if (!causes.empty()) return causes;
  for (ProductRelation& r : FindProductRelations(claim, under)) {
    causes.push_back({std::move(r.name), std::move(r.what), r.different});
  }
  return causes;
}

}  // namespace fp4lab
