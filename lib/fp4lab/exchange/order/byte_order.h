// Orders of bytes that padding, a reshape and a permutation of axes describe: vendors' shuffles of
// scales and codes, and a user's own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

// A (rows, cols) grid of bytes is padded at its end to multiples of pad_rows and pad_cols, reshaped
// to `axes` in row-major order, and stored with its axes in the order `transpose`: axis k of the
// stored array is axis transpose[k].
struct ByteOrder {
  enum class Of : std::uint8_t { kNumber, kRows, kCols };
  // The size of an axis: `number`, or the padded rows or columns divided by it.
  struct Axis {
    Of of = Of::kNumber;
    std::size_t number = 1;
  };
  static constexpr std::size_t kMostAxes = 8;

  std::string_view name = "the given order";
  std::string_view source = {};  // the code that writes it
  std::size_t pad_rows = 1, pad_cols = 1;
  std::size_t count = 0;  // of axes; 0: the padded grid as it is
  std::array<Axis, kMostAxes> axes = {};
  std::array<std::size_t, kMostAxes> transpose = {};
};

// The orders that code bases write, of scales and of the bytes of packed codes.
std::span<const ByteOrder> ScaleByteOrders();
std::span<const ByteOrder> CodeByteOrders();
const ByteOrder* FindByteOrder(std::span<const ByteOrder> orders, std::string_view name);

// Reads {"pad": [256, 8], "reshape": ["R/32", 2, 16, "C/8", 2, 4], "transpose": [0, 3, 5, 2, 4,
// 1]}. R and C are the padded rows and columns. Every key may be absent; "transpose" needs
// "reshape". Throws Error, which names the key.
ByteOrder ReadByteOrder(const Json& json, const std::string& where);

// The places of the bytes of one grid.
class BytePlaces {
 public:
  // Throws Error(where, ...) if the axes do not hold the padded grid.
  BytePlaces(const ByteOrder& order, std::size_t rows, std::size_t cols, std::string_view where);

  std::size_t bytes() const { return bytes_; }  // padding included
  std::size_t Of(std::size_t row, std::size_t col) const;

 private:
  std::size_t padded_cols_, bytes_, count_;
  std::array<std::size_t, ByteOrder::kMostAxes> sizes_ = {}, strides_ = {};
};

// The bytes of a (rows, cols) grid, row by row, from an array in this order. Throws Error(where,
// ...), which states the right size, if the array has another one.
std::vector<std::uint8_t> FromByteOrder(std::span<const std::uint8_t> bytes, const ByteOrder& order,
                                        std::size_t rows, std::size_t cols, std::string_view where);

}  // namespace fp4lab
