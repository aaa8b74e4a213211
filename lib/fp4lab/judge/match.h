// A kernel's bytes against what a plan would have written: counted over the whole matrix, or tried
// on a few blocks first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fp4lab/judge/evaluate.h"
#include "fp4lab/judge/places.h"
#include "fp4lab/judge/tensor_number.h"

namespace fp4lab {

// Only bytes that mean something count: neither padding nor what a deviating layout loses.
struct MatchCounts {
  std::size_t codes = 0, scales = 0;  // compared
  std::size_t codes_differ = 0, scales_differ = 0;
  std::size_t blocks = 0, blocks_differ = 0;
  bool level_two_differs = false;
  // The sizes fit, and half of the codes and a tenth of the scales could be compared at least: a
  // layout may leave out much of what the asked one has bytes for.
  bool comparable = true;
  std::size_t Different() const { return codes_differ + scales_differ; }
  bool Equal() const {
    return comparable && codes_differ == 0 && scales_differ == 0 && !level_two_differs;
  }
};

class ByteMatcher {
 public:
  // All must outlive it. Parts that `got` lacks (scales, level 2) are not compared.
  ByteMatcher(MatrixView<const float> x, const StoredMatrix& got, const DialectOptions& options);

  // Over all blocks; with stop_early only up to a point from which inequality is certain. `differ`
  // gets the first few blocks that differ.
  using Block = std::pair<std::size_t, std::size_t>;
  MatchCounts Count(const KernelPlan& plan, bool stop_early = false,
                    std::vector<Block>* differ = nullptr);
  // Whether the plan gives all the bytes. Most that do not are refused by a few sampled blocks; a
  // block that refutes a plan which these let pass joins them.
  bool Matches(const KernelPlan& plan);
  // The two halves of it: codes and scales; and the numbers of level 2, where `got` has them.
  bool BlocksMatch(const KernelPlan& plan);
  bool LevelTwoMatches(const KernelPlan& plan);
  // How many codes and scales of the sampled blocks differ; counting ends beyond `limit`.
  std::size_t SampleMismatches(const KernelPlan& plan, std::size_t limit = ~std::size_t{0});
  // Blocks that every plan is tried on first.
  void AddSample(const KernelPlan& plan, const std::vector<Block>& blocks);

  MatrixView<const float> x() const { return x_; }
  const StoredMatrix& got() const { return got_; }
  const DialectOptions& options() const { return options_; }
  Evaluator MakeEvaluator(const KernelPlan& plan);

 private:
  struct AmaxKey {
    InputPlan input;
    LevelPlan level;
    NanRule nan;
    bool has_level_two, row_scaled;
    int block_cols;
    bool operator==(const AmaxKey&) const = default;
  };
  const std::vector<float>& AmaxFor(const KernelPlan& plan);
  std::vector<Block>& SampleFor(const BlockGrid& grid);
  // A block of the sample. Those of the last plan are kept: plans that differ in nothing but the
  // layout take turns.
  const BlockBytes& Sampled(const KernelPlan& plan, const Evaluator& evaluator, const Block& at);
  bool SizesFit(const KernelPlan& plan, const Places& places) const;

  MatrixView<const float> x_;
  const StoredMatrix& got_;
  const DialectOptions& options_;
  std::vector<std::pair<AmaxKey, std::vector<float>>> amaxes_;
  std::map<Block, std::vector<Block>> samples_;  // by the rows and columns of the grid of blocks
  std::optional<KernelPlan> sampled_plan_;       // without its layout
  std::map<Block, BlockBytes> sampled_;
};

// For a kernel whose dialect's answer is a set: whether codes and scales, read in the kernel's
// layout, lie in it. False with a transform, without scales, and where the sizes do not fit.
bool BlocksLieInSet(const Kernel& kernel, MatrixView<const float> x, const StoredMatrix& got,
                    const DialectOptions& options);
// And whether the numbers of level 2, where `got` has them, are those that belong to x.
bool LiesInSet(const Kernel& kernel, ByteMatcher& matcher);

// The numbers of level 2 that a plan stores for these amaxes.
std::vector<float> StoredLevelTwo(const KernelPlan& plan, const std::vector<float>& amax);

// What the stored numbers of level 2 look like where they are not the kernel's. nullopt where they
// are, and where none are stored or asked for.
std::optional<TensorNumberReading> ReadTensorNumber(const Kernel& kernel, ByteMatcher& matcher);

}  // namespace fp4lab
