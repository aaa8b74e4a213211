#include "fp4lab/cuda/gemm/block_scaled_gemm.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/cuda/gemm/block_scaled_launch.h"

namespace fp4lab::cuda {
namespace {

constexpr std::size_t kMostBlocks = (std::size_t{1} << 31) - 1;

void CheckOperand(const BlockScaledOperand& x) {
  Expects(x.codes != nullptr && x.scales != nullptr, "codes and scales");
  Expects(IsAligned(x.scales), "scales are 16-byte aligned");
}

bool IsTcgen05(MmaForm form) {
  return form == MmaForm::kTcgen05 || form == MmaForm::kTcgen05Software;
}

std::string_view WhatItTakes(MmaForm form) {
  switch (form) {
    case MmaForm::kMmaSyncSoftware:
      return "GPU";
    case MmaForm::kMmaSync:
      return "mma.sync with block scales, or this build no machine code for it (sm_120a)";
    case MmaForm::kTcgen05Software:
      return "117 KiB of shared memory for a thread block";
    case MmaForm::kTcgen05:
      return "tcgen05.mma, or this build no machine code for it (sm_100a, sm_103a)";
  }
  return "";
}

}  // namespace

bool HasMmaForm(MmaForm form) { return IsTcgen05(form) ? HasTensorGemm(form) : HasWarpGemm(form); }

void BlockScaledGemm(const BlockScaledProblem& p, MmaForm form, StreamHandle stream) {
  const IeeeArithmetic ieee;
  Expects(p.d != nullptr || p.m == 0 || p.n == 0, "the result has a place");
  if (p.m == 0 || p.n == 0) return;
  if (p.k > 0) {
    CheckOperand(p.a);
    CheckOperand(p.b);
  }
  Expects((p.m - 1) / kGemmTile + 1 <= kMostBlocks / ((p.n - 1) / kGemmTile + 1),
          "m and n fit one launch");
  if (!HasMmaForm(form)) {
    throw Error("GPU", std::string("this chip has no ") + std::string(WhatItTakes(form)) +
                           "; mma.sync in software runs on every chip");
  }
  // k = 0 needs no matrix instruction, so the software form gives the answer of every form.
  if (IsTcgen05(form) && p.k > 0) {
    LaunchTensorGemm(p, form, stream);
  } else {
    LaunchWarpGemm(p, p.k > 0 ? form : MmaForm::kMmaSyncSoftware, stream);
  }
}

}  // namespace fp4lab::cuda
