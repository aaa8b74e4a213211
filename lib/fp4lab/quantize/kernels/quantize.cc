// QuantizeInto for any dialect: groups, bands and rows. The stages are in *-inl.h beside this file:
// the numbers of blocks (band_numbers), the choice between candidates (four_over_six), the codes of
// a row (row_codes) and its outputs (row_outputs).
#include "fp4lab/quantize/quantize.h"

#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/kernels/quantize_into.h"
#include "fp4lab/quantize/kernels/quantize_job.h"
#include "fp4lab/quantize/ms_eden.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/quantize/kernels/quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/base/simd/transpose-inl.h"
#include "fp4lab/quantize/kernels/band_numbers-inl.h"
#include "fp4lab/quantize/kernels/block_stage-inl.h"
#include "fp4lab/quantize/kernels/element_stage-inl.h"
#include "fp4lab/quantize/kernels/four_over_six-inl.h"
#include "fp4lab/quantize/kernels/row_codes-inl.h"
#include "fp4lab/quantize/kernels/row_outputs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

// to(r, c) = from(r, c), for any strides, 16 rows at a time for the caches.
void CopyPart(MatrixView<const float> from, MatrixView<float> to) {
  for (std::size_t r = 0; r < from.rows; r += 16) {
    const std::size_t rows = std::min<std::size_t>(16, from.rows - r);
    for (std::size_t c = 0; c < from.cols; ++c) {
      for (std::size_t k = 0; k < rows; ++k) to(r + k, c) = from(r + k, c);
    }
  }
}

// CopyPart for a `to` whose rows are aligned and padded to whole vectors.
void CopyTile(MatrixView<const float> from, MatrixView<float> to) {
  const std::size_t rows = from.row_stride == 1 ? from.rows / 16 * 16 : 0;
  const std::size_t cols = from.cols / 16 * 16;
  for (std::size_t r = 0; r < rows; r += 16) {
    for (std::size_t c = 0; c < cols; c += 16) {
      Transpose16x16(&from(r, c), from.col_stride, &to(r, c), to.row_stride);
    }
  }
  CopyPart(from.Block(0, cols, rows, from.cols - cols), to.Block(0, cols, rows, from.cols - cols));
  CopyPart(from.Block(rows, 0, from.rows - rows, from.cols),
           to.Block(rows, 0, from.rows - rows, from.cols));
}

// Quantizes a row's part of one chunk, from (row, col) on. `values`: the destination of its values.
void QuantizeRow(const DialectJob& job, const TensorScale& tensor, const float* x, std::size_t row,
                 std::size_t col, std::size_t cols, float* values, DialectBuffers* b) {
  const std::size_t at = row * job.x.cols + col;
  if (IsStochastic(job.dialect)) FindRandomBits(job, at, cols, b);
  std::uint8_t* const codes = job.out.codes != nullptr ? job.out.codes + at : b->codes.data();
  FindCodes(job, tensor, x, b->random.data(), cols, b->six, codes);
  // FindValues and FindIntegers read whole vectors of codes.
  if (job.ReadsCodes() && codes != b->codes.data()) std::copy_n(codes, cols, b->codes.data());
  if (job.dialect.unbias == Unbias::kMsEden) {
    const std::size_t block = col / job.grid.block_cols;
    CorrectScales(job.dialect, tensor, job.options,
                  {.x = {x, cols},
                   .codes = {b->codes.data(), cols},
                   .block_cols = job.grid.block_cols,
                   .first_block = row * job.grid.cols + block,
                   .bytes = b->six.byte.data(),
                   .scales = b->six.scale.data()});
    if (!HasWholeVectors(job)) SpreadOverColumns(job, cols, &b->six);
  }
  if (values != nullptr) FindValues(job, b->codes.data(), cols, b->six, values);
  if (job.out.integers.data != nullptr) {
    FindIntegers(job, b->codes.data(), cols, &job.out.integers(row, col));
  }
}

// Quantizes a band's part of one chunk.
void QuantizeBand(const DialectJob& job, const Tile& x, std::size_t band, std::size_t col,
                  MatrixView<float> values, DialectBuffers* b) {
  const std::size_t row = band * job.grid.block_rows;
  const std::size_t blocks = DivideUp(x.cols, job.grid.block_cols);
  const TensorScale tensor = TensorScaleOfRow(job.dialect, job.amax, row);
  FindMaxima(job, x, blocks, b);
  FindScalesBefore(job.dialect, tensor, blocks, {b->amax.data(), b->scale_before.data()});
  FindBandNumbers(job, tensor, 1.0f, blocks, x.cols, b, &b->six);
  if (job.dialect.adaptive != Adaptive::kNo) {
    if (IsStochastic(job.dialect)) std::fill(b->random.begin(), b->random.end(), 0u);
    ChooseCandidates(job, tensor, x, blocks, b);
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    QuantizeRow(job, tensor, x.data + r * x.stride, row + r, col, x.cols,
                values.data == nullptr ? nullptr : &values(r, 0), b);
  }
  StoreScales(job, band, col / job.grid.block_cols, blocks, b->six);
}

// Quantizes a group's bands as one long row: each band is a row of blocks, and they are contiguous
// in memory.
void QuantizeAsOneRow(const DialectJob& job, std::size_t first, std::size_t rows) {
  DialectBuffers buffers(job);
  const float* x = &job.x(first, 0);
  const std::size_t size = rows * job.x.cols;
  for (std::size_t i = 0; i < size; i += job.chunk) {
    const std::size_t cols = std::min(job.chunk, size - i);
    MatrixView<float> values;
    if (job.out.values.data != nullptr) values = {&job.out.values(first, 0) + i, 1, cols};
    QuantizeBand(job, {x + i, cols, 1, cols}, first, i, values, &buffers);
  }
}

void QuantizeGroup(const DialectJob& job, std::size_t group) {
  const MatrixView<const float>& x = job.x;
  const std::size_t height = job.grid.block_rows, first = group * job.group;
  const std::size_t last = std::min(first + job.group, job.grid.rows);
  if (job.joins_rows) return QuantizeAsOneRow(job, first, last - first);
  DialectBuffers buffers(job);
  const std::size_t top = first * height, bottom = std::min(last * height, x.rows);
  for (std::size_t col = 0; col < x.cols; col += job.chunk) {
    const std::size_t cols = std::min(job.chunk, x.cols - col);
    MatrixView<const float> part = x.Block(top, col, bottom - top, cols);
    if (!buffers.tile.empty()) {
      const MatrixView<float> tile(buffers.tile.data(), part.rows, cols, job.TileStride(), 1);
      CopyTile(part, tile);
      part = tile;
    }
    MatrixView<float> out, values;
    if (job.out.values.data != nullptr) {
      out = values = job.out.values.Block(top, col, part.rows, cols);
      if (!buffers.values.empty()) {
        values = {buffers.values.data(), part.rows, cols, job.TileStride(), 1};
      }
    }
    for (std::size_t band = first; band < last; ++band) {
      const std::size_t r = band * height - top, rows = std::min(height, part.rows - r);
      QuantizeBand(job, {&part(r, 0), part.row_stride, rows, cols}, band, col,
                   values.data == nullptr ? values : values.Block(r, 0, rows, cols), &buffers);
    }
    if (!buffers.values.empty()) CopyPart(values, out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(QuantizeGroup);

}  // namespace

void QuantizeInto(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                  const std::vector<float>& amax, const QuantizeOutputs& out) {
  CheckOptions(dialect, x, options);
  if (x.size() == 0) return;
  const DialectJob job = JobOf(dialect, x, options, amax, out);
  ParallelFor(DivideUp(job.grid.rows, job.group), [&](std::size_t group) {
    CheckInterrupt();
    HWY_DYNAMIC_DISPATCH(QuantizeGroup)(job, group);
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
