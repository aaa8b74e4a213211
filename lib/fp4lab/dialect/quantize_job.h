// One call of QuantizeInto for any dialect: what its kernels share, and a thread's arrays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp4lab/base/aligned.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/block_tables.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/outputs.h"
#include "fp4lab/dialect/quantize.h"

namespace fp4lab {

// One call. Its work is cut into groups of bands (the rows of a block) and chunks of columns (whole
// blocks); neither depends on the number of threads.
struct DialectJob {
  static constexpr std::size_t kSpare = 64;  // room for a vector behind an array

  const Dialect& dialect;
  MatrixView<const float> x;
  const DialectOptions& options;
  const std::vector<float>& amax;
  const QuantizeOutputs& out;
  BlockGrid grid;
  ElementConstants element;
  ScaleTables scale;
  std::array<float, 256> values = {};          // of the element's codes
  bool is_four_bits = false;                   // the element's codes
  std::array<std::uint8_t, 16> integers = {};  // of those: 12 + 2 * value
  std::size_t chunk = 0;                       // columns
  std::size_t group = 0;                       // bands
  bool joins_rows = false;                     // the bands of a group make one

  std::size_t BlocksOfChunk() const { return chunk / grid.block_cols; }
  // Numbers of a line of blocks, with a vector to spare.
  std::size_t LineStride() const { return BlocksOfChunk() + kSpare; }
  // Blocks are no whole vectors on some target, which wants their numbers by column, too.
  bool HasNumbersByColumn() const { return grid.block_cols % 16 != 0; }
  // Something is made of a row's codes.
  bool ReadsCodes() const {
    return out.values.data != nullptr || out.integers.data != nullptr ||
           dialect.unbias != Unbias::kNone;
  }
  std::size_t TileStride() const { return (chunk + 15) / 16 * 16; }
  std::size_t TileSize() const { return group * grid.block_rows * TileStride() + kSpare; }
};

// The arguments live as long as the job.
DialectJob JobOf(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                 const std::vector<float>& amax, const QuantizeOutputs& out);

// The numbers of a band's blocks under one candidate scale each: four over six has two.
struct BandNumbers {
  std::vector<float> scale, factor;  // by block
  std::vector<std::uint8_t> byte;
  std::vector<float> column_scale, column_factor;  // by column
  std::vector<float> errors;                       // by line and block, of four over six

  explicit BandNumbers(const DialectJob& job)
      : scale(job.LineStride()),
        factor(job.LineStride()),
        byte(job.LineStride()),
        column_scale(job.HasNumbersByColumn() ? job.chunk + DialectJob::kSpare : 0),
        column_factor(column_scale),
        errors(job.dialect.adaptive == Adaptive::kNo ? 0 : job.grid.block_rows * job.LineStride()) {
  }
};

// A thread's arrays.
struct DialectBuffers {
  FloatBuffer tile;                       // a group's part of a chunk, rows without gaps
  FloatBuffer values;                     // the same of its values, where those lie otherwise
  std::vector<std::int32_t> maxima;       // bits of magnitudes, by block or column
  std::vector<float> amax, scale_before;  // by block
  std::vector<float> line;                // errors of a row's elements
  std::vector<std::uint8_t> codes;        // of a row
  std::vector<std::uint16_t> fields;      // of a row's random bits
  std::vector<std::uint32_t> random;      // the same, one an element; zeros where none are wanted
  BandNumbers six;
  std::optional<BandNumbers> four;

  explicit DialectBuffers(const DialectJob& job)
      : tile(HasUnitRows(job.x) ? 0 : job.TileSize()),
        values(job.out.values.data == nullptr || HasUnitRows(job.out.values) ? 0 : job.TileSize()),
        maxima(job.HasNumbersByColumn() ? job.chunk + DialectJob::kSpare : job.LineStride()),
        amax(job.LineStride()),
        scale_before(job.LineStride()),
        line(job.dialect.adaptive == Adaptive::kNo ? 0 : job.chunk + DialectJob::kSpare),
        codes(job.chunk + DialectJob::kSpare),
        fields(IsStochastic(job.dialect) ? 2 * job.chunk + 512 : 0),
        random(job.chunk + DialectJob::kSpare),
        six(job),
        four(job.dialect.adaptive == Adaptive::kNo ? std::nullopt : std::optional(six)) {}
};

}  // namespace fp4lab
