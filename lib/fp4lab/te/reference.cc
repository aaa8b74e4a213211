// The scalar definition of TeQuantize, and what both share.
#include <algorithm>
#include <bit>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/quantize/replay.h"
#include "fp4lab/te/quantize.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

Matrix<float> Floats(const TeMatrix& x) {
  Matrix<float> out(x.rows, x.cols);
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] =
        x.fp32 != nullptr ? x.fp32[i] : std::bit_cast<float>(std::uint32_t{x.bf16[i]} << 16);
  }
  return out;
}

float LargestOf(const Matrix<float>& x) {
  float largest = 0.0f;
  for (const float v : x.values) {
    if (std::fabs(v) > largest) largest = std::fabs(v);  // false for NaN
  }
  return largest;
}

// x: the lines of the output.
void WriteOutput(const TeQuantization& call, const TeLaunch& launch, bool columnwise,
                 MatrixView<const float> x, const TeOutput& out) {
  const Dialect& dialect = TeDialect(call, columnwise);
  const Quantized q = call.stochastic
                          ? QuantizeReplayed(dialect, x, {out.amax}, RandomForm::kTe8,
                                             TeWords(launch, columnwise, call.seed, call.offset))
                          : reference::QuantizeAs(dialect, x, {.amax = {out.amax}});
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; c += 2) {
      const std::uint8_t* const pair = &q.codes[r * x.cols + c];
      out.codes[(r * x.cols + c) / 2] = static_cast<std::uint8_t>(pair[0] | pair[1] << 4);
    }
    const std::size_t scale_row = call.square ? r / 16 : r;
    for (std::size_t c = 0; c < q.scale_cols; ++c) {
      out.scales[r * out.scale_stride + c] = q.scales[scale_row * q.scale_cols + c];
    }
  }
}

}  // namespace

const Dialect& TeDialect(const TeQuantization& call, bool columnwise) {
  static const Dialect* const kLines = FindDialect("nvfp4.te");
  static const Dialect* const kSquare = FindDialect("nvfp4.te.2d");
  static const Dialect* const kTransformed = FindDialect("nvfp4.te.rht-columns");
  if (call.square) return *kSquare;
  return call.hadamard && columnwise ? *kTransformed : *kLines;
}

TeLaunch TeLaunchOf(const TeMatrix& x, const TeQuantization& call, bool columnwise) {
  TeLaunch launch{.rows = x.rows,
                  .cols = x.cols,
                  .rowwise = call.rows.codes != nullptr,
                  .columnwise = call.columns.codes != nullptr};
  if (call.hadamard) {
    launch.rowwise = !columnwise;
    launch.columnwise = columnwise;
  }
  const bool optimized = x.bf16 != nullptr && x.rows % 32 == 0 && x.cols % 32 == 0;
  launch.kernel = call.hadamard && columnwise   ? TeKernel::kHadamardColumns
                  : optimized && call.square    ? TeKernel::kOpt2d
                  : optimized && launch.rowwise ? TeKernel::kTuned
                                                : TeKernel::kGeneric;
  return launch;
}

void CheckTeQuantization(const TeMatrix& x, const TeQuantization& call) {
  Expects((x.bf16 != nullptr) != (x.fp32 != nullptr) || x.rows * x.cols == 0, "one matrix");
  Expects(x.rows % 16 == 0 && x.cols % 16 == 0, "rows and columns are multiples of 16");
  Expects(!call.hadamard || x.fp32 == nullptr, "the Hadamard transform takes BF16");
  Expects(!call.square || !call.hadamard, "16x16 blocks take no RHT");
  Expects(call.rows.codes == nullptr || call.rows.scale_stride >= x.cols / 16, "room for scales");
  Expects(call.columns.codes == nullptr || call.columns.scale_stride >= x.rows / 16,
          "room for scales");
}

namespace reference {

void TeQuantize(const TeMatrix& x, const TeQuantization& call) {
  const IeeeArithmetic ieee;
  CheckTeQuantization(x, call);
  if (x.rows * x.cols == 0) return;
  const Matrix<float> values = Floats(x);
  if (call.rows.codes != nullptr) {
    WriteOutput(call, TeLaunchOf(x, call, false), false, values.View(), call.rows);
  }
  if (call.columns.codes == nullptr) return;
  Matrix<float> lines(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) lines(c, r) = values(r, c);
  }
  if (call.hadamard) reference::RandomHadamard(lines.View(), 16, call.sign_mask, lines.View());
  WriteOutput(call, TeLaunchOf(x, call, true), true, lines.View(), call.columns);
}

void TeAmaxes(const TeMatrix& x, std::uint32_t sign_mask, float* amax, float* transformed) {
  const IeeeArithmetic ieee;
  const Matrix<float> values = Floats(x);
  if (amax != nullptr) *amax = LargestOf(values);
  if (transformed == nullptr) return;
  Matrix<float> lines(x.cols, x.rows);
  reference::RandomHadamard(values.View().Transposed(), 16, sign_mask, lines.View());
  *transformed = LargestOf(lines);
}

}  // namespace reference
}  // namespace fp4lab
