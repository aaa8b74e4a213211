// MatrixView: a non-owning matrix with a stride for each direction; Matrix: an owning one.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "fp4lab/base/error.h"

namespace fp4lab {

// Element (r, c) is data[r * row_stride + c * col_stride]. Kernels need one stride to be 1;
// Transposed() costs nothing, so "columnwise" is "rowwise on x.Transposed()".
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::size_t rows = 0, cols = 0;
  std::size_t row_stride = 0, col_stride = 1;

  constexpr MatrixView() = default;
  constexpr MatrixView(T* data, std::size_t rows, std::size_t cols)
      : data(data), rows(rows), cols(cols), row_stride(cols) {}
  constexpr MatrixView(T* data, std::size_t rows, std::size_t cols, std::size_t row_stride,
                       std::size_t col_stride)
      : data(data), rows(rows), cols(cols), row_stride(row_stride), col_stride(col_stride) {}
  // Converts a view of mutable elements to a view of constant elements.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>) constexpr MatrixView(
      const MatrixView<U>& o)  // NOLINT: implicit on purpose
      : data(o.data),
        rows(o.rows),
        cols(o.cols),
        row_stride(o.row_stride),
        col_stride(o.col_stride) {}

  constexpr T& operator()(std::size_t r, std::size_t c) const {
    return data[r * row_stride + c * col_stride];
  }
  constexpr std::size_t size() const { return rows * cols; }
  constexpr MatrixView Transposed() const {
    return MatrixView(data, cols, rows, col_stride, row_stride);
  }
  constexpr MatrixView Block(std::size_t r, std::size_t c, std::size_t n_rows,
                             std::size_t n_cols) const {
    // A null pointer, an empty matrix's data, bears no offset.
    T* const first = data == nullptr ? data : data + r * row_stride + c * col_stride;
    return MatrixView(first, n_rows, n_cols, row_stride, col_stride);
  }
  constexpr bool IsRowMajor() const { return col_stride == 1 && row_stride == cols; }
};

// An owning row-major matrix.
template <class T>
struct Matrix {
  std::size_t rows = 0, cols = 0;
  std::vector<T> values;

  Matrix() = default;
  Matrix(std::size_t rows, std::size_t cols, T value = T{})
      : rows(rows), cols(cols), values(rows * cols, value) {}
  MatrixView<T> View() { return {values.data(), rows, cols}; }
  MatrixView<const T> View() const { return {values.data(), rows, cols}; }
  T& operator()(std::size_t r, std::size_t c) { return values[r * cols + c]; }
  const T& operator()(std::size_t r, std::size_t c) const { return values[r * cols + c]; }
  friend bool operator==(const Matrix&, const Matrix&) = default;
};

}  // namespace fp4lab
