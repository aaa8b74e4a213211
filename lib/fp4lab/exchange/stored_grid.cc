#include "fp4lab/exchange/stored_grid.h"

#include <algorithm>
#include <string>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/exchange/shape.h"

namespace fp4lab {
namespace {

bool StatesGrid(std::span<const std::size_t> dims) {
  return std::count_if(dims.begin(), dims.end(), [](std::size_t n) { return n != 1; }) > 1;
}

std::size_t Product(std::span<const std::size_t> dims) {
  std::size_t product = 1;
  for (const std::size_t n : dims) product *= n;
  return product;
}

// Whether the first few dimensions together are `rows` rows, and the others one row.
bool SplitsAt(std::span<const std::size_t> dims, std::size_t rows) {
  for (std::size_t k = 0; k <= dims.size(); ++k) {
    if (Product(dims.first(k)) == rows) return true;
  }
  return false;
}

[[noreturn]] void Refuse(std::string_view what, std::span<const std::size_t> dims, std::size_t rows,
                         std::size_t row_bytes, std::string_view order, std::string_view where) {
  throw Error(where, "is " + ShapeText({dims.begin(), dims.end()}) + "; " + std::string(what) +
                         " of this matrix in the order " + std::string(order) + " are " +
                         ShapeText({rows, row_bytes}) +
                         " bytes: reshape the array, or state the layout that it has");
}

}  // namespace

void CheckCodesGrid(const StoredMatrix& shape, std::span<const std::size_t> dims, std::size_t bytes,
                    std::string_view where) {
  const StoredSizes sizes = SizesOf(shape, where);
  if (!StatesGrid(dims) || bytes != sizes.codes || SplitsAt(dims, sizes.code_rows)) return;
  Refuse("codes", dims, sizes.code_rows, sizes.code_row_bytes, Name(shape.layout.codes), where);
}

void CheckScalesGrid(const StoredMatrix& shape, std::span<const std::size_t> dims,
                     std::size_t bytes, std::string_view where) {
  const StoredSizes sizes = SizesOf(shape, where);
  if (!StatesGrid(dims) || bytes != sizes.scales) return;
  const NamedScaleOrder& order = Named(shape.layout.scales);
  const std::size_t rows = RoundUp(sizes.scale_rows, order.tile_rows);
  const bool swizzled = order.order != ScaleOrder::kLinear && order.order != ScaleOrder::kPadded;
  const std::size_t tiles = bytes / sizes.scale_bytes / (order.tile_rows * order.tile_cols);
  if (SplitsAt(dims, rows) || (swizzled && SplitsAt(dims, tiles))) return;
  Refuse("scales", dims, rows, bytes / rows, order.name, where);
}

void CheckElementsGrid(std::size_t rows, std::size_t cols, std::span<const std::size_t> dims,
                       std::string_view where) {
  if (!StatesGrid(dims) || Product(dims) != rows * cols || SplitsAt(dims, rows)) return;
  throw Error(where, "is " + ShapeText({dims.begin(), dims.end()}) + "; the matrix is " +
                         ShapeText({rows, cols}) + ": reshape the array to it");
}

}  // namespace fp4lab
