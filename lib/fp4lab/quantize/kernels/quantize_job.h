// One call of QuantizeInto: the data that its kernels share, and the buffers of a thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/kernels/block_tables.h"
#include "fp4lab/quantize/kernels/outputs.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// One call of QuantizeInto. The work is cut into groups of bands (the rows of a block) and chunks
// of columns (whole blocks); the cuts do not depend on the number of threads.
struct DialectJob {
  static constexpr std::size_t kSpare = 64;  // spare elements behind an array, for a whole vector

  const Dialect& dialect;
  MatrixView<const float> x;
  const DialectOptions& options;
  const std::vector<float>& amax;
  const QuantizeOutputs& out;
  BlockGrid grid;
  ElementConstants element;
  float next;  // NextAfterLargest of the element's format
  ScaleTables scale;
  std::array<float, 256> values = {};          // the value of each element code
  bool is_four_bits = false;                   // whether element codes have 4 bits
  std::array<std::uint8_t, 16> integers = {};  // of each 4-bit code: 12 + 2 * value
  std::size_t chunk = 0;                       // columns of a chunk
  std::size_t group = 0;                       // bands of a group
  bool joins_rows = false;                     // the bands of a group are processed as one row

  std::size_t BlocksOfChunk() const { return chunk / grid.block_cols; }
  // The size of an array with one number per block of a chunk, spare elements included.
  std::size_t LineStride() const { return BlocksOfChunk() + kSpare; }
  // Whether block numbers are also needed per column: on some target a block is not a whole number
  // of vectors.
  bool HasNumbersByColumn() const { return grid.block_cols % 16 != 0; }
  // Whether a row's codes are read again: for values, integers or MS-EDEN.
  bool ReadsCodes() const {
    return out.values.data != nullptr || out.integers.data != nullptr ||
           dialect.unbias != Unbias::kNone;
  }
  std::size_t TileStride() const { return RoundUp(chunk, 16); }
  std::size_t TileSize() const { return group * grid.block_rows * TileStride() + kSpare; }
};

// Makes a job. The arguments must outlive it.
DialectJob JobOf(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                 const std::vector<float>& amax, const QuantizeOutputs& out);

// The numbers of a band's blocks under one candidate scale per block; four over six has two
// candidates.
struct BandNumbers {
  std::vector<float> scale, factor;  // by block
  std::vector<std::uint8_t> byte;
  std::vector<float> column_scale, column_factor;  // by column
  std::vector<float> errors;                       // by line and block, for four over six

  explicit BandNumbers(const DialectJob& job)
      : scale(job.LineStride()),
        factor(job.LineStride()),
        byte(job.LineStride()),
        column_scale(job.HasNumbersByColumn() ? job.chunk + DialectJob::kSpare : 0),
        column_factor(column_scale),
        errors(job.dialect.adaptive == Adaptive::kNo ? 0 : job.grid.block_rows * job.LineStride()) {
  }
};

// The buffers of one thread.
struct DialectBuffers {
  FloatBuffer tile;                       // a group's part of a chunk, with unit column stride
  FloatBuffer values;                     // its values, if the output has no unit column stride
  std::vector<std::int32_t> maxima;       // bits of magnitudes, by block or column
  std::vector<float> amax, scale_before;  // by block
  std::vector<float> line;                // errors of a row's elements
  std::vector<std::uint8_t> codes;        // of a row
  std::vector<std::uint16_t> fields;      // of a row's random bits
  std::vector<std::uint32_t> random;      // a row's random bits, one word per element; else zeros
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
