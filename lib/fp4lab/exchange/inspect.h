// What can be said of a stored matrix: from its bytes alone, and beside the matrix that it came
// from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/stored.h"

namespace fp4lab {

struct StoredStatistics {
  std::array<std::size_t, 256> scales = {};  // how many blocks have this scale byte
  std::size_t blocks = 0;
  std::size_t zero_scales = 0, nan_scales = 0, largest_scales = 0;  // blocks
  std::size_t elements = 0, zeros = 0, largest = 0;   // codes: +-0, and of the largest magnitude
  float largest_value = 0.0f;                         // max |decoded value|, NaN left out
  float smallest_scale = 0.0f, largest_scale = 0.0f;  // of the scales above 0
};
// values: StoredValues(stored, ...).
StoredStatistics MeasureStored(const StoredMatrix& stored, const Matrix<float>& values,
                               std::string_view where);

// Beside the input x. Elements that are not finite in x or in the values are counted and left out.
struct StoredError {
  float amax = 0.0f;               // of x
  double underflow_percent = 0.0;  // of the non-zero elements of x: those whose value is 0
  double clip_percent = 0.0;  // of all: |x| beyond the largest magnitude of its block, code at it
  double sqnr_db = 0.0;       // 10 log10(sum x^2 / sum (x - y)^2); Inf where y = x
  double mse = 0.0;
  float largest_error = 0.0f;
  std::size_t not_finite = 0;
  std::size_t grid_rows = 0, grid_cols = 0;
  std::vector<double> block_error =
      {};  // a block's sqrt(sum (x - y)^2 / sum x^2); 0 for a zero block
};
StoredError MeasureError(const StoredMatrix& stored, MatrixView<const float> x,
                         const Matrix<float>& values, std::string_view where);

// The arrangements of scales that have as many bytes as these, with what speaks for each.
struct ScaleCandidate {
  ScaleOrder order = ScaleOrder::kLinear;
  bool transposed = false, expanded = false;
  std::size_t padding = 0, padding_not_zero = 0;  // bytes beside the scales
  std::size_t not_repeated = 0;  // expanded: scales that differ from the first of their tile
  bool stated = false;           // it is the one of stored.layout
};
std::vector<ScaleCandidate> ScaleCandidates(const StoredMatrix& stored);

// The per-block error as an SVG of at most 128x128 cells (each the mean of the blocks that it
// covers), light to dark from 0 to the largest.
std::string ErrorMapSvg(const StoredError& error, std::string_view title);

}  // namespace fp4lab
