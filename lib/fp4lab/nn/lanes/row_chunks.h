// Work on the rows of a matrix, cut into chunks whose size does not depend on the threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/parallel.h"

namespace fp4lab {

constexpr std::size_t RowsAChunk(std::size_t cols) {
  constexpr std::size_t kElements = 16384;
  return std::max<std::size_t>(1, kElements / std::max<std::size_t>(1, cols));
}

// Calls body(first, count) for disjoint chunks of `rows` of about 16k elements.
template <class Body>
void ParallelRowChunks(std::size_t rows, std::size_t cols, Body&& body) {
  const std::size_t chunk = RowsAChunk(cols);
  ParallelFor(DivideUp(rows, chunk),
              [&](std::size_t i) { body(i * chunk, std::min(chunk, rows - i * chunk)); });
}

// Calls body(first, count) as ParallelRowChunks does and returns its largest result.
template <class Body>
float LargestOfRowChunks(std::size_t rows, std::size_t cols, Body&& body) {
  const std::size_t chunk = RowsAChunk(cols);
  if (rows <= chunk) return body(0, rows);
  std::vector<float> largest(DivideUp(rows, chunk));
  ParallelRowChunks(rows, cols, [&](std::size_t first, std::size_t count) {
    largest[first / chunk] = body(first, count);
  });
  return *std::max_element(largest.begin(), largest.end());
}

template <class T>
constexpr MatrixView<T> RowsOf(MatrixView<T> x, std::size_t first, std::size_t count) {
  return x.Block(first, 0, count, x.cols);
}

template <class T>
constexpr T* RowOf(MatrixView<T> x, std::size_t r) {
  return x.data + r * x.row_stride;
}

// Whether x is rows x cols with the elements of a row side by side.
template <class T>
constexpr bool HasShape(MatrixView<T> x, std::size_t rows, std::size_t cols) {
  return x.rows == rows && x.cols == cols && (x.col_stride == 1 || cols <= 1);
}

}  // namespace fp4lab
