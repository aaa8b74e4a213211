// Whether an array that holds a part of a stored matrix has the grid that its layout states.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "fp4lab/exchange/stored.h"

namespace fp4lab {

// Throw Error(where, ...) for an array with as many bytes as the layout of `shape` needs, but in
// another grid (a transposed one, for example). `dims` is the array's shape in its own elements,
// `bytes` its size. An array with at most one dimension beyond 1 states no grid. Of three and more
// dimensions, the first few together must be the rows, as experts and rows, or rows and blocks.
// Swizzled scales may stand in their padded grid, or with a tile per row.
void CheckCodesGrid(const StoredMatrix& shape, std::span<const std::size_t> dims, std::size_t bytes,
                    std::string_view where);
void CheckScalesGrid(const StoredMatrix& shape, std::span<const std::size_t> dims,
                     std::size_t bytes, std::string_view where);

// Throws Error(where, ...) for a matrix of numbers, one per element, that has another shape than
// (rows, cols). `dims` as above.
void CheckElementsGrid(std::size_t rows, std::size_t cols, std::span<const std::size_t> dims,
                       std::string_view where);

}  // namespace fp4lab
