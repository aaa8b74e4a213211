// A linear layer without bias, y = x w^T, whose three GEMMs each take their operands in a stated
// number format: what a training recipe says about one linear.
#pragma once

#include <optional>

#include "fp4lab/block/block_format.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// One operand of one GEMM. Its blocks and its Hadamard groups lie along the GEMM's reduction axis.
struct OperandRecipe {
  std::optional<BlockFormat> format;           // nullopt: not quantized
  Rounding rounding = Rounding::kNearestEven;  // or kStochastic
  int hadamard = 0;                            // 0: none; 16 or 32: RandomHadamard of that size

  friend constexpr bool operator==(const OperandRecipe&, const OperandRecipe&) = default;
};

struct GemmRecipe {
  OperandRecipe a, b;
  friend constexpr bool operator==(const GemmRecipe&, const GemmRecipe&) = default;
};

// x (tokens, in), w (out, in), y and dy (tokens, out).
struct LinearRecipe {
  // Operands are rounded to BF16 (RNE) first, the dtype in which Transformer Engine's modules see
  // them; false: they stay binary32.
  bool bf16 = true;
  GemmRecipe fprop;  // y  = x w^T     a = input, b = weight, along in
  GemmRecipe dgrad;  // dx = dy w      a = grad,  b = weight, along out
  GemmRecipe wgrad;  // dw = dy^T x    a = grad,  b = input,  along tokens

  friend constexpr bool operator==(const LinearRecipe&, const LinearRecipe&) = default;
};

}  // namespace fp4lab
