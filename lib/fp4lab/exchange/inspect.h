// Statistics of a stored matrix: from its bytes alone, and compared with the matrix that was
// quantized.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/stored.h"
#include "fp4lab/quantize/diagnostics/block_statistics.h"

namespace fp4lab {

struct StoredStatistics {
  // Number of blocks by scale byte; of scales that are numbers by the exponent field of binary32.
  std::array<std::size_t, 256> scales = {};
  std::size_t blocks = 0;
  std::size_t zero_scales = 0, nan_scales = 0, largest_scales = 0;  // numbers of blocks
  std::size_t elements = 0, zeros = 0, largest = 0;   // codes: all, +-0, of the largest magnitude
  float largest_value = 0.0f;                         // max |decoded value|, NaN ignored
  float smallest_scale = 0.0f, largest_scale = 0.0f;  // of the scales above 0
};
// Measures a stored matrix; values: StoredValues(stored, ...). Throws Error(where, ...) as Convert.
StoredStatistics MeasureStored(const StoredMatrix& stored, const Matrix<float>& values,
                               std::string_view where);

// The error against the input x, by the definitions of quantize/statistics.h. Elements that are not
// finite in x or in the values are counted in not_finite and left out of everything else.
struct StoredError {
  float amax = 0.0f;               // of x
  double underflow_percent = 0.0;  // of the non-zero elements of x: elements whose value is 0
  double clip_percent = 0.0;  // of all: |x| beyond its block's largest magnitude, and code at it
  double sqnr_db = 0.0;       // 10 log10(sum x^2 / sum (x - y)^2); Inf where y = x
  double mse = 0.0;
  float largest_error = 0.0f;
  std::size_t not_finite = 0;
  BlockErrors blocks = {};
};
StoredError MeasureError(const StoredMatrix& stored, MatrixView<const float> x,
                         const Matrix<float>& values, std::string_view where);

// A layout of scales with as many bytes as a matrix has, and the evidence for it.
struct ScaleCandidate {
  ScaleOrder order = ScaleOrder::kLinear;
  bool transposed = false, expanded = false;
  std::size_t padding = 0, padding_not_zero = 0;  // bytes that hold no scale
  std::size_t not_repeated = 0;  // expanded: scales that differ from the first of their tile
  bool stated = false;           // the candidate is the layout in stored.layout
};
// All candidates; empty if the tensor is one block.
std::vector<ScaleCandidate> ScaleCandidates(const StoredMatrix& stored);

// The error by block as an SVG of at most 128x128 cells. A cell shows the mean error of the blocks
// that it covers, from white for 0 to dark for the largest mean.
std::string ErrorMapSvg(const BlockErrors& errors, std::string_view title);

}  // namespace fp4lab
