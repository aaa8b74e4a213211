#include "fp4lab/quantize/behaviours.h"

#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An input: its first element, the other elements of the first block (the second element is half of
// `neighbours`), and the elements of the second block.
struct Case {
  std::string_view input;
  float element, neighbours, other_block;
};
constexpr std::array kCases = {
    Case{"0 among ordinary elements", 0.0f, 1.0f, 6.0f},
    Case{"-0 among ordinary elements", -0.0f, 1.0f, 6.0f},
    Case{"a negative element that rounds to 0", -0x1p-6f, 1.0f, 6.0f},
    Case{"a block of zeros", 0.0f, 0.0f, 6.0f},
    Case{"a block of -0", -0.0f, -0.0f, 6.0f},
    Case{"a tensor of zeros", 0.0f, 0.0f, 0.0f},
    Case{"a block of 2^-30 of the tensor's amax", 6 * 0x1p-30f, 6 * 0x1p-30f, 6.0f},
    Case{"a block of 2^-18 of the tensor's amax", 6 * 0x1p-18f, 6 * 0x1p-18f, 6.0f},
    Case{"a tensor of subnormals, 2^-140", 0x1p-140f, 0x1p-140f, 0x1p-140f},
    Case{"a tensor of FLT_MAX", 0x1.fffffep127f, 0x1.fffffep127f, 0x1.fffffep127f},
    Case{"an Inf element", kInf, 1.0f, 6.0f},
    Case{"a -Inf element", -kInf, 1.0f, 6.0f},
    Case{"a NaN element", kNan, 1.0f, 6.0f},
};

}  // namespace

std::vector<Behaviour> Behaviours(const Dialect& dialect) {
  const IeeeArithmetic ieee;
  const std::size_t rows =
      dialect.block_rows > 0 ? static_cast<std::size_t>(dialect.block_rows) : 1;
  const std::size_t cols =
      dialect.block_rows > 0 ? static_cast<std::size_t>(dialect.block_cols) : 16;
  const std::vector<std::uint16_t> random(rows * cols * 2, 0);  // stochastic rounding: truncation
  std::vector<Behaviour> behaviours;
  for (const Case& c : kCases) {
    Matrix<float> x(rows, cols * 2, c.neighbours);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t k = cols; k < 2 * cols; ++k) x(r, k) = c.other_block;
    }
    x(0, 0) = c.element;
    x(0, 1) = 0.5f * c.neighbours;
    const Quantized q = QuantizeAs(dialect, x.View(), {.random = random});
    behaviours.push_back({.input = c.input,
                          .scale = q.scales.empty() ? std::uint8_t{0} : q.scales[0],
                          .code = q.codes[0],
                          .neighbour = q.codes[1],
                          .other_scale = q.scales.empty() ? std::uint8_t{0} : q.scales[1]});
  }
  return behaviours;
}

}  // namespace fp4lab
