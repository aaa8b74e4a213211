// QuantizeToValues: quantize and decode in one pass over memory.
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/staged.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/block/quantize_values.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/block/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

struct ValueRows {
  float* out;
  std::size_t stride;
  HWY_INLINE ValueSink Row(std::size_t r) const { return {out + r * stride}; }
};

// Processes one group of units. x and out are in memory order.
void ValuesOfUnits(const QuantizePlan& plan, MatrixView<const float> x, MatrixView<float> out,
                   std::size_t group) {
  UnitScales scales;
  RandomBuffer random;
  StageBuffer staged;
  for (std::size_t i = group * plan.group; i < EndOfGroup(plan, group); ++i) {
    const Unit unit = UnitOf(plan, i);
    const Tile tile = TileOf(plan, x, unit, &staged);
    FindScales(plan.scale, tile, plan.block_cols, &scales);
    RoundUnit(plan, unit, tile, scales, &random,
              ValueRows{&out(unit.row, unit.col), out.row_stride});
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(ValuesOfUnits);

}  // namespace

void QuantizeToValues(MatrixView<const float> x, const QuantizeOptions& options,
                      const UnitStage& stage, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  Expects(out.rows == x.rows && out.cols == x.cols, "out has the shape of x");
  CheckOptions(options);
  Expects(!HasTensorScale(options.dialect) || options.amax.has_value(), "the amax is known");
  if (x.size() == 0) return;
  RunInMemoryOrder(
      x, out, [&](MatrixView<const float> from, MatrixView<float> to, bool transposed) {
        const QuantizePlan plan = MakePlan(from.rows, from.cols, transposed, options, stage);
        ParallelFor(GroupsOf(plan), [&](std::size_t group) {
          HWY_DYNAMIC_DISPATCH(ValuesOfUnits)(plan, from, to, group);
        });
      });
}

void QuantizeToValues(MatrixView<const float> x, const QuantizeOptions& options,
                      MatrixView<float> out) {
  const IeeeArithmetic ieee;
  QuantizeToValues(x, WithAmax(x, options), UnitStage{}, out);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
