// The kernels of RandomHadamard, for groups down the memory columns and along the memory rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"
#include "fp4lab/transform/hadamard_transform.h"

namespace fp4lab {

// The signs of a group as factors of its elements: +-1, or +-size^(-1/2) for sizes for which that
// is a power of two and is applied before the sums.
struct HadamardFactors {
  HadamardTransform transform;
  float of_elements[kMaxHadamardSize];

  std::size_t size() const { return static_cast<std::size_t>(transform.size); }
};

HadamardFactors FactorsOf(const HadamardTransform& transform);

// Transforms groups down the columns: `size` memory rows of `cols` groups side by side.
void HadamardColumns(const float* x, std::size_t x_stride, std::size_t cols,
                     const HadamardFactors& factors, float* out, std::size_t out_stride);

// The largest magnitude of the outputs of HadamardColumns; NaN is ignored.
float HadamardColumnsAmax(const float* x, std::size_t x_stride, std::size_t cols,
                          const HadamardFactors& factors);

// Transforms groups down the columns and returns the largest magnitude, as HadamardColumnsAmax
// does. The outputs are stored as two BF16 values a word: words[k * word_stride + c] holds row 2 k
// (lower half) and row 2 k + 1 of column c. The function writes whole vectors: columns up to the
// next multiple of 16.
float HadamardColumnsToWords(const float* x, std::size_t x_stride, std::size_t cols,
                             const HadamardFactors& factors, std::uint32_t* words,
                             std::size_t word_stride);

// Unpacks the words of HadamardColumnsToWords to an even number of rows of floats, in whole
// vectors, too: `words` and `to` need room for columns up to the next multiple of 16.
void FloatsOfWords(const std::uint32_t* words, std::size_t word_stride, MatrixView<float> to);

// Transforms `groups` consecutive groups along a row.
void HadamardRow(const float* x, std::size_t groups, const HadamardFactors& factors, float* out);

// Transforms one group of any terms, NaN and Inf included; x and out are (1, size). The kernels
// call it for groups that their sums cannot add exactly. It sums in binary64 if that is exact, else
// in integers of some 300 bits.
void HadamardWideGroup(MatrixView<const float> x, const HadamardSigns& signs,
                       MatrixView<float> out);

// The number of binades that `size` BF16 terms may span if `bits` bits are to hold their sum
// exactly: a term has 8 bits, the sum log2(size) more.
constexpr int ExactSpan(int bits, int size) { return bits - 8 - HadamardStages(size); }

}  // namespace fp4lab
