// What the kernels need to know of one quantization, found once a call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/block_format.h"
#include "fp4lab/block/quantize.h"

namespace fp4lab {

// A format of the elements, as the constants of its roundings.
struct ElementConstants {
  float max;          // largest finite value
  float min_normal;   // 2^(1 - bias)
  int mantissa_bits;  // m
  float nan;          // the value of NanCode
  std::uint32_t nan_code;
  std::uint32_t sign_code;
};
ElementConstants ElementConstantsOf(FormatId id);

// A scale rule, as the constants of its formula (block/scale_rules.h).
struct ScaleConstants {
  ScaleRule rule;
  TensorScale tensor;
  float reciprocal;        // kRceil: fl(1 / largest element)
  std::uint32_t rounding;  // kFloor, kCeil, kEven: what is added to amax's bits
  int max_exponent;        // emax of the element
};

// What stands between memory and a quantizer: to(r, c) is what the quantizer sees in the place of
// from(r, c), rows x cols elements in memory order that hold whole blocks (but at the edges of x).
// `transposed`: memory rows are columns of x. No stage: the elements themselves.
struct UnitStage {
  const void* context = nullptr;
  void (*fill)(const void* context, MatrixView<const float> from, bool transposed,
               MatrixView<float> to) = nullptr;
};

// Kernels see the matrix in memory order: unit column stride, so a columnwise quantization arrives
// transposed, with (16, 1) blocks for 1x16. Work is cut into units, a band of one block's rows by a
// chunk of columns, and units into groups; neither depends on the number of threads.
struct QuantizePlan {
  ElementConstants element;
  ScaleConstants scale;
  bool transposed;                     // memory rows are x's columns
  std::size_t rows, cols;              // in memory order
  std::size_t block_rows, block_cols;  // in memory order
  std::size_t chunk;                   // columns of a unit: a multiple of block_cols
  std::size_t chunks;                  // units a band
  std::size_t units;
  Rounding rounding;
  RandomStream random;
  int random_bits;
  UnitStage stage;
};

inline constexpr std::size_t kMaxBlock = 128;   // rows or columns of a block
inline constexpr std::size_t kMaxChunk = 1024;  // columns of a unit
inline constexpr std::size_t kUnitsAGroup = 8;
inline constexpr std::size_t kMaxStagedBlock = 32;  // rows of a block, where there is a stage

// Room for the elements of a unit that went through a stage.
struct StageBuffer {
  static constexpr std::size_t kElements = 4096 + 16 * kMaxStagedBlock;  // rows of whole vectors
  alignas(64) float data[kElements];
};

// The columns that unit i of a plan covers, and the rows.
struct Unit {
  std::size_t row, rows, col, cols;
};
Unit UnitOf(const QuantizePlan& plan, std::size_t i);

constexpr std::size_t GroupsOf(const QuantizePlan& plan) {
  return (plan.units + kUnitsAGroup - 1) / kUnitsAGroup;
}
constexpr std::size_t EndOfGroup(const QuantizePlan& plan, std::size_t group) {
  return (group + 1) * kUnitsAGroup < plan.units ? (group + 1) * kUnitsAGroup : plan.units;
}

// How many units from i on, of those before `end`, a kernel may take as one: units beside each
// other that are one row high.
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
// The columns of n units from i on.
inline Unit SpanOf(const QuantizePlan& plan, std::size_t i, std::size_t n) {
  Unit unit = UnitOf(plan, i);
  const std::size_t left = plan.cols - unit.col;
  if (n > 1) unit.cols = n * plan.chunk < left ? n * plan.chunk : left;
  return unit;
}

// Of a transposed plan: units below each other, of kPanelRows memory rows in all where that is a
// multiple of a block's, so that codes are written a cache line at a time.
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
  const std::size_t left = (plan.rows + plan.block_rows - 1) / plan.block_rows - band;
  return {band * plan.chunks + i % plan.chunks, left < bands ? left : bands};
}

// rows and cols in memory order; `transposed`: memory rows are x's columns.
QuantizePlan MakePlan(std::size_t rows, std::size_t cols, bool transposed,
                      const QuantizeOptions& options, const UnitStage& stage = {});

// A matrix without gaps whose blocks lie in one row each is one long row of blocks.
MatrixView<const float> AsOneRow(MatrixView<const float> x, const BlockFormat& format);

}  // namespace fp4lab
