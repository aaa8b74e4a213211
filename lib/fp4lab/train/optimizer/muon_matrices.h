// What Muon updates in a group of matrices, for the CPU and the GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "fp4lab/nn/optimizer/muon.h"
#include "fp4lab/train/optimizer/optimizer.h"

namespace fp4lab {

struct MuonMatrix {
  std::size_t offset = 0, rows = 0, cols = 0;  // in the flat parameters
};

// A linear's weight, or each of the matrices that stand one above the other in it (split_fused).
inline std::vector<MuonMatrix> MuonMatrices(const OptimizerConfig& config,
                                            const ParameterGroup& group) {
  std::vector<MuonMatrix> matrices;
  for (const ParameterSlice& slice : group.slices) {
    std::vector<std::size_t> heights = slice.stacked;
    if (heights.empty() || !config.muon.split_fused) heights = {slice.rows};
    std::size_t at = slice.offset;
    for (const std::size_t rows : heights) {
      matrices.push_back({at, rows, slice.cols});
      at += rows * slice.cols;
    }
  }
  return matrices;
}

// Matrices of one shape that are updated together.
struct MuonBatch {
  std::size_t rows = 0, cols = 0;
  std::vector<std::size_t> offsets;  // in the flat parameters
};

// The matrices in batches of at most `most` elements, or of one matrix. A function of the shapes,
// so that a resumed run has the batches of the run before.
inline std::vector<MuonBatch> MuonBatches(const std::vector<MuonMatrix>& matrices,
                                          std::size_t most) {
  std::vector<MuonBatch> batches;
  for (const MuonMatrix& m : matrices) {
    const auto has_room = [&](const MuonBatch& b) {
      return b.rows == m.rows && b.cols == m.cols &&
             (b.offsets.size() + 1) * m.rows * m.cols <= most;
    };
    const auto batch = std::find_if(batches.begin(), batches.end(), has_room);
    if (batch != batches.end()) {
      batch->offsets.push_back(m.offset);
    } else {
      batches.push_back({m.rows, m.cols, {m.offset}});
    }
  }
  return batches;
}

// The factor of the orthogonal matrix by the shape of the weight (out, in).
inline float MuonScaleOf(MuonScale scale, std::size_t out, std::size_t in) {
  const auto rows = static_cast<double>(out), cols = static_cast<double>(in);
  switch (scale) {
    case MuonScale::kMoonlight:
      return static_cast<float>(0.2 * std::sqrt(std::max(rows, cols)));
    case MuonScale::kKellerJordan:
      return static_cast<float>(std::sqrt(std::max(1.0, rows / cols)));
  }
  return 1.0f;
}

inline Muon MuonOf(const OptimizerConfig& config, const UpdateStep& step,
                   const ParameterGroup& group, std::size_t rows, std::size_t cols) {
  return {.learning_rate = LearningRateOf(config, step.learning_rate, group),
          .momentum = config.muon.momentum,
          .nesterov = config.muon.nesterov,
          .steps = config.muon.steps,
          .bf16 = config.muon.bf16,
          .scale = MuonScaleOf(config.muon.scale, rows, cols),
          .weight_decay = WeightDecayOf(config, group),
          .gradient_scale = step.gradient_scale};
}

}  // namespace fp4lab
