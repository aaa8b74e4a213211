// The jobs of a linear's quantization kernels: one operand, and alpha of one GEMM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp4lab/base/random.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab::gpu {

// How to make an operand of x (rows, cols). The GEMM's reduction axis runs along cols or, if
// `along_rows`, along rows; then the operand, with its element numbers, is the transpose of x. The
// result lies in memory as x does.
struct QuantizeJob {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
  std::optional<Dialect> format;  // nullopt: values stay
  RandomStream random;
  int hadamard = 0;  // 0, 16 or 32
};

// *to receives the alpha that nn/linear.cc passes to the GEMM of the two operands; a null `to` asks
// for no alpha. amax_a, amax_b: float bits.
struct AlphaJob {
  std::optional<Dialect> a, b;
  const std::uint32_t *amax_a = nullptr, *amax_b = nullptr;
  float* to = nullptr;
};

// Whether a kernel makes both operands of a tensor from one reading (QuantizeBoth of quantize.cuh):
// FP4 in blocks of one length with one rounding, and no transform except one of the columns.
inline bool QuantizesBoth(const QuantizeJob& row, const QuantizeJob& column) {
  const auto takes = [](const QuantizeJob& job) {
    if (!job.format || job.format->element != FormatId::kE2M1 || job.format->block_rows != 1) {
      return false;
    }
    return job.format->block_cols == (job.format->block_scale == BlockScale::kFolded ? 16 : 32);
  };
  if (!takes(row) || !takes(column) || row.hadamard != 0) return false;
  const int unit = row.format->block_cols;
  return column.format->block_cols == unit && (column.hadamard == 0 || column.hadamard == 16) &&
         unit >= column.hadamard && row.format->rounding == column.format->rounding;
}

}  // namespace fp4lab::gpu
