// QuantizeToFp4Integers: quantize into one byte an element and a float a scale.
#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/kernels/fp4_kernels.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/staged.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/block/quantize_integers.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp4_units-inl.h"
#include "fp4lab/block/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

struct IntegerSink {
  std::uint8_t* out;
  // 12 + 2 * element, in 32-bit lanes.
  HWY_INLINE VI Integer(const ElementConstants& e, VF v, VF magnitude) const {
    const DF d;
    const VF value =
        hn::IfThenElse(hn::IsNaN(v), hn::Set(d, e.nan), hn::CopySignToAbs(magnitude, v));
    return hn::Add(hn::ConvertTo(DI(), hn::Add(value, value)), hn::Set(DI(), 12));
  }
  HWY_INLINE void Put(const ElementConstants& e, std::size_t i, VF v, VF magnitude,
                      VF /*scale*/) const {
    const hn::Rebind<std::uint8_t, DI> d8;
    hn::StoreU(hn::DemoteTo(d8, Integer(e, v, magnitude)), d8, out + i);
  }
  HWY_INLINE void PutPart(const ElementConstants& e, std::size_t i, std::size_t count, VF v,
                          VF magnitude, VF /*scale*/) const {
    const hn::Rebind<std::uint8_t, DI> d8;
    HWY_ALIGN std::uint8_t part[hn::MaxLanes(DI())];
    hn::StoreU(hn::DemoteTo(d8, Integer(e, v, magnitude)), d8, part);
    std::copy_n(part, count, out + i);
  }
};

struct IntegerRows {
  std::uint8_t* out;
  std::size_t stride;
  HWY_INLINE IntegerSink Row(std::size_t r) const { return {out + r * stride}; }
};

HWY_INLINE void StoreScales(const QuantizePlan& plan, const Unit& unit, std::size_t blocks,
                            const float* values, const Fp4Integers& out) {
  const MatrixView<float> to =
      out.scales.Block(unit.row / plan.block_rows, unit.col / plan.block_cols, 1, blocks);
  for (std::size_t b = 0; b < blocks; ++b) to(0, b) = values[b];
}

#if HWY_TARGET <= HWY_AVX3_DL

struct IntegerFp4Rows {
  std::uint8_t* out;
  std::size_t stride;
  HWY_INLINE IntegerFp4Sink Row(std::size_t r) const { return {out + r * stride}; }
};

// Returns false if the generic kernel must process the unit.
HWY_INLINE bool IntegersOfFp4Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                                  const Fp4Integers& out) {
  Fp4Scales scales;
  const IntegerFp4Rows rows{&out.codes(unit.row, unit.col), out.codes.row_stride};
  if (!QuantizeFp4Unit(plan, unit, x, &scales, rows)) return false;
  const std::size_t blocks = DivideUp(unit.cols, plan.block_cols);
  StoreScales(plan, unit, blocks, scales.value, out);
  return true;
}

#else

HWY_INLINE bool HasFp4Units(const QuantizePlan& /*plan*/) { return false; }
HWY_INLINE bool IntegersOfFp4Unit(const QuantizePlan&, const Unit&, const Tile&,
                                  const Fp4Integers&) {
  return false;
}

#endif

// Processes one group of units. x and out are in memory order.
void IntegersOfUnits(const QuantizePlan& plan, const MatrixView<const float>& x,
                     const Fp4Integers& out, std::size_t group) {
  UnitScales scales;
  RandomBuffer random;
  StageBuffer staged;
  const bool fp4 = HasFp4Units(plan);
  const std::size_t end = EndOfGroup(plan, group);
  for (std::size_t i = group * plan.group, n = 1; i < end; i += n) {
    n = fp4 ? UnitsOfSpan(plan, i, end) : 1;
    const Unit span = SpanOf(plan, i, n);
    if (fp4 && IntegersOfFp4Unit(plan, span, TileOf(plan, x, span, &staged), out)) continue;
    for (std::size_t k = i; k < i + n; ++k) {
      const Unit unit = UnitOf(plan, k);
      const Tile tile = TileOf(plan, x, unit, &staged);
      const std::size_t blocks = FindScales(plan.scale, tile, plan.block_cols, &scales);
      RoundUnit(plan, unit, tile, scales, &random,
                IntegerRows{&out.codes(unit.row, unit.col), out.codes.row_stride});
      StoreScales(plan, unit, blocks, scales.value, out);
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

HWY_EXPORT(IntegersOfUnits);

// Views x and out as one long row if none of the matrices has gaps.
void AsOneRow(const Dialect& dialect, MatrixView<const float>* x, Fp4Integers* out) {
  const MatrixView<const float> row = fp4lab::AsOneRow(*x, dialect);
  if (row.rows != 1 || !out->codes.IsRowMajor() || !out->scales.IsRowMajor()) return;
  *x = row;
  out->codes = {out->codes.data, 1, out->codes.size()};
  out->scales = {out->scales.data, 1, out->scales.size()};
}

}  // namespace

bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const UnitStage& stage, const Fp4Integers& out) {
  const IeeeArithmetic ieee;
  CheckFp4Integers(x, options, out);
  Expects(!HasTensorScale(options.dialect) || options.amax.has_value(), "the amax is known");
  if (x.size() == 0) return true;
  const bool turned = !(out.codes.col_stride == 1 || out.codes.cols <= 1);
  const bool as_out = turned ? HasUnitColumns(x) : HasUnitRows(x);
  MatrixView<const float> from = turned ? x.Transposed() : x;
  const Matrix<float> copy = as_out ? Matrix<float>() : RowMajorCopy(from);
  if (!as_out) from = copy.View();
  Fp4Integers to = turned ? Fp4Integers{out.codes.Transposed(), out.scales.Transposed()} : out;
  if (!turned) AsOneRow(options.dialect, &from, &to);
  const QuantizePlan plan = MakePlan(from.rows, from.cols, turned, options, stage);
  ParallelFor(GroupsOf(plan), [&](std::size_t group) {
    HWY_DYNAMIC_DISPATCH(IntegersOfUnits)(plan, from, to, group);
  });
  if (options.dialect.block_scale == BlockScale::kFolded) return true;  // E4M3: 0, 2^-9 to 448
  return internal::FinishFp4Scales(options.dialect, out);
}

bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const Fp4Integers& out) {
  const IeeeArithmetic ieee;
  return QuantizeToFp4Integers(x, WithAmax(x, options), UnitStage{}, out);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
