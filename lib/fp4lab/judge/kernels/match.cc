#include "fp4lab/judge/kernels/match.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {
namespace {

constexpr std::size_t kSpread = 40;         // blocks of the initial sample
constexpr std::size_t kKept = 8;            // differing blocks to return
constexpr std::size_t kLeastOfScales = 10;  // at least one in so many blocks has a scale to compare
constexpr std::size_t kMostSampled = 400;   // a larger sample does not grow

void CompareBlock(const Places& places, const StoredMatrix& got, const BlockGrid& grid,
                  const BlockBytes& block, std::size_t i, std::size_t j, MatchCounts* counts) {
  const std::size_t before = counts->codes_differ + counts->scales_differ;
  for (std::size_t r = 0; r < block.rows; ++r) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      const std::size_t bit = places.CodeBit(block.row + r, block.col + c);
      if (!places.Fits(bit, got.codes.size())) {
        counts->codes_beyond += bit == Places::kNowhere ? 0 : 1;
        continue;
      }
      ++counts->codes;
      if (places.CodeAt(got.codes, bit) != block.codes[r * block.cols + c]) ++counts->codes_differ;
    }
  }
  if (grid.stores_scales && !got.scales.empty()) {
    for (std::size_t copy = 0; copy < places.Copies(i, j); ++copy) {
      const std::size_t place = places.ScalePlace(i, j, copy);
      if (!places.HasScale(got.scales.size(), place)) {
        counts->scales_beyond += place == Places::kNowhere ? 0 : 1;
        continue;
      }
      ++counts->scales;
      if (places.ScaleAt(got.scales, place) != block.scale) ++counts->scales_differ;
    }
  }
  ++counts->blocks;
  if (counts->codes_differ + counts->scales_differ != before) ++counts->blocks_differ;
}

void Add(const MatchCounts& part, MatchCounts* sum) {
  sum->codes += part.codes;
  sum->scales += part.scales;
  sum->codes_differ += part.codes_differ;
  sum->scales_differ += part.scales_differ;
  sum->codes_beyond += part.codes_beyond;
  sum->scales_beyond += part.scales_beyond;
  sum->blocks += part.blocks;
  sum->blocks_differ += part.blocks_differ;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

}  // namespace

std::vector<float> StoredTensorScale(const KernelPlan& plan, const std::vector<float>& amax) {
  const IeeeArithmetic ieee;
  if (plan.kernel.layout.tensor_scale == TensorScaleConvention::kNone) return {};
  std::vector<float> stored;
  const bool by_parts = plan.tensor.amax == AmaxFrom::kParts;  // amax[0] is the number to store
  for (const float a : std::span(amax).first(by_parts ? 1 : amax.size())) {
    float value = NumberOfAmax(plan.kernel.dialect, a, plan.output.written.tensor_scale);
    if (plan.output.tensor_scale_inverted) value = 1.0f / value;
    stored.push_back(plan.output.tensor_scale_filled.value_or(value));
  }
  return stored;
}

ByteMatcher::ByteMatcher(MatrixView<const float> x, const StoredMatrix& got,
                         const DialectOptions& options)
    : x_(x), got_(got), options_(options) {}

const std::vector<float>& ByteMatcher::AmaxFor(const KernelPlan& plan) {
  CheckInterrupt();
  const Dialect& d = plan.kernel.dialect;
  TensorScalePlan tensor;
  tensor.amax = plan.tensor.amax;
  tensor.rounded = plan.tensor.rounded;
  tensor.rows_left_out = plan.tensor.rows_left_out;
  tensor.first_cols = plan.tensor.first_cols;
  tensor.given = plan.tensor.given;
  tensor.parts = plan.tensor.parts;
  const AmaxKey key{plan.input, tensor, d.nan, HasTensorScale(d), d.row_scaled, d.block_cols};
  for (const auto& [known, amax] : amaxes_) {
    if (known == key) return amax;
  }
  return amaxes_.emplace_back(key, AmaxOf(plan, x_, options_)).second;
}

Evaluator ByteMatcher::MakeEvaluator(const KernelPlan& plan) {
  return Evaluator(plan, x_, AmaxFor(plan), options_.random);
}

bool ByteMatcher::SizesFit(const KernelPlan& plan, const Places& places) const {
  const StoredSizes sizes =
      SizesOf(ShapeOf(plan.kernel.dialect, x_.rows, x_.cols, plan.kernel.layout), "layout");
  // An order of bytes that no layout has needs all its bytes.
  const bool codes = got_.codes.size() == places.code_bytes() ||
                     (got_.codes.size() == sizes.codes && plan.output.code_bytes == nullptr);
  const bool scales = got_.scales.empty() || got_.scales.size() == places.scale_bytes() ||
                      (got_.scales.size() == sizes.scales && plan.output.scale_bytes == nullptr);
  return codes && scales;
}

std::vector<ByteMatcher::Block>& ByteMatcher::SampleFor(const BlockGrid& grid) {
  std::vector<Block>& sample = samples_[{grid.rows, grid.cols}];
  const std::size_t blocks = grid.rows * grid.cols;
  if (!sample.empty() || blocks == 0) return sample;
  const std::size_t count = std::min(blocks, kSpread);
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t at = count == 1 ? 0 : k * (blocks - 1) / (count - 1);
    sample.emplace_back(at / grid.cols, at % grid.cols);
  }
  return sample;
}

void ByteMatcher::AddSample(const KernelPlan& plan, const std::vector<Block>& blocks) {
  std::vector<Block>& sample = SampleFor(MakeEvaluator(plan).grid());
  if (sample.size() > kMostSampled) return;
  for (const Block& block : blocks) {
    if (std::find(sample.begin(), sample.end(), block) == sample.end()) {
      sample.insert(sample.begin(), block);
    }
  }
}

bool ByteMatcher::TensorScaleMatches(const KernelPlan& plan) {
  return got_.tensor_scale.empty() ||
         SameBits(got_.tensor_scale, StoredTensorScale(plan, AmaxFor(plan)));
}

const BlockBytes& ByteMatcher::Sampled(const KernelPlan& plan, const Evaluator& evaluator,
                                       const Block& at) {
  KernelPlan placed_anywhere = plan;
  placed_anywhere.kernel.layout = placed_anywhere.output.written = {};
  // Blocks have their scales in the written type.
  placed_anywhere.output.written.scale_type = plan.output.written.scale_type;
  if (sampled_plan_ != placed_anywhere) {
    sampled_plan_ = placed_anywhere;
    sampled_.clear();
  }
  const auto [entry, is_new] = sampled_.try_emplace(at);
  if (is_new) evaluator.Evaluate(at.first, at.second, &entry->second);
  return entry->second;
}

MatchCounts ByteMatcher::Count(const KernelPlan& plan, bool stop_early,
                               std::vector<Block>* differ) {
  const Evaluator evaluator = MakeEvaluator(plan);
  const Places places(plan, evaluator.rows(), evaluator.cols());
  const BlockGrid& grid = evaluator.grid();
  MatchCounts counts;
  counts.comparable = SizesFit(plan, places);
  counts.tensor_scale_differs = !TensorScaleMatches(plan);
  if (stop_early && !counts.comparable) return counts;
  const std::size_t rows_at_once =
      std::max<std::size_t>(64, 2 * kBlocksWorthThreads / std::max<std::size_t>(1, grid.cols));
  for (std::size_t first = 0; first < grid.rows; first += rows_at_once) {
    const std::size_t rows = std::min(rows_at_once, grid.rows - first);
    std::vector<MatchCounts> parts(rows);
    std::vector<std::vector<Block>> found(rows);
    const auto count_row = [&](std::size_t k) {
      CheckInterrupt();
      BlockBytes block;
      for (std::size_t j = 0; j < grid.cols; ++j) {
        const std::size_t before = parts[k].blocks_differ;
        evaluator.Evaluate(first + k, j, &block);
        CompareBlock(places, got_, grid, block, first + k, j, &parts[k]);
        if (parts[k].blocks_differ != before && found[k].size() < kKept) {
          found[k].emplace_back(first + k, j);
        }
      }
    };
    if (rows * grid.cols < kBlocksWorthThreads) {
      for (std::size_t k = 0; k < rows; ++k) count_row(k);
    } else {
      ParallelFor(rows, count_row);
    }
    for (std::size_t k = 0; k < rows; ++k) {
      Add(parts[k], &counts);
      if (differ == nullptr) continue;
      for (const Block& block : found[k]) {
        if (differ->size() < kKept) differ->push_back(block);
      }
    }
    if (stop_early && counts.blocks_differ > 0) return counts;
  }
  counts.comparable = counts.comparable && 2 * counts.codes >= x_.size();
  if (grid.stores_scales && !got_.scales.empty()) {
    counts.comparable = counts.comparable && kLeastOfScales * counts.scales >= counts.blocks;
  }
  return counts;
}

std::size_t ByteMatcher::SampleMismatches(const KernelPlan& plan, std::size_t limit) {
  const Evaluator evaluator = MakeEvaluator(plan);
  const Places places(plan, evaluator.rows(), evaluator.cols());
  const BlockGrid& grid = evaluator.grid();
  MatchCounts counts;
  for (const Block& at : SampleFor(grid)) {
    CompareBlock(places, got_, grid, Sampled(plan, evaluator, at), at.first, at.second, &counts);
    if (counts.NotGiven() > limit) break;
  }
  return counts.NotGiven();
}

bool ByteMatcher::SampleDiffers(const KernelPlan& plan) {
  const Evaluator evaluator = MakeEvaluator(plan);
  const Places places(plan, evaluator.rows(), evaluator.cols());
  const BlockGrid& grid = evaluator.grid();
  MatchCounts counts;
  for (const Block& at : SampleFor(grid)) {
    CompareBlock(places, got_, grid, Sampled(plan, evaluator, at), at.first, at.second, &counts);
    if (counts.Different() > 0) return true;
  }
  return false;
}

bool ByteMatcher::BlocksMatch(const KernelPlan& plan) {
  const Evaluator evaluator = MakeEvaluator(plan);
  if (!SizesFit(plan, Places(plan, evaluator.rows(), evaluator.cols()))) return false;
  if (SampleDiffers(plan)) return false;
  std::vector<Block> differ;
  const MatchCounts counts = Count(plan, true, &differ);
  if (counts.blocks_differ > 0) AddSample(plan, differ);
  return counts.comparable && counts.blocks_differ == 0;
}

bool ByteMatcher::Matches(const KernelPlan& plan) {
  return TensorScaleMatches(plan) && BlocksMatch(plan);
}

AmaxUsed FindAmaxUsed(const Kernel& kernel, ByteMatcher& matcher) {
  const IeeeArithmetic ieee;
  const Dialect& d = kernel.dialect;
  const std::vector<float>& got = matcher.got().tensor_scale;
  if (IsApproximate(d) || d.row_scaled || got.size() != 1) return AmaxUsed::kNotTried;
  KernelPlan plan = PlanOf(kernel);
  if (matcher.BlocksMatch(plan)) return AmaxUsed::kRight;
  const float amax = AmaxOfNumber(d, got[0], kernel.layout.tensor_scale);
  if (!(amax > 0.0f) || !std::isfinite(amax)) return AmaxUsed::kNeither;
  plan.tensor.amax = AmaxFrom::kGiven;
  const bool exact = kernel.layout.tensor_scale == TensorScaleConvention::kAmax;
  for (const int steps : {0, 1, -1, 2, -2}) {  // other conventions round
    plan.tensor.given = std::bit_cast<float>(std::bit_cast<std::uint32_t>(amax) +
                                             static_cast<std::uint32_t>(steps));
    if (matcher.BlocksMatch(plan)) return AmaxUsed::kStored;
    if (exact) break;
  }
  return AmaxUsed::kNeither;
}

std::optional<TensorScaleReading> InterpretTensorScale(const Kernel& kernel, ByteMatcher& matcher) {
  const IeeeArithmetic ieee;
  const Dialect& d = kernel.dialect;
  const TensorScaleConvention convention = kernel.layout.tensor_scale;
  const std::vector<float>& got = matcher.got().tensor_scale;
  if (got.empty() || !HasTensorScale(d) || convention == TensorScaleConvention::kNone) return {};
  const Evaluator evaluator = matcher.MakeEvaluator(PlanOf(kernel));
  const Matrix<float> x = InputOf(PlanOf(kernel).input, matcher.x());
  std::vector<OtherAmax> others = PartialAmaxes(x.View(), d.block_cols);
  if (kernel.hadamard != 0) {
    others.push_back(AmaxBeforeTransform(matcher.x()));
  }
  return InterpretTensorScale({.convention = convention,
                               .dialect = &d,
                               .constant = TensorScaleConstant(d),
                               .largest_element = MaxFinite(d.element),
                               .amax = evaluator.amax(),
                               .got = got,
                               .used = FindAmaxUsed(kernel, matcher)},
                              others);
}

}  // namespace fp4lab
