// Quantize: codes and scale bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/staged.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/block/quantize_codes.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/block/kernels/pack_codes-inl.h"
#include "fp4lab/block/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

struct CodeBuffers {
  UnitScales scales;
  RandomBuffer random;
  alignas(64) std::uint8_t codes[kMaxBlock * (128 + 64)];  // or 1 x (1024 + 64), 16 x (256 + 64)
};

void CodesOfUnit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                 const CodeLayout& layout, CodeBuffers* buffers, const CodeOutput& q) {
  const CodeTile codes{buffers->codes, plan.chunk + 64};
  const std::size_t blocks = FindScales(plan.scale, x, plan.block_cols, &buffers->scales);
  RoundUnit(plan, unit, x, buffers->scales, &buffers->random, codes);
  if (q.scales != nullptr) StoreScales(plan, unit, blocks, buffers->scales.byte, q);
  if (plan.transposed) {
    PackColumns(unit, codes, layout, q.codes);
  } else {
    PackRows(unit, codes, layout, q.codes);
  }
}

// Quantizes units [begin, end). x is in memory order, q is not.
void CodesOfUnits(const QuantizePlan& plan, const MatrixView<const float>& x, std::size_t begin,
                  std::size_t end, const CodeOutput& q) {
  CodeBuffers buffers;
  StageBuffer staged;
  const bool fp4 = !plan.transposed && HasFp4Units(plan);
  const bool fp8 = !plan.transposed && HasFp8Units(plan);
  const CodeLayout layout(q.dialect, plan.transposed ? plan.rows : plan.cols);
  for (std::size_t i = begin, n = 1; i < end; i += n) {
    n = fp4 || fp8 ? UnitsOfSpan(plan, i, end) : 1;
    const Unit span = SpanOf(plan, i, n);
    if (fp8 && PutFp8Unit(plan, span, TileOf(plan, x, span, &staged), layout, q)) continue;
    if (fp4 && PackFp4Unit(plan, span, TileOf(plan, x, span, &staged), layout, q)) continue;
    for (std::size_t k = i; k < i + n; ++k) {
      const Unit unit = UnitOf(plan, k);
      CodesOfUnit(plan, unit, TileOf(plan, x, unit, &staged), layout, &buffers, q);
    }
  }
}

// Quantizes the units of a panel of a transposed plan.
void CodesOfPanel(const QuantizePlan& plan, const MatrixView<const float>& x, std::size_t i,
                  const CodeOutput& q) {
  const Panel units = PanelOf(plan, i);
  std::uint32_t done = 0;  // bit b: unit b of the panel is quantized
  if (HasFp4Units(plan)) {
    CodePanel panel;
    StageBuffer staged;
    alignas(64) std::uint8_t codes[kMaxStagedBlock * (256 + 64)];
    std::size_t whole = 0;
    for (; whole < units.count; ++whole) {
      const Unit unit = UnitOf(plan, units.first + whole * plan.chunks);
      if (unit.rows < plan.block_rows) break;
      const Tile tile = TileOf(plan, x, unit, &staged);
      const bool filled = FillPanel(plan, unit, tile, whole, {codes, plan.chunk + 64}, &panel, q);
      done |= static_cast<std::uint32_t>(filled) << whole;
    }
    FlushPanel(plan, UnitOf(plan, units.first), whole, CodeLayout(q.dialect, plan.rows), panel, q);
  }
  for (std::size_t b = 0; b < units.count; ++b) {
    const std::size_t unit = units.first + b * plan.chunks;
    if ((done >> b & 1) == 0) CodesOfUnits(plan, x, unit, unit + 1, q);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(CodesOfUnits);
HWY_EXPORT(CodesOfPanel);

CodeOutput OutputOf(const Dialect& dialect, Quantized* q) {
  return {dialect, q->codes.data(), q->scales.empty() ? nullptr : q->scales.data()};
}

// Quantizes memory rows [begin, end) and columns [begin_col, end_col), which hold whole units (and
// panels).
void CodesOfPart(const QuantizePlan& plan, const MatrixView<const float>& x, std::size_t begin,
                 std::size_t end, std::size_t begin_col, std::size_t end_col, const CodeOutput& q) {
  const std::size_t first = begin_col / plan.chunk, last = (end_col - 1) / plan.chunk + 1;
  const std::size_t step = plan.transposed ? PanelHeight(plan) : plan.block_rows;
  for (std::size_t r = begin; r < end; r += step) {
    const std::size_t i = r / step * plan.chunks;
    if (!plan.transposed) {
      HWY_DYNAMIC_DISPATCH(CodesOfUnits)(plan, x, i + first, i + last, q);
      continue;
    }
    for (std::size_t c = first; c < last; ++c)
      HWY_DYNAMIC_DISPATCH(CodesOfPanel)(plan, x, i + c, q);
  }
}

}  // namespace

void QuantizeToBytes(MatrixView<const float> x, const QuantizeOptions& options,
                     const UnitStage& stage, const CodeOutput& q) {
  const IeeeArithmetic ieee;
  CheckOptions(options);
  Expects(!HasTensorScale(options.dialect) || options.amax.has_value(), "the amax is known");
  if (x.size() == 0) return;
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  const bool transposed = !HasUnitRows(x);
  x = transposed ? x.Transposed() : AsOneRow(x, options.dialect);
  const QuantizePlan plan = MakePlan(x.rows, x.cols, transposed, options, stage);
  if (transposed) {
    ParallelFor(PanelsOf(plan), [&](std::size_t i) {
      HWY_DYNAMIC_DISPATCH(CodesOfPanel)(plan, x, i, q);
    });
    return;
  }
  ParallelFor(GroupsOf(plan), [&](std::size_t group) {
    HWY_DYNAMIC_DISPATCH(CodesOfUnits)(plan, x, group * plan.group, EndOfGroup(plan, group), q);
  });
}

void Quantize(MatrixView<const float> x, const QuantizeOptions& options, const UnitStage& stage,
              Quantized* q) {
  const IeeeArithmetic ieee;
  ShapeTuned(x.rows, x.cols, options, q);
  QuantizeToBytes(x, options, stage, OutputOf(options.dialect, q));
}

void Quantize(MatrixView<const float> x, const QuantizeOptions& options, Quantized* q) {
  const IeeeArithmetic ieee;
  Quantize(x, WithAmax(x, options), UnitStage{}, q);
}

Quantized Quantize(MatrixView<const float> x, const QuantizeOptions& options) {
  const IeeeArithmetic ieee;
  Quantized q;
  Quantize(x, options, &q);
  return q;
}

void QuantizeBothWays(MatrixView<const float> x, const QuantizeOptions& given_for_rows,
                      const QuantizeOptions& given_for_columns, Quantized* rows,
                      Quantized* columns) {
  const IeeeArithmetic ieee;
  const QuantizeOptions row_options = WithAmax(x, given_for_rows);
  const QuantizeOptions column_options = WithAmax(x, given_for_columns);
  ShapeTuned(x.rows, x.cols, row_options, rows);
  ShapeTuned(x.cols, x.rows, column_options, columns);
  if (x.size() == 0) return;
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  const bool turned = !HasUnitRows(x);  // then x.Transposed() has unit row stride
  if (turned) x = x.Transposed();
  const QuantizeOptions& options = turned ? column_options : row_options;
  const QuantizePlan along = MakePlan(x.rows, x.cols, false, options);
  const QuantizeOptions& across_options = turned ? row_options : column_options;
  const QuantizePlan across = MakePlan(x.rows, x.cols, true, across_options);
  const CodeOutput results[] = {OutputOf(options.dialect, turned ? columns : rows),
                                OutputOf(across_options.dialect, turned ? rows : columns)};
  // Parts that stay in the second-level cache between the rowwise and the columnwise quantization.
  constexpr std::size_t kPart = 1024;
  const std::size_t height = std::lcm(along.block_rows, PanelHeight(across));
  const bool cut = kPart % along.chunk == 0 && kPart % across.chunk == 0;
  const std::size_t width = cut ? kPart : x.cols, parts = DivideUp(x.cols, width);
  const MatrixView<const float> line = AsOneRow(x, options.dialect);
  const QuantizePlan along_line = MakePlan(line.rows, line.cols, false, options);
  const bool lines = parts == 1 && line.rows == 1 && height * x.cols % along_line.chunk == 0;
  ParallelFor(DivideUp(x.rows, height) * parts, [&](std::size_t i) {
    const std::size_t r = i / parts * height, end = std::min(r + height, x.rows);
    const std::size_t c = i % parts * width, end_col = std::min(c + width, x.cols);
    if (lines) {
      CodesOfPart(along_line, line, 0, 1, r * x.cols, end * x.cols, results[0]);
    } else {
      CodesOfPart(along, x, r, end, c, end_col, results[0]);
    }
    CodesOfPart(across, x, r, end, c, end_col, results[1]);
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
