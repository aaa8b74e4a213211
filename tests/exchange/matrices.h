// Quantized matrices with arbitrary contents, for tests of how they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/exchange/stored.h"

namespace fp4lab {

// Every shape of block that a row of the table of dialects has.
inline std::vector<Dialect> BlockShapes() {
  const auto mx = [](const char* name, FormatId element, int rows) {
    return Dialect{.name = name,
                   .element = element,
                   .scale = FormatId::kE8M0,
                   .block_rows = rows,
                   .block_cols = 32,
                   .tensor_scale = TensorScaleRule::kNone,
                   .block_scale = BlockScale::kFloor};
  };
  return {{.name = "nvfp4"},
          {.name = "nvfp4.2d", .block_rows = 16},
          {.name = "nvfp4.rows", .row_scaled = true},
          mx("mxfp4", FormatId::kE2M1, 1),
          mx("mxfp4.2d", FormatId::kE2M1, 32),
          mx("mxfp6", FormatId::kE3M2, 1),
          mx("mxfp8", FormatId::kE4M3, 1),
          {.name = "fp8",
           .element = FormatId::kE5M2,
           .block_rows = 0,
           .block_cols = 0,
           .tensor_scale = TensorScaleRule::kTensorFp8}};
}

inline Quantized AnyQuantized(const Dialect& d, std::size_t rows, std::size_t cols,
                              std::uint64_t seed = 7) {
  Quantized q{.rows = rows, .cols = cols};
  const RandomStream random{seed, 0};
  const std::uint32_t mask = (1u << FormatOf(d.element).bits) - 1;
  for (std::size_t i = 0; i < rows * cols; ++i) {
    q.codes.push_back(static_cast<std::uint8_t>(random.Bits16(i) & mask));
  }
  if (d.block_rows > 0) {
    const auto block_rows = static_cast<std::size_t>(d.block_rows);
    const auto block_cols = static_cast<std::size_t>(d.block_cols);
    q.scale_rows = (rows + block_rows - 1) / block_rows;
    q.scale_cols = (cols + block_cols - 1) / block_cols;
    for (std::size_t i = 0; i < q.scale_rows * q.scale_cols; ++i) {
      q.scales.push_back(static_cast<std::uint8_t>(random.Bits16(rows * cols + i) % 0x7F));
    }
  }
  if (d.tensor_scale != TensorScaleRule::kNone) {
    for (std::size_t r = 0; r < (d.row_scaled ? rows : 1); ++r) {
      q.amax.push_back(1.0f + static_cast<float>(random.Bits16(r)) / 4096.0f);
    }
  }
  return q;
}

// Every layout that can hold the codes of the dialect.
inline std::vector<StorageLayout> Layouts(const Dialect& d) {
  const int bits = FormatOf(d.element).bits;
  std::vector<StorageLayout> layouts;
  for (const NamedCodeOrder& codes : kCodeOrders) {
    const int needed = codes.order == CodeOrder::kDense6 ? 6 : 4;
    if (codes.order != CodeOrder::kBytes && bits != needed) continue;
    for (const NamedScaleOrder& scales : kScaleOrders) {
      for (int flags = 0; flags < 4; ++flags) {
        layouts.push_back({codes.order, scales.order, (flags & 1) != 0, (flags & 2) != 0,
                           TensorScaleConvention::kAmax});
      }
    }
  }
  return layouts;
}

}  // namespace fp4lab
