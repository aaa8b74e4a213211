// Compares a kernel's bytes with the bytes of a plan: counted over the whole matrix, or tried on a
// few blocks first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fp4lab/judge/kernels/evaluate.h"
#include "fp4lab/judge/kernels/places.h"
#include "fp4lab/judge/kernels/tensor_scale_reading.h"

namespace fp4lab {

// The numbers of compared and different bytes, without padding and without elements that a
// deviating layout does not store.
struct MatchCounts {
  std::size_t codes = 0, scales = 0;  // compared
  std::size_t codes_differ = 0, scales_differ = 0;
  std::size_t codes_beyond = 0, scales_beyond = 0;  // places that lie beyond the kernel's bytes
  std::size_t blocks = 0, blocks_differ = 0;
  bool tensor_scale_differs = false;
  // Whether the sizes fit, and at least half of the codes and a tenth of the scales could be
  // compared: a layout may have no place for many of the elements.
  bool comparable = true;
  std::size_t Different() const { return codes_differ + scales_differ; }
  // The codes and scales that the bytes do not have as the plan says: different or beyond them.
  std::size_t NotGiven() const { return Different() + codes_beyond + scales_beyond; }
  bool Equal() const {
    return comparable && codes_differ == 0 && scales_differ == 0 && !tensor_scale_differs;
  }
};

class ByteMatcher {
 public:
  // The arguments must outlive the matcher. Parts that `got` lacks (scales, the tensor scale) are
  // not compared.
  ByteMatcher(MatrixView<const float> x, const StoredMatrix& got, const DialectOptions& options);

  // Counts over all blocks; with stop_early only until inequality is certain. `differ` gets the
  // first few blocks that differ.
  using Block = std::pair<std::size_t, std::size_t>;
  MatchCounts Count(const KernelPlan& plan, bool stop_early = false,
                    std::vector<Block>* differ = nullptr);
  // Whether the plan gives all bytes. A few sampled blocks refuse most wrong plans; if a full
  // comparison refutes a plan that passed the sample, the differing blocks join the sample.
  bool Matches(const KernelPlan& plan);
  // The two parts of Matches: codes and scales, and the tensor scales if `got` has them.
  bool BlocksMatch(const KernelPlan& plan);
  bool TensorScaleMatches(const KernelPlan& plan);
  // The number of codes and scales of the sampled blocks that differ or lie beyond the bytes;
  // counting ends beyond `limit`.
  std::size_t SampleMismatches(const KernelPlan& plan, std::size_t limit = ~std::size_t{0});
  // Adds blocks to the sample, on which every plan is tried first.
  void AddSample(const KernelPlan& plan, const std::vector<Block>& blocks);

  MatrixView<const float> x() const { return x_; }
  const StoredMatrix& got() const { return got_; }
  const DialectOptions& options() const { return options_; }
  Evaluator MakeEvaluator(const KernelPlan& plan);

 private:
  struct AmaxKey {
    InputPlan input;
    TensorScalePlan tensor;
    NanRule nan;
    bool has_tensor_scale, row_scaled;
    int block_cols;
    bool operator==(const AmaxKey&) const = default;
  };
  const std::vector<float>& AmaxFor(const KernelPlan& plan);
  std::vector<Block>& SampleFor(const BlockGrid& grid);
  // The bytes of a sampled block. The blocks of the last plan are cached, because plans that differ
  // only in their layout follow each other.
  const BlockBytes& Sampled(const KernelPlan& plan, const Evaluator& evaluator, const Block& at);
  bool SizesFit(const KernelPlan& plan, const Places& places) const;
  bool SampleDiffers(const KernelPlan& plan);

  MatrixView<const float> x_;
  const StoredMatrix& got_;
  const DialectOptions& options_;
  std::vector<std::pair<AmaxKey, std::vector<float>>> amaxes_;
  std::map<Block, std::vector<Block>> samples_;  // by the rows and columns of the grid of blocks
  std::optional<KernelPlan> sampled_plan_;       // without its layout
  std::map<Block, BlockBytes> sampled_;
};

// For a kernel of an approximate dialect: whether codes and scales, read in the kernel's layout,
// lie in the set of answers. False with a transform, without scales, and if the sizes do not fit.
bool BlocksLieInSet(const Kernel& kernel, MatrixView<const float> x, const StoredMatrix& got,
                    const DialectOptions& options);
// BlocksLieInSet, and the tensor scales, if `got` has them, are those of x.
bool LiesInSet(const Kernel& kernel, ByteMatcher& matcher);

// The tensor scales that a plan stores for these amaxes.
std::vector<float> StoredTensorScale(const KernelPlan& plan, const std::vector<float>& amax);

// The amax with which codes and scales were computed, tried where a stored number is not the
// kernel's.
AmaxUsed FindAmaxUsed(const Kernel& kernel, ByteMatcher& matcher);

// An interpretation of stored tensor scales that are not the kernel's. nullopt if they are right,
// not stored or not asked for.
std::optional<TensorScaleReading> InterpretTensorScale(const Kernel& kernel, ByteMatcher& matcher);

}  // namespace fp4lab
