// The two kernels of RandomHadamard, by where the groups lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {

// The signs of a group, as the factors of its elements: +-1, or +-size^(-1/2) for the sizes where
// that is a power of two and is taken first.
struct HadamardFactors {
  HadamardTransform transform;
  float of_elements[kMaxHadamardSize];

  std::size_t size() const { return static_cast<std::size_t>(transform.size); }
};

HadamardFactors FactorsOf(const HadamardTransform& transform);

// Groups down the columns: `size` memory rows, `cols` groups beside each other.
void HadamardColumns(const float* x, std::size_t x_stride, std::size_t cols,
                     const HadamardFactors& factors, float* out, std::size_t out_stride);

// The largest magnitude of what that would write; NaN is left out.
float HadamardColumnsAmax(const float* x, std::size_t x_stride, std::size_t cols,
                          const HadamardFactors& factors);

// The transform and that, the outputs as two BF16 values a word: words[k * word_stride + c] is row
// 2 k (its lower half) and row 2 k + 1 of column c. Whole vectors are written: of columns up to the
// next multiple of 16.
float HadamardColumnsToWords(const float* x, std::size_t x_stride, std::size_t cols,
                             const HadamardFactors& factors, std::uint32_t* words,
                             std::size_t word_stride);

// An even number of rows from such words, in whole vectors as they are.
void FloatsOfWords(const std::uint32_t* words, std::size_t word_stride, MatrixView<float> to);

// Groups along a row: `groups` of them, one after the other.
void HadamardRow(const float* x, std::size_t groups, const HadamardFactors& factors, float* out);

// One group of any finite or other terms, x and out (1, size): what the kernels' sums cannot add
// exactly. In binary64 where that is exact, else in integers of some 300 bits.
void HadamardWideGroup(MatrixView<const float> x, const HadamardSigns& signs,
                       MatrixView<float> out);

// Binades that the terms of a sum of `size` BF16 values in `bits` bits may span: a term has 8 bits,
// the sum log2(size) more.
constexpr int ExactSpan(int bits, int size) { return bits - 8 - HadamardStages(size); }

}  // namespace fp4lab
