#include "fp4lab/exchange/stored_grid.h"

#include <string>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

bool StatesGrid(std::span<const std::size_t> dims) {
  return dims.size() == 2 && dims[0] > 1 && dims[1] > 1;
}

std::string Times(std::size_t rows, std::size_t cols) {
  return std::to_string(rows) + "x" + std::to_string(cols);
}

[[noreturn]] void Refuse(std::string_view what, std::span<const std::size_t> dims, std::size_t rows,
                         std::size_t row_bytes, std::string_view order, std::string_view where) {
  throw Error(where, "is " + Times(dims[0], dims[1]) + "; " + std::string(what) +
                         " of this matrix in the order " + std::string(order) + " are " +
                         Times(rows, row_bytes) +
                         " bytes: reshape the array, or state the layout that it has");
}

}  // namespace

void CheckCodesGrid(const StoredMatrix& shape, std::span<const std::size_t> dims, std::size_t bytes,
                    std::string_view where) {
  const StoredSizes sizes = SizesOf(shape, where);
  if (!StatesGrid(dims) || bytes != sizes.codes || dims[0] == sizes.code_rows) return;
  Refuse("codes", dims, sizes.code_rows, sizes.code_row_bytes, Name(shape.layout.codes), where);
}

void CheckScalesGrid(const StoredMatrix& shape, std::span<const std::size_t> dims,
                     std::size_t bytes, std::string_view where) {
  const StoredSizes sizes = SizesOf(shape, where);
  if (!StatesGrid(dims) || bytes != sizes.scales) return;
  const NamedScaleOrder& order = Named(shape.layout.scales);
  const std::size_t rows = RoundUp(sizes.scale_rows, order.tile_rows);
  const bool swizzled = order.order != ScaleOrder::kLinear && order.order != ScaleOrder::kPadded;
  const bool tiles = swizzled && dims[1] == order.tile_rows * order.tile_cols;
  if (dims[0] == rows || tiles) return;
  Refuse("scales", dims, rows, bytes / rows, order.name, where);
}

void CheckElementsGrid(std::size_t rows, std::size_t cols, std::span<const std::size_t> dims,
                       std::string_view where) {
  if (!StatesGrid(dims) || dims[0] * dims[1] != rows * cols || dims[0] == rows) return;
  throw Error(where, "is " + Times(dims[0], dims[1]) + "; the matrix is " + Times(rows, cols) +
                         ": reshape the array to it");
}

}  // namespace fp4lab
