#include "fp4lab/judge/explain/evidence.h"

#include <algorithm>
#include <bit>

namespace fp4lab {
namespace {

// The blocks of a plan, with the kernel's bytes at their places.
class Theirs {
 public:
  Theirs(const KernelPlan& plan, ByteMatcher& matcher)
      : evaluator(matcher.MakeEvaluator(plan)),
        places_(plan, evaluator.rows(), evaluator.cols()),
        got_(matcher.got()) {}

  // Whether a code or a scale of the block has a place beyond the kernel's bytes.
  bool LiesBeyond(std::size_t i, std::size_t j, const BlockBytes& block) const {
    const auto beyond = [](std::size_t place, bool inside) {
      return place != Places::kNowhere && !inside;
    };
    for (std::size_t copy = 0; HasScales() && copy < places_.Copies(i, j); ++copy) {
      const std::size_t place = places_.ScalePlace(i, j, copy);
      if (beyond(place, places_.HasScale(got_.scales.size(), place))) return true;
    }
    for (std::size_t k = 0; k < block.codes.size(); ++k) {
      const std::size_t bit =
          places_.CodeBit(block.row + k / block.cols, block.col + k % block.cols);
      if (beyond(bit, places_.Fits(bit, got_.codes.size()))) return true;
    }
    return false;
  }
  // Whether a scale of the block differs.
  bool ScaleDiffers(std::size_t i, std::size_t j, const BlockBytes& block) const {
    if (!HasScales()) return false;
    for (std::size_t copy = 0; copy < places_.Copies(i, j); ++copy) {
      const std::size_t place = places_.ScalePlace(i, j, copy);
      const bool has = places_.HasScale(got_.scales.size(), place);
      if (has && places_.ScaleAt(got_.scales, place) != block.scale) return true;
    }
    return false;
  }
  bool CodeDiffers(const BlockBytes& block, std::size_t k) const {
    const std::size_t bit = places_.CodeBit(block.row + k / block.cols, block.col + k % block.cols);
    return places_.Fits(bit, got_.codes.size()) &&
           places_.CodeAt(got_.codes, bit) != block.codes[k];
  }
  bool Differs(std::size_t i, std::size_t j, BlockBytes* block) const {
    evaluator.Evaluate(i, j, block);
    if (ScaleDiffers(i, j, *block)) return true;
    for (std::size_t k = 0; k < block->codes.size(); ++k) {
      if (CodeDiffers(*block, k)) return true;
    }
    return false;
  }
  bool HasScales() const { return evaluator.grid().stores_scales && !got_.scales.empty(); }

  const Evaluator evaluator;

 private:
  Places places_;
  const StoredMatrix& got_;
};

std::vector<std::uint32_t> BitsOf(MatrixView<const float> x) {
  std::vector<std::uint32_t> bits;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) bits.push_back(std::bit_cast<std::uint32_t>(x(r, c)));
  }
  return bits;
}

}  // namespace

std::size_t IndependentDifferences(const KernelPlan& plan, ByteMatcher& matcher, std::size_t enough,
                                   bool last_place) {
  const Theirs theirs(plan, matcher);
  const BlockGrid& grid = theirs.evaluator.grid();
  const MatrixView<const float> x = plan.input.transposed ? matcher.x().Transposed() : matcher.x();
  std::vector<std::vector<std::uint32_t>> seen;  // elements of blocks that were counted
  std::size_t count = matcher.TensorScaleMatches(plan) ? 0 : kNumberWeight;
  BlockBytes block;
  for (std::size_t i = 0; i < grid.rows && count < enough; ++i) {
    for (std::size_t j = 0; j < grid.cols && count < enough; ++j) {
      if (!theirs.Differs(i, j, &block)) continue;
      std::vector<std::uint32_t> bits = {block.scale};
      if (!last_place) bits = BitsOf(x.Block(block.row, block.col, block.rows, block.cols));
      if (std::find(seen.begin(), seen.end(), bits) != seen.end()) continue;
      std::vector<std::uint32_t> elements;  // with different codes
      const bool one = last_place || theirs.ScaleDiffers(i, j, block) ||
                       (grid.stores_scales && !theirs.HasScales());  // the scale may explain codes
      for (std::size_t k = 0; k < block.codes.size() && !one; ++k) {
        if (theirs.CodeDiffers(block, k)) elements.push_back(bits[k]);
      }
      std::sort(elements.begin(), elements.end());
      elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
      count += one ? 1 : elements.size();
      seen.push_back(std::move(bits));
    }
  }
  return std::min(count, enough);
}

std::size_t BlocksLeft(const KernelPlan& plan, ByteMatcher& matcher, std::size_t enough,
                       std::span<const ByteMatcher::Block> first) {
  const Theirs theirs(plan, matcher);
  const BlockGrid& grid = theirs.evaluator.grid();
  BlockBytes block;
  std::size_t left = 0;
  for (const auto& [i, j] : first) {
    if (plan.input.transposed) break;  // `first` has blocks of another grid
    left += theirs.Differs(i, j, &block) || theirs.LiesBeyond(i, j, block) ? 1 : 0;
    if (left >= enough) return left;
  }
  left = 0;
  for (std::size_t i = 0; i < grid.rows; ++i) {
    for (std::size_t j = 0; j < grid.cols; ++j) {
      left += theirs.Differs(i, j, &block) || theirs.LiesBeyond(i, j, block) ? 1 : 0;
      if (left >= enough) return left;
    }
  }
  return left;
}

bool Contains(const KernelPlan& whole, const KernelPlan& part, const KernelPlan& plain) {
  const auto agrees = [](const auto& w, const auto& p, const auto& asked) {
    return p == asked || p == w;
  };
  const Dialect &w = whole.kernel.dialect, &p = part.kernel.dialect, &a = plain.kernel.dialect;
  const bool dialects =
      agrees(w.tensor_scale, p.tensor_scale, a.tensor_scale) &&
      agrees(w.row_scaled, p.row_scaled, a.row_scaled) &&
      agrees(w.scale_max, p.scale_max, a.scale_max) &&
      agrees(w.block_scale, p.block_scale, a.block_scale) &&
      agrees(w.scale_encoding, p.scale_encoding, a.scale_encoding) &&
      agrees(w.factor, p.factor, a.factor) && agrees(w.rounding, p.rounding, a.rounding) &&
      agrees(w.adaptive, p.adaptive, a.adaptive) &&
      agrees(w.adaptive_fp16, p.adaptive_fp16, a.adaptive_fp16) &&
      agrees(w.adaptive_decode, p.adaptive_decode, a.adaptive_decode) &&
      agrees(w.keeps_negative_zero, p.keeps_negative_zero, a.keeps_negative_zero) &&
      agrees(w.never_negative_zero, p.never_negative_zero, a.never_negative_zero) &&
      agrees(w.nan, p.nan, a.nan) && agrees(w.inf_scale, p.inf_scale, a.inf_scale) &&
      agrees(w.nan_scale, p.nan_scale, a.nan_scale) && agrees(w.nan_code, p.nan_code, a.nan_code);
  return dialects && agrees(whole.input, part.input, plain.input) &&
         agrees(whole.tensor, part.tensor, plain.tensor) &&
         agrees(whole.scale, part.scale, plain.scale) &&
         agrees(whole.element, part.element, plain.element) &&
         agrees(whole.output, part.output, plain.output);
}

}  // namespace fp4lab
