// TraceAs: the numbers of one element, and their distances from the nearest rounding boundaries.
#include <algorithm>
#include <bit>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

constexpr double kFar = 0x1p31;

double Steps(std::uint32_t a, std::uint32_t b) { return a > b ? a - b : b - a; }
std::uint32_t BitsOfMagnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu; }

// The number of binary32 steps between |v| and the nearest boundary of a format of at most 8 bits.
double StepsToBoundary(const Format& f, float v, bool grid_values) {
  if (v != v) return kFar;
  double least = kFar;
  for (std::uint32_t code = 0; code < MaxFiniteCode(f); ++code) {
    const float low = Decode(f, code), high = Decode(f, code + 1);
    const float boundary = grid_values ? high : 0.5f * (low + high);
    least = std::min(least, Steps(BitsOfMagnitude(v), BitsOfMagnitude(boundary)));
  }
  return least;
}

// The number of binary32 steps from b, up or down, to the nearest amax with another E8M0 byte,
// found by bisection, because the byte never falls as b grows.
double StepsToOtherExponent(const Dialect& d, float b) {
  const std::uint32_t at = BitsOfMagnitude(b);
  if (b != b) return kFar;
  const auto byte = [&](std::uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    return ScaleByteOf(d, value, ScaleBefore(d, value, {}));
  };
  const std::uint8_t here = byte(at);
  double least = kFar;
  if (std::uint32_t same = at, other = 0x7F800000u; byte(other) != here) {
    while (other - same > 1)
      (byte(same + (other - same) / 2) == here ? same : other) = same + (other - same) / 2;
    least = other - at;
  }
  // The scales of qwix are 1 below 6 * 2^-63.
  const bool is_qwix =
      d.block_scale == BlockScale::kOverflowAware || d.block_scale == BlockScale::kCeilLog2;
  const std::uint32_t lowest = is_qwix ? BitsOfMagnitude(MaxFinite(d.element) * kTiny) : 1u;
  if (std::uint32_t same = at, other = lowest; at > lowest && byte(other) != here) {
    while (same - other > 1)
      (byte(other + (same - other) / 2) == here ? same : other) = other + (same - other) / 2;
    least = std::min(least, Steps(at, other));
  }
  return least;
}

double ScaleSteps(const Dialect& d, const BlockNumbers& n) {
  if (d.block_scale == BlockScale::kOneBlock) return kFar;
  if (d.scale_encoding == ScaleEncoding::kBinary32) return kFar;  // t is not rounded
  if (d.scale_encoding == ScaleEncoding::kExponent) return StepsToOtherExponent(d, n.amax);
  return StepsToBoundary(FormatOf(d.scale), n.scale_before, false);
}

double CodeSteps(const Dialect& d, float v) {
  const bool grid_values = d.rounding == ElementRounding::kTowardZero || IsStochastic(d);
  return StepsToBoundary(FormatOf(d.element), v, grid_values);
}

}  // namespace

Trace TraceAs(const Dialect& dialect, MatrixView<const float> x, std::size_t row, std::size_t col,
              const DialectOptions& options) {
  const IeeeArithmetic ieee;
  CheckOptions(dialect, x, options);
  Expects(row < x.rows && col < x.cols, "the element lies in the matrix");
  const BlockGrid grid(dialect, x.rows, x.cols);
  const std::vector<float> amax = TensorAmaxes(dialect, x, options);
  const TensorScale tensor = TensorScaleOfRow(dialect, amax, row);
  const ChosenBlock chosen =
      ChooseBlock(dialect, tensor, grid.Block(x, row / grid.block_rows, col / grid.block_cols));
  const BlockNumbers& n = chosen.numbers;
  const float value = x(row, col);
  const float scaled = Scaled(dialect, value, n.factor, tensor);
  const std::uint32_t bits = RandomBitsAt(dialect, options, row * x.cols + col, x.rows, x.cols);
  return {.row = row,
          .col = col,
          .amax = tensor.amax,
          .encode = tensor.encode,
          .decode = tensor.decode,
          .block_amax = n.amax,
          .scale_before = n.scale_before,
          .scale_byte = n.byte,
          .scale = n.scale,
          .factor = n.factor,
          .divides = HasDivisor(dialect.factor),
          .maps_to_four = chosen.maps_to_four,
          .x = value,
          .scaled = scaled,
          .code = CodeOf(dialect, value, n.scale, scaled, bits),
          .scale_tie_ulps = ScaleSteps(dialect, n),
          .code_tie_ulps = CodeSteps(dialect, scaled)};
}

}  // namespace fp4lab
