// The elementwise parts of nn/side/side_term.h on the device: exact. T is the type of a linear's
// operands (Bf16 or float); `bf16`: results are BF16 numbers whatever T is.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

enum class ColumnFold : std::uint8_t {
  kSum,      // sum of x, NaN and all
  kSquares,  // sum of x^2, NaN as 0
  kLargest   // max |x|, NaN as 0
};

// A part of a column, folded, and what shows whether the order of its additions counts.
struct ColumnPart {
  double fold = 0.0;
  float size = 0.0f;     // of kSum: the sum of |x|
  int lowest = INT_MAX;  // of sums: the exponent of the lowest bit of what is added
};

// out[c] = the fold of column c of x (rows, cols), over rows ascending, in binary64. `memory` is
// overwritten and grows with the need.
template <class T>
void FoldColumns(ColumnFold fold, const T* x, std::size_t rows, std::size_t cols,
                 DeviceArray<ColumnPart>* memory, double* out, cudaStream_t stream);
// z[c] = fl(sums[c]).
void RoundSums(const double* sums, std::size_t cols, float* z, cudaStream_t stream);

// mean[c] = R(fl(sums[c] / rows)); rest = R(fl(x - mean)). x and rest (rows, cols), rows > 0.
template <class T>
void TakeMean(const double* sums, bool bf16, const T* x, std::size_t rows, std::size_t cols,
              T* mean, T* rest, cudaStream_t stream);

// hot (count) = the `count` channels with the largest statistics, of equal ones the first;
// ascending. is_hot (channels) = 1 for these, else 0. count <= channels.
void ChooseHot(const double* statistics, std::size_t channels, std::size_t count,
               std::uint32_t* is_hot, std::uint32_t* hot, cudaStream_t stream);

// Hot channels; `padded`: their number filled up with zeros.
struct HotList {
  const std::uint32_t* channels = nullptr;
  std::size_t count = 0, padded = 0;
};
// to (rows, padded) = the hot columns of x (rows, cols).
template <class T>
void GatherColumns(const HotList& hot, const T* x, std::size_t rows, std::size_t cols, T* to,
                   cudaStream_t stream);
// to (padded, cols) = the hot rows of x.
template <class T>
void GatherRows(const HotList& hot, const T* x, std::size_t cols, T* to, cudaStream_t stream);
// rest = x (rows, cols) with +0 in hot columns.
template <class T>
void ClearColumns(const std::uint32_t* is_hot, const T* x, std::size_t rows, std::size_t cols,
                  T* rest, cudaStream_t stream);

// An operand that was made of x (rows, cols), in x's memory order, and what decodes it.
template <class T>
struct MadeOperand {
  const T* values = nullptr;
  const Dialect* dialect = nullptr;     // null: the values are decoded
  const std::uint32_t* amax = nullptr;  // float bits, if the dialect has a tensor scale
  const float* row_decode = nullptr;    // of each row of the quantized matrix, or null
  bool turned = false;                  // the quantized matrix is the transpose of x
};
// side (rows, padded) = R(fl(x - fl(value * decode scale))) in the hot columns.
template <class T>
void GatherResidual(const HotList& hot, bool bf16, const T* x, const MadeOperand<T>& made,
                    std::size_t rows, std::size_t cols, T* side, cudaStream_t stream);

// c(i, j) += row[j]; c (rows, cols).
void AddRow(const float* row, std::size_t rows, std::size_t cols, float* c, cudaStream_t stream);
// c(i, j) += fl(left[i] * right[j]).
template <class L, class R>
void AddOuter(const L* left, const R* right, std::size_t rows, std::size_t cols, float* c,
              cudaStream_t stream);
// Adds product (padded, n): its row i to row hot[i] of c (., n) or, if `to_columns`, to column
// hot[i] of c (n, channels).
void AddToHot(const HotList& hot, const float* product, std::size_t n, bool to_columns,
              std::size_t channels, float* c, cudaStream_t stream);

}  // namespace fp4lab::gpu
