#include "fp4lab/block/packing.h"

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

// The position of the codes of a row. Bit(c): the offset of code c's lowest bit from the lowest bit
// of the row's first byte.
struct Place {
  CodeOrder order;
  std::size_t cols, block;

  std::size_t Bit(std::size_t c) const {
    switch (order) {
      case CodeOrder::kLowFirst:
        return c * 4;
      case CodeOrder::kHighFirst:
        return c / 2 * 8 + (c % 2 == 0 ? 4 : 0);
      case CodeOrder::kSplitHalves: {
        const std::size_t start = c / block * block, j = c - start;
        const std::size_t width = cols - start < block ? cols - start : block;
        const std::size_t half = (width + 1) / 2;
        return start * 4 + (j < half ? j * 8 : (j - half) * 8 + 4);
      }
      case CodeOrder::kBytes:
        return c * 8;
      case CodeOrder::kDense6:
        return c * 6;
    }
    return 0;
  }
  std::uint32_t Mask() const {
    return order == CodeOrder::kBytes ? 0xFFu : order == CodeOrder::kDense6 ? 0x3Fu : 0xFu;
  }
  // Code c of the row that begins at `row`; only 6-bit codes reach into the next byte.
  std::uint8_t Get(const std::uint8_t* row, std::size_t c) const {
    const std::size_t bit = Bit(c);
    std::uint32_t word = row[bit / 8];
    if (order == CodeOrder::kDense6 && bit % 8 > 2) {
      word |= static_cast<std::uint32_t>(row[bit / 8 + 1]) << 8;
    }
    return static_cast<std::uint8_t>((word >> bit % 8) & Mask());
  }
  // Writes into a row of zeros.
  void Put(std::uint8_t* row, std::size_t c, std::uint8_t code) const {
    const std::size_t bit = Bit(c);
    const std::uint32_t shifted = (code & Mask()) << bit % 8;
    row[bit / 8] = static_cast<std::uint8_t>(row[bit / 8] | shifted);
    if (shifted > 0xFFu) {
      row[bit / 8 + 1] = static_cast<std::uint8_t>(row[bit / 8 + 1] | shifted >> 8);
    }
  }
};

bool PacksPairs(CodeOrder order) {
  return order == CodeOrder::kLowFirst || order == CodeOrder::kHighFirst;
}

// A row of kLowFirst or kHighFirst, the common orders, by loops that compilers vectorise. `even`,
// `odd`: the shifts of the codes of even and of odd columns within a byte.
void PackPairs(const std::uint8_t* codes, std::size_t cols, int even, int odd,
               std::uint8_t* packed) {
  for (std::size_t i = 0; i < cols / 2; ++i) {
    packed[i] =
        static_cast<std::uint8_t>((codes[2 * i] & 0xF) << even | (codes[2 * i + 1] & 0xF) << odd);
  }
  if (cols % 2 != 0) {
    packed[cols / 2] = static_cast<std::uint8_t>((codes[cols - 1] & 0xF) << even);
  }
}

void UnpackPairs(const std::uint8_t* packed, std::size_t cols, int even, int odd,
                 std::uint8_t* codes) {
  for (std::size_t i = 0; i < cols / 2; ++i) {
    codes[2 * i] = static_cast<std::uint8_t>(packed[i] >> even & 0xF);
    codes[2 * i + 1] = static_cast<std::uint8_t>(packed[i] >> odd & 0xF);
  }
  if (cols % 2 != 0) codes[cols - 1] = static_cast<std::uint8_t>(packed[cols / 2] >> even & 0xF);
}

void CheckBlock(CodeOrder order, std::size_t block) {
  Expects(order != CodeOrder::kSplitHalves || (block > 0 && block % 2 == 0),
          "split halves need blocks of an even number of columns");
}

}  // namespace

std::vector<std::uint8_t> PackCodes(std::span<const std::uint8_t> codes, std::size_t rows,
                                    std::size_t cols, CodeOrder order, std::size_t block) {
  CheckBlock(order, block);
  Expects(codes.size() == rows * cols, "one code per element");
  const std::size_t row_bytes = PackedRowBytes(order, cols, block);
  const Place place{order, cols, block};
  const int even = order == CodeOrder::kHighFirst ? 4 : 0;  // bits below the even columns
  std::vector<std::uint8_t> packed(rows * row_bytes, 0);
  for (std::size_t r = 0; r < rows; ++r) {
    std::uint8_t* row = packed.data() + r * row_bytes;
    if (PacksPairs(order)) {
      PackPairs(codes.data() + r * cols, cols, even, 4 - even, row);
      continue;
    }
    for (std::size_t c = 0; c < cols; ++c) place.Put(row, c, codes[r * cols + c]);
  }
  return packed;
}

std::vector<std::uint8_t> UnpackCodes(std::span<const std::uint8_t> packed, std::size_t rows,
                                      std::size_t cols, CodeOrder order, std::size_t block) {
  CheckBlock(order, block);
  const std::size_t row_bytes = PackedRowBytes(order, cols, block);
  Expects(packed.size() == rows * row_bytes, "as many bytes as the rows take");
  const Place place{order, cols, block};
  const int even = order == CodeOrder::kHighFirst ? 4 : 0;  // bits below the even columns
  std::vector<std::uint8_t> codes(rows * cols);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::uint8_t* row = packed.data() + r * row_bytes;
    if (PacksPairs(order)) {
      UnpackPairs(row, cols, even, 4 - even, codes.data() + r * cols);
      continue;
    }
    for (std::size_t c = 0; c < cols; ++c) codes[r * cols + c] = place.Get(row, c);
  }
  return codes;
}

std::vector<std::uint8_t> TransposedCodes(std::span<const std::uint8_t> packed, std::size_t rows,
                                          std::size_t cols, CodeOrder order, std::size_t block) {
  CheckBlock(order, block);
  const std::size_t from_bytes = PackedRowBytes(order, cols, block);
  const std::size_t to_bytes = PackedRowBytes(order, rows, block);
  Expects(packed.size() == rows * from_bytes, "as many bytes as the rows take");
  const Place from{order, cols, block}, to{order, rows, block};
  std::vector<std::uint8_t> transposed(cols * to_bytes, 0);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::uint8_t* row = packed.data() + r * from_bytes;
    for (std::size_t c = 0; c < cols; ++c) {
      to.Put(transposed.data() + c * to_bytes, r, from.Get(row, c));
    }
  }
  return transposed;
}

std::vector<std::uint8_t> TransposedBytes(std::span<const std::uint8_t> bytes, std::size_t rows,
                                          std::size_t cols) {
  Expects(bytes.size() == rows * cols, "one byte per element");
  std::vector<std::uint8_t> transposed(bytes.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) transposed[c * rows + r] = bytes[r * cols + c];
  }
  return transposed;
}

}  // namespace fp4lab
