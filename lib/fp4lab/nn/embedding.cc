#include "fp4lab/nn/embedding.h"

#include <algorithm>
#include <cstddef>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/lanes/row_chunks.h"

namespace fp4lab {
namespace {

bool AllBelow(std::span<const std::uint16_t> tokens, std::size_t rows) {
  return std::all_of(tokens.begin(), tokens.end(), [=](std::uint16_t t) { return t < rows; });
}

}  // namespace

void Embedding(MatrixView<const float> table, std::span<const std::uint16_t> tokens,
               MatrixView<float> y) {
  Expects(HasShape(table, table.rows, table.cols) && HasShape(y, tokens.size(), table.cols),
          "table (V, C), y (tokens, C)");
  Expects(AllBelow(tokens, table.rows), "tokens below the table's rows");
  ParallelRowChunks(y.rows, y.cols, [&](std::size_t first, std::size_t count) {
    for (std::size_t r = first; r < first + count; ++r) {
      std::copy_n(RowOf(table, tokens[r]), y.cols, RowOf(y, r));
    }
  });
}

// Threads share out the columns, so that each table element has one writer.
void EmbeddingBackward(std::span<const std::uint16_t> tokens, MatrixView<const float> dy,
                       MatrixView<float> dtable) {
  const IeeeArithmetic ieee;
  Expects(HasShape(dtable, dtable.rows, dtable.cols) && HasShape(dy, tokens.size(), dtable.cols),
          "dtable (V, C), dy (tokens, C)");
  Expects(AllBelow(tokens, dtable.rows), "tokens below the table's rows");
  constexpr std::size_t kColumns = 32;
  ParallelFor(DivideUp(dy.cols, kColumns), [&](std::size_t i) {
    const std::size_t first = i * kColumns, count = std::min(kColumns, dy.cols - first);
    for (std::size_t r = 0; r < dy.rows; ++r) {
      float* to = RowOf(dtable, tokens[r]) + first;
      const float* from = RowOf(dy, r) + first;
      for (std::size_t c = 0; c < count; ++c) to[c] += from[c];
    }
  });
}

}  // namespace fp4lab
