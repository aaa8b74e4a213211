// Operands in dialects that no kernel of quantize.cuh computes (the table OperandKernels of
// operand_plan.h): amax and decode scale of a tensor or of its rows, alpha of any two
// dialects, and products whose operands have a scale per row. cuda/quantize/dialect_values.h
// computes the values. These kernels are slower than the tuned kernels, which do not depend on
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "fp4lab/cuda/quantize/dialect_values.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/gemm/gemm_problem.cuh"

namespace fp4lab::gpu {

template <class T>
cuda::DeviceMatrix MatrixOf(const T* x, std::size_t rows, std::size_t cols) {
  constexpr bool kBf16 = std::is_same_v<T, Bf16>;
  return {x, kBf16 ? cuda::ElementType::kBf16 : cuda::ElementType::kFp32, rows, cols};
}

// amax = the result of TensorAmaxes of quantize/blocks.h: one amax for the tensor or, if the
// dialect is row-scaled, one for each row of the quantized matrix. The quantized matrix is x (rows,
// cols) or, if `along_rows`, the transpose of x. dialect.nan says whether NaN is left out or kept.
template <class T>
void MeasureTensorAmaxes(const Dialect& dialect, const T* x, std::size_t rows, std::size_t cols,
                         bool along_rows, float* amax, cudaStream_t stream);

// decode[i] = OperandDecode(dialect, amax[i]) for i < count.
void DecodeRows(const Dialect& dialect, const float* amax, std::size_t count, float* decode,
                cudaStream_t stream);

// out (rows, cols), which may be `values`: an operand decoded as DecodeOperand of
// nn/linear/operand.cc does except for the Hadamard transform. Every value of values (rows, cols)
// is multiplied by the scale of its block along its row, if `scales` has them, and, unless
// `dialect` is nullopt, by row_decode[row] or, if that is null, by OperandDecode(dialect, *amax).
// The product is rounded to T, and to BF16 if `bf16`. Without `scales` and `dialect` the values are
// copied.
template <class T>
void DecodeValues(const std::optional<Dialect>& dialect, bool bf16, const std::uint32_t* amax,
                  const float* row_decode, const BlockScales& scales, std::size_t rows,
                  std::size_t cols, const T* values, T* out, cudaStream_t stream);

// *to receives the alpha of the GEMM of two operands, as AlphaOf of nn/linear/operand.h defines it;
// nullopt: an operand that contributes no factor to alpha. amax_a, amax_b: float bits, read only if
// the dialect has a tensor scale.
struct DialectAlphaJob {
  std::optional<Dialect> a, b;
  const std::uint32_t *amax_a = nullptr, *amax_b = nullptr;
  float* to = nullptr;
};
void WriteAlpha(const DialectAlphaJob& job, cudaStream_t stream);

// y(i, j) = fl(fl(product(i, j) * row_decode[i]) * column_decode[j]); d = y, or fl(c + y) if c is
// not null, rounded to D. product, c and d (rows, cols), row-major. A null decode leaves its factor
// out. d may be c.
template <class D>
void ScaleRows(const float* product, std::size_t rows, std::size_t cols, const float* row_decode,
               const float* column_decode, const float* c, D* d, cudaStream_t stream);

}  // namespace fp4lab::gpu
