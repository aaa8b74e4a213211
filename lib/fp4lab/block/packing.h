// The order of codes in the bytes of kernels and files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/base/divide_up.h"

namespace fp4lab {

// Rows of codes are packed one by one; a row fills whole bytes, the unused high part of the last
// byte is 0.
enum class CodeOrder : std::uint8_t {
  kLowFirst,  // 4-bit: even column in the low nibble (Transformer Engine, torchao, OCP MX, CUTLASS)
  kHighFirst,    // 4-bit: even column in the high nibble (some checkpoints: sglang#23625)
  kSplitHalves,  // 4-bit: within a block of B columns, column j low and column j + B/2 high (ggml)
  kBytes,        // one code a byte (FP8; FP6 and FP4 "unpacked")
  kDense6        // 6-bit: four codes in three bytes, first code lowest (safetensors F6_*)
};

struct NamedCodeOrder {
  CodeOrder order;
  std::string_view name;
};
inline constexpr std::array kCodeOrders = {
    NamedCodeOrder{CodeOrder::kLowFirst, "low-first"},
    NamedCodeOrder{CodeOrder::kHighFirst, "high-first"},
    NamedCodeOrder{CodeOrder::kSplitHalves, "split-halves"},
    NamedCodeOrder{CodeOrder::kBytes, "bytes"},
    NamedCodeOrder{CodeOrder::kDense6, "dense6"},
};
constexpr std::string_view Name(CodeOrder order) {
  return kCodeOrders[static_cast<std::size_t>(order)].name;
}
constexpr std::optional<CodeOrder> FindCodeOrder(std::string_view name) {
  for (const NamedCodeOrder& o : kCodeOrders) {
    if (o.name == name) return o.order;
  }
  return std::nullopt;
}

// Bytes of one row of `cols` codes. kSplitHalves needs `block` (even): a last shorter block of n
// columns takes ceil(n / 2) bytes and splits at ceil(n / 2).
constexpr std::size_t PackedRowBytes(CodeOrder order, std::size_t cols, std::size_t block = 16) {
  switch (order) {
    case CodeOrder::kLowFirst:
    case CodeOrder::kHighFirst:
      return (cols + 1) / 2;
    case CodeOrder::kSplitHalves:
      return cols / block * (block / 2) + (cols % block + 1) / 2;
    case CodeOrder::kBytes:
      return cols;
    case CodeOrder::kDense6:
      return DivideUp(cols * 6, 8);
  }
  return 0;
}

// codes: one a byte, row-major (rows, cols). `block`: columns of a block, for kSplitHalves.
std::vector<std::uint8_t> PackCodes(std::span<const std::uint8_t> codes, std::size_t rows,
                                    std::size_t cols, CodeOrder order, std::size_t block = 16);

// Inverse of PackCodes. packed.size() must be rows * PackedRowBytes(order, cols, block).
std::vector<std::uint8_t> UnpackCodes(std::span<const std::uint8_t> packed, std::size_t rows,
                                      std::size_t cols, CodeOrder order, std::size_t block = 16);

// The packed codes of the transposed matrix, (cols, rows) packed along rows in the same order, from
// packed codes (rows, cols): nibbles move, no code changes.
std::vector<std::uint8_t> TransposedCodes(std::span<const std::uint8_t> packed, std::size_t rows,
                                          std::size_t cols, CodeOrder order,
                                          std::size_t block = 16);

// The transpose, (cols, rows), of a (rows, cols) matrix of bytes: for unpacked codes.
std::vector<std::uint8_t> TransposedBytes(std::span<const std::uint8_t> bytes, std::size_t rows,
                                          std::size_t cols);

}  // namespace fp4lab
