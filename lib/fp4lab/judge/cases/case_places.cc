// Families about the places of elements and scales, signs and shapes; the Hadamard transform; the
// control.
#include <algorithm>
#include <string>

#include "fp4lab/base/elementary.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/cases/case_builder.h"

namespace fp4lab {

// Matrix k holds at each place one of two codes, by bit k of the element's index. Over all matrices
// every place has a unique word of codes, so any exchange of two places shows in one of them.
void MakePositions(CaseBuilder& b) {
  const float amax = b.tensor_constant();
  const auto unit = static_cast<float>(b.UnitFor(1.0f, amax));
  const std::vector<float> values = b.ElementValues();
  const float ones = values.back() * unit, zeros = values[values.size() / 2] * unit;
  const std::size_t rows = std::max<std::size_t>(32, b.block_rows()), cols = 4 * b.block_cols();
  for (std::size_t bit = 0; (rows * cols - 1) >> bit != 0; ++bit) {
    Matrix<float> x(rows, cols);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = (i >> bit & 1u) != 0 ? -ones : zeros;
    }
    b.Add("bit-" + std::to_string(bit), std::move(x));
  }
  for (std::size_t i = 0; i < rows * cols; i += b.thorough() ? 37 : 397) {
    Matrix<float> x(rows, cols);
    x.values[i] = ones;
    b.Add("one-hot-" + std::to_string(i), std::move(x));
  }
}

namespace {

// The scale of block (r, c) is digit `digit` of the block's index, written in base (number of
// scales). Two digits identify a block, so any exchange of two scales shows in one of two matrices.
Matrix<float> ScaleDigits(const CaseBuilder& b, std::size_t grid_rows, std::size_t grid_cols,
                          std::size_t digit) {
  const float amax = b.tensor_constant();
  std::vector<float> block_amax;  // by digit
  if (b.has_exponent_scales()) {
    for (int k = -50; k <= 50; ++k) {
      block_amax.push_back(
          static_cast<float>(b.BlockAmaxFor(static_cast<float>(PowerOfTwo(k)), amax)));
    }
  } else {
    for (std::uint32_t code = 1; code <= MaxFiniteCode(FormatOf(b.dialect().scale)); ++code) {
      const float s = Decode(b.dialect().scale, code);
      if (s > b.dialect().scale_max) break;
      block_amax.push_back(static_cast<float>(b.BlockAmaxFor(s, amax)));
    }
  }
  Matrix<float> x(grid_rows * b.block_rows(), grid_cols * b.block_cols());
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      std::size_t index = r / b.block_rows() * grid_cols + c / b.block_cols();
      for (std::size_t k = 0; k < digit; ++k) index /= block_amax.size();
      const float top = block_amax[index % block_amax.size()];
      const std::size_t within = r % b.block_rows() * b.block_cols() + c % b.block_cols();
      x(r, c) = within % 3 == 0 ? top : within % 3 == 1 ? -0.5f * top : 0.25f * top;
    }
  }
  return x;
}

}  // namespace

void MakeDistinctScales(CaseBuilder& b) {
  const std::size_t grid_rows = b.block_rows() == 1 ? (b.thorough() ? 256 : 128) : 16;
  const std::size_t grid_cols = b.thorough() ? 16 : 8;
  for (std::size_t digit = 0; digit < 2; ++digit) {
    b.Add("digit-" + std::to_string(digit), ScaleDigits(b, grid_rows, grid_cols, digit));
  }
}

void MakeSigns(CaseBuilder& b) {
  const float amax = b.tensor_constant();
  const auto top = static_cast<float>(b.BlockAmaxFor(1.0f, amax));
  std::vector<BlockValues> blocks;
  for (int pattern = 0; pattern < 6; ++pattern) {
    BlockValues values(b.block_size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float magnitude = top * static_cast<float>(1 + i * 7 % 16) / 16.0f;
      const bool negative = pattern == 0   ? magnitude == top  // only the amax
                            : pattern == 1 ? magnitude != top  // all but the amax
                            : pattern == 2 ? true
                            : pattern == 3 ? i % 2 == 0
                            : pattern == 4 ? i < values.size() / 2
                                           : i % 4 >= 2;
      values[i] = negative ? -magnitude : magnitude;
    }
    blocks.push_back(std::move(values));
  }
  b.AddBlocks("", -amax, blocks);
}

namespace {

// Random values whose blocks have different scales; the largest is the element in the last row and
// column.
Matrix<float> WithTail(const CaseBuilder& b, std::size_t rows, std::size_t cols) {
  Matrix<float> x = b.Normal(rows, cols, static_cast<std::uint32_t>(rows * 1000 + cols), true);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      x(r, c) *= static_cast<float>(
          PowerOfTwo(static_cast<int>((r / b.block_rows() * 3 + c / b.block_cols() * 5) % 7) - 3));
    }
  }
  x(rows - 1, cols - 1) = -40.0f;
  return x;
}

void AddShapes(CaseBuilder& b, std::span<const std::pair<std::size_t, std::size_t>> shapes) {
  for (const auto& [rows, cols] : shapes) {
    b.Add(std::to_string(rows) + "x" + std::to_string(cols), WithTail(b, rows, cols));
  }
}

}  // namespace

void MakeTails(CaseBuilder& b) {
  const std::size_t n = b.block_cols();
  std::vector<std::pair<std::size_t, std::size_t>> shapes = {
      {1, 1},         {1, n - 1},         {1, n}, {1, n + 1}, {3, 2 * n - 1},
      {5, 2 * n + 1}, {n + 1, 3 * n - 1}, {n, 1}, {2, 8 * n}, {33, n + n / 2},
      {n - 1, 2 * n}};
  if (b.thorough()) {
    for (std::size_t cols = 2; cols < 3 * n; cols += 3) shapes.push_back({7, cols});
    for (std::size_t rows = 2; rows < 3 * n; rows += 5) shapes.push_back({rows, 2 * n});
  }
  AddShapes(b, shapes);
}

void MakeScalePadding(CaseBuilder& b) {
  const std::size_t n = b.block_cols();
  // Two tiles by two: of 128x4, or of 8x4 where 128 rows of scales would be 10 million elements.
  const std::size_t tile_rows = b.block_rows() < 128 ? 128 : 8;
  std::vector<std::pair<std::size_t, std::size_t>> shapes = {
      {1, 4 * n},   {31, 4 * n},  {33, 5 * n},
      {129, 3 * n}, {100, 5 * n}, {tile_rows * b.block_rows() + 1, 5 * n},
      {128, 6 * n}};
  if (b.thorough()) {
    for (std::size_t cols = 1; cols < 10; ++cols) shapes.push_back({160, cols * n});
  }
  AddShapes(b, shapes);
}

// BF16 values: single nonzero elements at every place of a group of 32, constant groups, and random
// values.
void MakeHadamard(CaseBuilder& b) {
  Matrix<float> x(64, 4 * b.block_cols());
  const std::size_t groups = x.values.size() / 32;
  for (std::size_t g = 0; g < groups; ++g) {
    float* group = x.values.data() + g * 32;
    if (g < 64) {
      group[g % 32] = g < 32 ? 1.0f : -3.0f;
    } else {
      for (std::size_t i = 0; i < 32; ++i) group[i] = (i >> g % 5 & 1u) != 0 ? -1.5f : 1.0f;
    }
  }
  b.Add("basis", std::move(x));
  b.Add("random", b.Normal(64, 8 * b.block_cols(), 1, true));
}

void MakeRandn(CaseBuilder& b) { b.Add("", b.Normal(128, 256, 1, false)); }

}  // namespace fp4lab
