// Quantize: codes and scale bytes.
#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/block/quantize_codes.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/block/fp4_avx512-inl.h"
#include "fp4lab/block/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

// The codes of a unit, one a byte, in memory order: rows are a chunk and a vector apart.
struct CodeTile {
  std::uint8_t* codes;
  std::size_t stride;
  HWY_INLINE CodeSink Row(std::size_t r) const { return {codes + r * stride}; }
};

// Memory rows are rows of x.
HWY_INLINE void PackRows(const Unit& unit, const CodeTile& tile, const CodeLayout& layout,
                         std::uint8_t* codes) {
  for (std::size_t r = 0; r < unit.rows; ++r) {
    const std::uint8_t* from = tile.codes + r * tile.stride;
    std::uint8_t* to = codes + layout.Byte(unit.row + r, unit.col);
    if (!layout.packed) {
      std::copy_n(from, unit.cols, to);
      continue;
    }
    for (std::size_t i = 0; i < unit.cols / 2; ++i) {
      to[i] = static_cast<std::uint8_t>(from[2 * i] | from[2 * i + 1] << 4);
    }
    if (unit.cols % 2 == 1) to[unit.cols / 2] = from[unit.cols - 1];
  }
}

// Memory rows are columns of x.
HWY_INLINE void PackColumns(const Unit& unit, const CodeTile& tile, const CodeLayout& layout,
                            std::uint8_t* codes) {
  const std::uint8_t* from = tile.codes;
  for (std::size_t i = 0; i < unit.cols; ++i, ++from) {
    std::uint8_t* to = codes + layout.Byte(unit.col + i, unit.row);
    if (!layout.packed) {
      for (std::size_t r = 0; r < unit.rows; ++r) to[r] = from[r * tile.stride];
      continue;
    }
    for (std::size_t r = 0; r + 1 < unit.rows; r += 2) {
      to[r / 2] =
          static_cast<std::uint8_t>(from[r * tile.stride] | from[(r + 1) * tile.stride] << 4);
    }
    if (unit.rows % 2 == 1) to[unit.rows / 2] = from[(unit.rows - 1) * tile.stride];
  }
}

HWY_INLINE void StoreScales(const QuantizePlan& plan, const Unit& unit, std::size_t blocks,
                            const UnitScales& s, QuantizedMatrix* q) {
  const ScaleLayout grid(q->format, plan.transposed ? plan.cols : plan.rows,
                         plan.transposed ? plan.rows : plan.cols);
  const std::size_t band = unit.row / plan.block_rows, first = unit.col / plan.block_cols;
  std::uint8_t* to = q->scales.data();
  to += plan.transposed ? first * grid.cols + band : band * grid.cols + first;
  const std::size_t step = plan.transposed ? grid.cols : 1;
  for (std::size_t b = 0; b < blocks; ++b) to[b * step] = static_cast<std::uint8_t>(s.byte[b]);
}

#if HWY_TARGET <= HWY_AVX3_DL

struct PackedFp4Rows {
  std::uint8_t* out;
  std::size_t stride;
  HWY_INLINE PackedFp4Sink Row(std::size_t r) const { return {out + r * stride}; }
};

// False: the generic kernel must do this unit.
HWY_INLINE bool PackFp4Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                            const CodeLayout& layout, QuantizedMatrix* q) {
  Fp4Scales scales;
  if (!QuantizeFp4Unit(
          plan, x, &scales,
          PackedFp4Rows{q->codes.data() + layout.Byte(unit.row, unit.col), layout.row_bytes})) {
    return false;
  }
  const std::size_t columns = (plan.cols + plan.block_cols - 1) / plan.block_cols;
  std::copy_n(scales.byte, (unit.cols + plan.block_cols - 1) / plan.block_cols,
              q->scales.data() + unit.row / plan.block_rows * columns + unit.col / plan.block_cols);
  return true;
}

#else

HWY_INLINE bool HasFp4Units(const QuantizePlan& /*plan*/) { return false; }
HWY_INLINE bool PackFp4Unit(const QuantizePlan&, const Unit&, const Tile&, const CodeLayout&,
                            QuantizedMatrix*) {
  return false;
}

#endif

// One group of units. x is in memory order, q is not.
void CodesOfUnits(const QuantizePlan& plan, MatrixView<const float> x, std::size_t group,
                  QuantizedMatrix* q) {
  UnitScales scales;
  RandomBuffer random;
  const bool fp4 = HasFp4Units(plan);
  alignas(64) std::uint8_t buffer[kMaxBlock * (128 + 64)];  // or 1 x (1024 + 64), 16 x (256 + 64)
  const CodeTile codes{buffer, plan.chunk + 64};
  const CodeLayout layout(q->format, plan.transposed ? plan.rows : plan.cols);
  for (std::size_t i = group * kUnitsAGroup; i < EndOfGroup(plan, group); ++i) {
    const Unit unit = UnitOf(plan, i);
    const Tile tile{&x(unit.row, unit.col), x.row_stride, unit.rows, unit.cols};
    if (fp4 && PackFp4Unit(plan, unit, tile, layout, q)) continue;
    const std::size_t blocks = FindScales(plan.scale, tile, plan.block_cols, &scales);
    RoundUnit(plan, unit, tile, scales, &random, codes);
    if (!q->scales.empty()) StoreScales(plan, unit, blocks, scales, q);
    if (plan.transposed) {
      PackColumns(unit, codes, layout, q->codes.data());
    } else {
      PackRows(unit, codes, layout, q->codes.data());
    }
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

}  // namespace

void Quantize(MatrixView<const float> x, const QuantizeOptions& options, QuantizedMatrix* q) {
  ShapeQuantizedMatrix(x.rows, x.cols, options, q);
  if (x.size() == 0) return;
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  const bool transposed = !HasUnitRows(x);
  x = transposed ? x.Transposed() : AsOneRow(x, options.format);
  const QuantizePlan plan = MakePlan(x.rows, x.cols, transposed, options);
  ParallelFor(GroupsOf(plan), [&](std::size_t group) {
    HWY_DYNAMIC_DISPATCH(CodesOfUnits)(plan, x, group, q);
  });
}

QuantizedMatrix Quantize(MatrixView<const float> x, const QuantizeOptions& options) {
  QuantizedMatrix q;
  Quantize(x, options, &q);
  return q;
}

}  // namespace fp4lab
#endif  // HWY_ONCE
