// Muon (nn/optimizer/muon.h) on the matrices of the blocks, AdamW on embedding, head and gains. Its
// states are the momentum, or AdamW's first moment, and AdamW's second moment, which matrices leave
// at 0.
#include "fp4lab/nn/optimizer/muon.h"

#include "fp4lab/base/error.h"
#include "fp4lab/train/optimizer/muon_matrices.h"
#include "fp4lab/train/optimizer/optimizer.h"

namespace fp4lab {

extern const Optimizer kAdamW;

namespace {

void Update(const OptimizerConfig& config, const UpdateStep& step, const ParameterGroup& group,
            const OptimizerNumbers& numbers) {
  if (group.kind != ParameterKind::kMatrices) return kAdamW.update(config, step, group, numbers);
  std::size_t updated = 0;
  for (const MuonMatrix& m : MuonMatrices(config, group)) {
    const auto matrix = [&](auto all) { return MatrixView(all.data() + m.offset, m.rows, m.cols); };
    MuonStep(MuonOf(config, step, group, m.rows, m.cols), matrix(numbers.gradients),
             matrix(numbers.parameters), matrix(numbers.states[0]));
    updated += m.rows * m.cols;
  }
  Expects(updated == group.size, "Muon: the matrices of the whole group");
}

}  // namespace

extern const Optimizer kMuon;
const Optimizer kMuon{kMuonName, "Muon", 2, true, true, Update};

}  // namespace fp4lab
