#include "fp4lab/cuda/block_scaled_gemm.h"

#include <cstdint>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/cuda/block_scaled_launch.h"

namespace fp4lab::cuda {
namespace {

constexpr std::size_t kMostBlocks = (std::size_t{1} << 31) - 1;

void CheckOperand(const BlockScaledOperand& x) {
  Expects(x.codes != nullptr && x.scales != nullptr, "codes and scales");
  Expects(reinterpret_cast<std::uintptr_t>(x.scales) % 16 == 0, "scales are 16-byte aligned");
}

}  // namespace

bool HasMmaForm(MmaForm form) {
  return form == MmaForm::kTcgen05 ? HasTensorGemm() : HasWarpGemm(form);
}

void BlockScaledGemm(const BlockScaledProblem& p, MmaForm form, StreamHandle stream) {
  Expects(p.d != nullptr || p.m == 0 || p.n == 0, "the result has a place");
  if (p.m == 0 || p.n == 0) return;
  if (p.k > 0) {
    CheckOperand(p.a);
    CheckOperand(p.b);
  }
  Expects((p.m - 1) / kGemmTile + 1 <= kMostBlocks / ((p.n - 1) / kGemmTile + 1),
          "m and n fit one launch");
  if (!HasMmaForm(form)) {
    throw Error("GPU",
                std::string("this chip has no ") +
                    (form == MmaForm::kTcgen05 ? "tcgen05.mma" : "mma.sync") +
                    " with block scales, or this build no machine code for it; the software form "
                    "runs on every chip");
  }
  // Nothing to multiply: no instruction, the same answer.
  if (form == MmaForm::kTcgen05 && p.k > 0) {
    LaunchTensorGemm(p, stream);
  } else {
    LaunchWarpGemm(p, p.k > 0 ? form : MmaForm::kSoftware, stream);
  }
}

}  // namespace fp4lab::cuda
