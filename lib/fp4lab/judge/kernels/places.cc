#include "fp4lab/judge/kernels/places.h"

#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/exchange/order/byte_order.h"

namespace fp4lab {
namespace {

// The lowest bit of code c in its row (block/packing.h defines the orders).
std::size_t BitInRow(CodeOrder order, std::size_t c, std::size_t cols, std::size_t group) {
  switch (order) {
    case CodeOrder::kLowFirst:
      return c * 4;
    case CodeOrder::kHighFirst:
      return (c ^ 1) * 4;
    case CodeOrder::kSplitHalves: {
      const std::size_t start = c / group * group, j = c - start;
      const std::size_t half = (std::min(group, cols - start) + 1) / 2;
      return start * 4 + (j < half ? j * 8 : (j - half) * 8 + 4);
    }
    case CodeOrder::kBytes:
      return c * 8;
    case CodeOrder::kDense6:
      return c * 6;
  }
  return 0;
}

std::size_t CodeWidth(CodeOrder order) {
  return order == CodeOrder::kBytes ? 8 : order == CodeOrder::kDense6 ? 6 : 4;
}

// place + shift within [0, end), else kNowhere.
std::size_t Shifted(std::size_t place, int shift, std::size_t end) {
  const auto moved = static_cast<std::ptrdiff_t>(place) + shift;
  const bool inside = moved >= 0 && moved < static_cast<std::ptrdiff_t>(end);
  return inside ? static_cast<std::size_t>(moved) : Places::kNowhere;
}

}  // namespace

Places::Places(const KernelPlan& plan, std::size_t rows, std::size_t cols)
    : output_(plan.output), rows_(rows), cols_(cols) {
  const Dialect& d = plan.kernel.dialect;
  const bool has_scales = d.block_rows > 0;
  block_rows_ =
      has_scales ? static_cast<std::size_t>(d.block_rows) : std::max<std::size_t>(rows, 1);
  block_cols_ =
      has_scales ? static_cast<std::size_t>(d.block_cols) : std::max<std::size_t>(cols, 1);
  group_ = d.block_cols > 0 && d.block_cols % 2 == 0 ? static_cast<std::size_t>(d.block_cols) : 16;
  const StorageLayout& layout = output_.written;
  codes_transposed_ = layout.transposed != output_.codes_transposed;
  scales_transposed_ = layout.transposed != output_.scales_transposed;
  code_rows_ = codes_transposed_ ? cols : rows;
  code_cols_ = codes_transposed_ ? rows : cols;
  row_bytes_ = PackedRowBytes(layout.codes, code_cols_, group_);
  width_ = CodeWidth(layout.codes);
  code_bytes_ = code_rows_ * row_bytes_;
  const std::size_t grid_rows = DivideUp(rows, block_rows_),
                    grid_cols = DivideUp(cols, block_cols_);
  scale_rows_ = scales_transposed_ ? grid_cols : grid_rows;
  scale_cols_ = scales_transposed_ ? grid_rows : grid_cols;
  if (layout.expanded_scales) scale_rows_ = scales_transposed_ ? cols : rows;
  const std::size_t tile_cols = Named(layout.scales).tile_cols;
  padded_cols_ = DivideUp(scale_cols_, tile_cols) * tile_cols;
  scales_ = has_scales ? ScaleBytes(layout.scales, scale_rows_, scale_cols_) : 0;
  scale_type_ = ScaleTypeOf(d, layout);
  if (output_.code_bytes != nullptr) {
    code_places_ =
        std::make_shared<BytePlaces>(*output_.code_bytes, code_rows_, row_bytes_, "codes");
    code_bytes_ = code_places_->bytes();
  }
  if (output_.scale_bytes != nullptr && has_scales) {
    scale_places_ =
        std::make_shared<BytePlaces>(*output_.scale_bytes, scale_rows_, scale_cols_, "scales");
    scales_ = scale_places_->bytes();
  }
}

std::size_t Places::CodeBit(std::size_t r, std::size_t c) const {
  std::size_t row = codes_transposed_ ? c : r, col = codes_transposed_ ? r : c;
  if (output_.code_shift != 0) {
    const std::size_t at =
        Shifted(row * code_cols_ + col, output_.code_shift, code_rows_ * code_cols_);
    if (at == kNowhere) return kNowhere;
    row = at / code_cols_;
    col = at % code_cols_;
  }
  const std::size_t in_row = BitInRow(output_.written.codes, col, code_cols_, group_);
  std::size_t bit = code_places_ ? code_places_->Of(row, in_row / 8) * 8 + in_row % 8
                                 : row * row_bytes_ * 8 + in_row;
  if (output_.words_reversed) bit ^= 3 * 8;
  if (output_.nibbles_reversed) bit ^= 7 * 4;
  return bit;
}

std::size_t Places::Copies(std::size_t i, std::size_t j) const {
  if (!output_.written.expanded_scales) return 1;
  return scales_transposed_ ? std::min(block_cols_, cols_ - j * block_cols_)
                            : std::min(block_rows_, rows_ - i * block_rows_);
}

std::size_t Places::PlaceOf(std::size_t row, std::size_t col) const {
  if (scale_places_) return scale_places_->Of(row, col);
  const ScaleOrder order = output_.written.scales;
  const std::size_t place = ScaleOffset(order, row, col, scale_cols_);
  if (output_.scale_tiles == ScaleTiles::kAsLaidOut) return place;
  const NamedScaleOrder& o = Named(order);
  const std::size_t size = o.tile_rows * o.tile_cols, r = row % o.tile_rows, c = col % o.tile_cols;
  switch (output_.scale_tiles) {
    case ScaleTiles::kColumnByColumn:
      return (col / o.tile_cols * DivideUp(scale_rows_, o.tile_rows) + row / o.tile_rows) * size +
             place % size;
    case ScaleTiles::kRowByRow:
      return place / size * size + r * o.tile_cols + c;
    case ScaleTiles::kTransposed:
      return place / size * size + c * o.tile_rows + r;
    case ScaleTiles::kInnerTransposed:  // 128x4: place r % 32 * 16 + r / 32 * 4 + c
      return place / size * size + r % 32 * 16 + c * 4 + r / 32;
    case ScaleTiles::kAsLaidOut:
      break;
  }
  return place;
}

std::size_t Places::ScalePlace(std::size_t i, std::size_t j, std::size_t copy) const {
  std::size_t row = scales_transposed_ ? j : i;
  if (output_.written.expanded_scales) row *= scales_transposed_ ? block_cols_ : block_rows_;
  const auto moved = static_cast<std::ptrdiff_t>(row + copy) + output_.scale_row_shift;
  if (moved < 0 || moved >= static_cast<std::ptrdiff_t>(scale_rows_)) return kNowhere;
  std::size_t place = PlaceOf(static_cast<std::size_t>(moved), scales_transposed_ ? i : j);
  if (output_.swizzled_twice) {
    place = ScaleOffset(output_.written.scales, place / padded_cols_, place % padded_cols_,
                        padded_cols_);
  }
  return Shifted(place, output_.scale_shift, scales_);
}

std::uint8_t Places::CodeAt(std::span<const std::uint8_t> bytes, std::size_t bit) const {
  std::uint32_t word = bytes[bit / 8];
  if (bit % 8 + width_ > 8) word |= static_cast<std::uint32_t>(bytes[bit / 8 + 1]) << 8;
  return static_cast<std::uint8_t>(word >> bit % 8 & ((1u << width_) - 1));
}

void Places::PutCode(std::span<std::uint8_t> bytes, std::size_t bit, std::uint8_t code) const {
  const std::uint32_t mask = ((1u << width_) - 1) << bit % 8;
  const std::uint32_t value = static_cast<std::uint32_t>(code) << bit % 8 & mask;
  bytes[bit / 8] = static_cast<std::uint8_t>((bytes[bit / 8] & ~mask) | value);
  if (mask > 0xFFu) {
    bytes[bit / 8 + 1] =
        static_cast<std::uint8_t>((bytes[bit / 8 + 1] & ~(mask >> 8)) | value >> 8);
  }
}

}  // namespace fp4lab
