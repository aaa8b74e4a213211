// The plan of one quantization: constants and division of work, computed once per call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/tensor_scale.h"

namespace fp4lab {

// The constants of an element format that the rounding kernels use.
struct ElementConstants {
  float max;          // largest finite value
  float min_normal;   // 2^(1 - bias)
  int mantissa_bits;  // m
  float nan;          // the value of NanCode
  std::uint32_t nan_code;
  std::uint32_t sign_code;
};
ElementConstants ElementConstantsOf(FormatId id);

// The constants of a block scale's formula (dialect/block_scale_rules.h).
struct ScaleConstants {
  BlockScale rule;
  TensorScale tensor;
  float per_amax;          // kFolded: FoldedFactor, from a block's amax to its scale
  float reciprocal;        // kRceil: fl(1/q)
  std::uint32_t rounding;  // what the rule adds to amax's bits before it takes the exponent
  int max_exponent;        // emax of the element
};
ScaleConstants ScaleConstantsOf(const Dialect& dialect, float amax);

// A stage between memory and the quantizer: `fill` writes to `to` the elements that the quantizer
// sees in place of those of `from`, rows x cols elements in memory order that hold whole blocks
// (except at the edges of x). `transposed`: memory rows are columns of x. Without `fill` the
// quantizer sees the elements themselves.
struct UnitStage {
  const void* context = nullptr;
  void (*fill)(const void* context, MatrixView<const float> from, bool transposed,
               MatrixView<float> to) = nullptr;
};

// The kernels see the matrix in memory order, with unit column stride: a columnwise quantization
// arrives transposed, with (16, 1) blocks for 1x16. The work is cut into units, a band of one
// block's rows by a chunk of columns, and units are joined to groups; the cuts do not depend on the
// number of threads.
struct QuantizePlan {
  ElementConstants element;
  ScaleConstants scale;
  bool transposed;                     // memory rows are x's columns
  std::size_t rows, cols;              // in memory order
  std::size_t block_rows, block_cols;  // in memory order
  std::size_t chunk;                   // columns of a unit: a multiple of block_cols
  std::size_t chunks;                  // units a band
  std::size_t units;
  std::size_t group;  // units that a thread takes at a time
  Rounding rounding;
  RandomStream random;
  int random_bits;  // kStochastic: 16 or 32 per element
  UnitStage stage;
};

inline constexpr std::size_t kMaxBlock = 128;       // rows or columns of a block
inline constexpr std::size_t kMaxChunk = 1024;      // columns of a unit
inline constexpr std::size_t kMaxStagedBlock = 32;  // rows of a block, with a UnitStage

// Buffer for the elements of a unit after the stage.
struct StageBuffer {
  static constexpr std::size_t kElements = 4096 + 16 * kMaxStagedBlock;  // rows of whole vectors
  alignas(64) float data[kElements];
};

// The rows and columns that a unit covers, in memory order.
struct Unit {
  std::size_t row, rows, col, cols;
};
Unit UnitOf(const QuantizePlan& plan, std::size_t i);

// The elements of a large matrix that a thread takes at a time, about: 1 MiB of binary32 if there
// are 64 such groups. A group's first elements are not prefetched by the group before it.
constexpr std::size_t ElementsOfGroup(std::size_t elements) {
  return std::min<std::size_t>(elements / 64, 1 << 18);
}

constexpr std::size_t GroupsOf(const QuantizePlan& plan) {
  return DivideUp(plan.units, plan.group);
}
constexpr std::size_t EndOfGroup(const QuantizePlan& plan, std::size_t group) {
  return (group + 1) * plan.group < plan.units ? (group + 1) * plan.group : plan.units;
}

// The number of units from i on, but before `end`, that a kernel may take as one span: adjacent
// units of the same row, one row high.
inline constexpr std::size_t kMaxSpan = 8;
inline constexpr std::size_t kMaxSpanBytes = kMaxSpan * kMaxChunk;  // of random bits
constexpr std::size_t UnitsOfSpan(const QuantizePlan& plan, std::size_t i, std::size_t end) {
  if (plan.block_rows != 1 || plan.stage.fill != nullptr) return 1;
  const bool random = plan.rounding == Rounding::kStochastic;
  const std::size_t in_row = plan.chunks - i % plan.chunks;
  const std::size_t limit =
      random ? 8 * kMaxSpan / static_cast<std::size_t>(plan.random_bits) : kMaxSpan;
  const std::size_t most = in_row < limit ? in_row : limit;
  return end - i < most ? end - i : most;
}
// The rows and columns of the span of n units from i on.
inline Unit SpanOf(const QuantizePlan& plan, std::size_t i, std::size_t n) {
  Unit unit = UnitOf(plan, i);
  const std::size_t left = plan.cols - unit.col;
  if (n > 1) unit.cols = n * plan.chunk < left ? n * plan.chunk : left;
  return unit;
}

// A panel of a transposed plan: units below each other, with kPanelRows memory rows in total if
// that is a multiple of a block's rows, so that codes are written a cache line at a time.
inline constexpr std::size_t kPanelRows = 128;
constexpr std::size_t PanelHeight(const QuantizePlan& plan) {
  return kPanelRows % plan.block_rows == 0 ? kPanelRows : plan.block_rows;
}
struct Panel {
  std::size_t first, count;  // units `chunks` apart
};
constexpr std::size_t PanelsOf(const QuantizePlan& plan) {
  return (plan.rows + PanelHeight(plan) - 1) / PanelHeight(plan) * plan.chunks;
}
constexpr Panel PanelOf(const QuantizePlan& plan, std::size_t i) {
  const std::size_t bands = PanelHeight(plan) / plan.block_rows;
  const std::size_t band = i / plan.chunks * bands;
  const std::size_t left = DivideUp(plan.rows, plan.block_rows) - band;
  return {band * plan.chunks + i % plan.chunks, left < bands ? left : bands};
}

// rows and cols in memory order; `transposed`: memory rows are x's columns.
QuantizePlan MakePlan(std::size_t rows, std::size_t cols, bool transposed,
                      const QuantizeOptions& options, const UnitStage& stage = {});

// Returns x as one long row of blocks if x has no gaps and every block lies in one row, else x.
MatrixView<const float> AsOneRow(MatrixView<const float> x, const Dialect& dialect);

}  // namespace fp4lab
