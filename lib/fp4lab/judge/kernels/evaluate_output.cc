// Blocks that a kernel does not write, or writes at another block's place.
#include <algorithm>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/kernels/evaluate.h"

namespace fp4lab {
namespace {

// A scale that a kernel writes, as it is read: all NaNs of a number type are one.
std::uint32_t AsRead(std::uint32_t scale, ScaleType type) {
  return type == ScaleType::kByte ? scale : ScaleCodeOf(type, {}, ScaleValueOf(type, {}, scale));
}

}  // namespace

void Evaluator::FillUnwritten(std::uint32_t mask, BlockBytes* block) const {
  const UnwrittenPart& part = plan_.output.unwritten;
  if (part.region.rows == 0 || block->rows * block->cols == 0) return;
  const bool whole =
      part.region.Contains(block->row, block->col) &&
      part.region.Contains(block->row + block->rows - 1, block->col + block->cols - 1);
  if (part.scale && whole) block->scale = *part.scale;
  for (std::size_t k = 0; k < block->codes.size(); ++k) {
    const std::size_t row = block->row + k / block->cols, col = block->col + k % block->cols;
    const std::optional<std::uint8_t>& code = col % 2 == 0 ? part.even_code : part.odd_code;
    if (code && part.region.Contains(row, col)) {
      block->codes[k] = static_cast<std::uint8_t>(*code & mask);
    }
  }
}

void Evaluator::Fill(BlockBytes* block) const {
  const IeeeArithmetic ieee;
  const OutputPlan& plan = plan_.output;
  const std::uint32_t mask = (1u << FormatOf(plan_.kernel.dialect.element).bits) - 1;
  if (plan.codes_filled) {
    std::fill(block->codes.begin(), block->codes.end(),
              static_cast<std::uint8_t>(*plan.codes_filled & mask));
  }
  if (plan.scales_filled) block->scale = AsRead(*plan.scales_filled, scale_type_);
  FillUnwritten(mask, block);
  const bool cut = plan.tail_block_zero && block->cols < grid_.block_cols;
  const bool below = plan.tail_rows_zero && block->row >= rows_ / 16 * 16;
  if (!cut && !below) return;
  block->scale = 0;
  std::fill(block->codes.begin(), block->codes.end(), std::uint8_t{0});
}

std::pair<std::size_t, std::size_t> Evaluator::Source(std::size_t i, std::size_t j) const {
  const SwappedParts& parts = plan_.output.swapped;
  const Rectangle& a = parts.region;
  if (a.rows == 0) return {i, j};
  const Rectangle b{parts.other_row, parts.other_col, a.rows, a.cols};
  const std::size_t row = i * grid_.block_rows, col = j * grid_.block_cols;
  const bool in_a = a.Contains(row, col), in_b = b.Contains(row, col);
  if (in_a == in_b) return {i, j};
  const Rectangle &from = in_a ? a : b, &to = in_a ? b : a;
  const std::size_t other_row = row - from.row + to.row, other_col = col - from.col + to.col;
  const auto fits = [&](std::size_t at, std::size_t other, std::size_t size, std::size_t end) {
    return other < end && std::min(size, end - at) == std::min(size, end - other);
  };
  if (!fits(row, other_row, grid_.block_rows, rows_) ||
      !fits(col, other_col, grid_.block_cols, cols_)) {
    return {i, j};
  }
  return {other_row / grid_.block_rows, other_col / grid_.block_cols};
}

}  // namespace fp4lab
