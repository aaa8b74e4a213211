// The two kernels of RandomHadamard, by where the groups lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// The signs of a group, as the factors of its elements: +-1, or +-1/4 for size 16, where the whole
// factor of the transform is a power of two and is taken first.
struct HadamardSigns {
  int size;
  std::uint32_t mask;
  float factors[32];
};

HadamardSigns SignsOf(int size, std::uint32_t mask);

// Groups down the columns: `size` memory rows, `cols` groups beside each other.
void HadamardColumns(const float* x, std::size_t x_stride, std::size_t cols,
                     const HadamardSigns& signs, float* out, std::size_t out_stride);

// The largest magnitude of what that would write; NaN is left out.
float HadamardColumnsAmax(const float* x, std::size_t x_stride, std::size_t cols,
                          const HadamardSigns& signs);

// The transform and that, the outputs as two BF16 values a word: words[k * word_stride + c] is row
// 2 k (its lower half) and row 2 k + 1 of column c. Whole vectors are written: of columns up to the
// next multiple of 16.
float HadamardColumnsToWords(const float* x, std::size_t x_stride, std::size_t cols,
                             const HadamardSigns& signs, std::uint32_t* words,
                             std::size_t word_stride);

// An even number of rows from such words, in whole vectors as they are.
void FloatsOfWords(const std::uint32_t* words, std::size_t word_stride, MatrixView<float> to);

// Groups along a row: `groups` of them, one after the other.
void HadamardRow(const float* x, std::size_t groups, const HadamardSigns& signs, float* out);

// One group of any finite or other terms, x and out (1, size): what the kernels' binary32 sums
// cannot add exactly. Sums in binary64 where those are exact, else the reference's.
void HadamardWideGroup(MatrixView<const float> x, std::uint32_t mask, MatrixView<float> out);

}  // namespace fp4lab
