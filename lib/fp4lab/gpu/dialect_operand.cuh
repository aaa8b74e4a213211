// Operands in dialects that no kernel of quantize.cuh computes (dialect/tuned.h says which those
// are): level 2 of a tensor or of its rows, alpha of any two dialects, and products whose operands
// have a scale a row. Their values come from cuda/dialect_values.h. Slower than the tuned kernels,
// which know nothing of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "fp4lab/cuda/dialect_values.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/gpu/memory.cuh"

namespace fp4lab::gpu {

template <class T>
cuda::DeviceMatrix MatrixOf(const T* x, std::size_t rows, std::size_t cols) {
  constexpr bool kBf16 = std::is_same_v<T, Bf16>;
  return {x, kBf16 ? cuda::ElementType::kBf16 : cuda::ElementType::kFp32, rows, cols};
}

// amax = LevelTwoAmax of dialect/blocks.h: one for the tensor, or, where the dialect is row-scaled,
// one for each row of the quantized matrix, which is x (rows, cols) or, where `along_rows` says so,
// its transpose. NaN is left out or kept as the dialect says.
template <class T>
void MeasureLevelTwo(const Dialect& dialect, const T* x, std::size_t rows, std::size_t cols,
                     bool along_rows, float* amax, cudaStream_t stream);

// decode[i] = OperandDecode(dialect, amax[i]), count of them.
void DecodeRows(const Dialect& dialect, const float* amax, std::size_t count, float* decode,
                cudaStream_t stream);

// Decodes an operand (nn/linear_operand.cc, DecodeOperand, but for its transform): values
// (rows, cols) with `row_decode` a factor for each row or, where that is null, fl(values *
// OperandDecode(dialect, *amax)), in place and rounded to T; nullopt: values stay.
template <class T>
void DecodeValues(const std::optional<Dialect>& dialect, const std::uint32_t* amax,
                  const float* row_decode, std::size_t rows, std::size_t cols, T* values,
                  cudaStream_t stream);

// *to: the alpha of the GEMM of two operands, as AlphaOf of nn/linear_operand.h; nullopt: an
// operand without a scale of its tensor. amax_a, amax_b: float bits, read where the dialect has a
// level 2.
struct DialectAlphaJob {
  std::optional<Dialect> a, b;
  const std::uint32_t *amax_a = nullptr, *amax_b = nullptr;
  float* to = nullptr;
};
void WriteAlpha(const DialectAlphaJob& job, cudaStream_t stream);

// y(i, j) = fl(fl(product(i, j) * row_decode[i]) * column_decode[j]); d = y, or fl(c + y), rounded
// to D. product, c and d (rows, cols), row-major; a null decode leaves its factor out; d may be c.
template <class D>
void ScaleRows(const float* product, std::size_t rows, std::size_t cols, const float* row_decode,
               const float* column_decode, const float* c, D* d, cudaStream_t stream);

}  // namespace fp4lab::gpu
