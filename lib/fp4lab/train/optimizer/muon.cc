// Muon (nn/muon.h) on the matrices of the blocks, AdamW on embedding, head and gains. Its states
// are the momentum, or AdamW's first moment, and AdamW's second moment, which matrices leave at 0.
#include "fp4lab/nn/muon.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/train/optimizer/optimizer.h"

namespace fp4lab {

extern const Optimizer kAdamW;

namespace {

float ScaleOf(MuonScale scale, std::size_t out, std::size_t in) {
  const auto rows = static_cast<double>(out), cols = static_cast<double>(in);
  switch (scale) {
    case MuonScale::kMoonlight:
      return static_cast<float>(0.2 * std::sqrt(std::max(rows, cols)));
    case MuonScale::kKellerJordan:
      return static_cast<float>(std::sqrt(std::max(1.0, rows / cols)));
  }
  return 1.0f;
}

void Update(const OptimizerConfig& config, const UpdateStep& step, const ParameterGroup& group,
            const OptimizerNumbers& numbers) {
  if (group.kind != ParameterKind::kMatrices) return kAdamW.update(config, step, group, numbers);
  Muon muon{.learning_rate = LearningRateOf(config, step.learning_rate, group),
            .momentum = config.muon.momentum,
            .nesterov = config.muon.nesterov,
            .steps = config.muon.steps,
            .bf16 = config.muon.bf16,
            .weight_decay = WeightDecayOf(config, group),
            .gradient_scale = step.gradient_scale};
  std::size_t updated = 0;
  for (const ParameterSlice& slice : group.slices) {
    std::vector<std::size_t> heights = slice.stacked;
    if (heights.empty() || !config.muon.split_fused) heights = {slice.rows};
    std::size_t at = slice.offset;
    for (const std::size_t rows : heights) {
      const auto matrix = [&](auto all) { return MatrixView(all.data() + at, rows, slice.cols); };
      muon.scale = ScaleOf(config.muon.scale, rows, slice.cols);
      MuonStep(muon, matrix(numbers.gradients), matrix(numbers.parameters),
               matrix(numbers.states[0]));
      at += rows * slice.cols;
    }
    updated += at - slice.offset;
  }
  Expects(updated == group.size, "Muon: the matrices of the whole group");
}

}  // namespace

extern const Optimizer kMuon;
const Optimizer kMuon{kMuonName, "Muon", 2, false, Update};

}  // namespace fp4lab
