// Computes the output of a kernel with its deviations block by block, so that a hypothesis can be
// tried on a few blocks of a large matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/judge/kernels/kernel_plan.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// Elements [r, r + rows) x [c, c + cols) of the matrix that is quantized: x transposed, rounded and
// transformed as the plan says. Without a rectangle: the whole matrix.
Matrix<float> InputOf(const InputPlan& plan, MatrixView<const float> x, std::size_t r,
                      std::size_t c, std::size_t rows, std::size_t cols);
Matrix<float> InputOf(const InputPlan& plan, MatrixView<const float> x);

// The tensor scales' amaxes of the kernel, as it stores them: found in x, or taken from the
// options.
std::vector<float> AmaxOf(const KernelPlan& plan, MatrixView<const float> x,
                          const DialectOptions& options);

struct BlockBytes {
  std::size_t row = 0, col = 0, rows = 0, cols = 0;  // the elements that it covers
  std::uint32_t scale = 0;          // as it is stored: a byte, or the bits of a number
  std::vector<std::uint8_t> codes;  // (rows, cols)
  BlockNumbers numbers;             // the block's intermediate numbers
};

// The result of all blocks.
struct Evaluated {
  std::size_t rows = 0, cols = 0, scale_rows = 0, scale_cols = 0;
  std::vector<std::uint8_t> codes = {};    // (rows, cols)
  std::vector<std::uint32_t> scales = {};  // (scale_rows, scale_cols), as in BlockBytes
};

// Fewer blocks than this (some ms of work) are evaluated by one thread: on a busy machine, threads
// would wait for each other longer than that.
inline constexpr std::size_t kBlocksWorthThreads = 1 << 14;

class Evaluator {
 public:
  // x and random bits must outlive it. amax: AmaxOf(plan, x, options).
  Evaluator(const KernelPlan& plan, MatrixView<const float> x, std::vector<float> amax,
            std::span<const std::uint16_t> random);

  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  const BlockGrid& grid() const { return grid_; }
  const std::vector<float>& amax() const { return amax_; }

  void Evaluate(std::size_t i, std::size_t j, BlockBytes* block) const;
  Evaluated EvaluateAll() const;

 private:
  MatrixView<const float> Elements(std::size_t r, std::size_t c, std::size_t rows, std::size_t cols,
                                   Matrix<float>* copy) const;
  // The block whose bytes are written at the place of block (i, j).
  std::pair<std::size_t, std::size_t> Source(std::size_t i, std::size_t j) const;
  // Evaluates a block before parts of the output are moved or left unwritten.
  void EvaluateInPlace(std::size_t i, std::size_t j, BlockBytes* block) const;
  std::size_t RandomIndex(std::size_t index) const;
  float BlockAmax(std::size_t i, std::size_t j, MatrixView<const float> block) const;
  // S and D of block (i, j), for its scale or for its factor.
  TensorScale TensorScaleForScale(std::size_t i, std::size_t j) const;
  TensorScale TensorScaleForFactor(std::size_t i, std::size_t j) const;
  TensorScale TensorScaleAt(std::size_t i, std::size_t j, const std::optional<float>& other) const;
  BlockNumbers NumbersOf(std::size_t i, std::size_t j, MatrixView<const float> block) const;
  // The factor of block (i, j) where another block's is taken for its own.
  float FactorOfOther(std::size_t i, std::size_t j) const;
  std::uint8_t CodeAt(float x, const BlockNumbers& numbers, const TensorScale& tensor,
                      std::size_t index) const;
  void FillUnwritten(std::uint32_t mask, BlockBytes* block) const;
  void Fill(BlockBytes* block) const;

  // The scale of a block as it is stored.
  std::uint32_t StoredScaleOf(const BlockNumbers& numbers) const;

  KernelPlan plan_;
  ScaleType scale_type_;
  MatrixView<const float> x_;
  bool plain_input_;  // the quantized matrix is x or its transpose, unchanged
  std::size_t rows_, cols_;
  BlockGrid grid_;
  std::vector<float> amax_;
  std::span<const std::uint16_t> random_;
  float largest_;  // element of the format
};

}  // namespace fp4lab
