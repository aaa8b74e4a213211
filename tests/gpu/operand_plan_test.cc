// The plans of operands, which need no GPU.
#include "fp4lab/gpu/quantize/operand_plan.h"

#include "fp4lab/cuda/quantize/dialect_values.h"
#include "fp4lab/dialect/dialect.h"
#include "tests/support/catch.h"

namespace fp4lab::gpu {
namespace {

OperandRecipe Of(const char* name, int hadamard = 0) {
  return {.format = *FindDialect(name), .hadamard = hadamard};
}

TEST_CASE("Every dialect with values has a kernel, by the first row of the table that takes it",
          "[gpu]") {
  std::size_t units = 0;
  for (const Dialect& d : Dialects()) {
    CAPTURE(d.name);
    const OperandPlan plan = PlanOf(OperandRecipe{.format = d});
    CHECK(plan.kernel.has_value() == cuda::CanQuantizeToValues(d));
    CHECK(plan.format.has_value() == (plan.kernel == OperandKernel::kUnits));
    units += plan.kernel == OperandKernel::kUnits;
  }
  CHECK(units >= 28);
  CHECK(PlanOf(Of("nvfp4.te")).kernel == OperandKernel::kUnits);
  CHECK(PlanOf(Of("nvfp4.te.row-scaled")).kernel == OperandKernel::kDialects);
  OperandRecipe counted = Of("nvfp4.te");
  counted.format->rounding = ElementRounding::kStochastic16;
  CHECK(PlanOf(counted).kernel == OperandKernel::kUnits);
  counted.random = RandomGenerator::kLinearCounter;
  CHECK(PlanOf(counted).kernel == OperandKernel::kDialects);
}

TEST_CASE("A transform stands in the operand's kernel or in a launch of its own", "[gpu]") {
  CHECK(PlanOf(OperandRecipe{}).is_plain);
  CHECK_FALSE(PlanOf(Of("nvfp4.te")).is_plain);
  for (const int size : {0, 16, 32}) {
    CHECK_FALSE(PlanOf(Of("nvfp4.te", size)).transforms_apart);
    CHECK(PlanOf(Of("nvfp4.te", size)).hadamard == size);
  }
  OperandRecipe other = Of("nvfp4.te", 64);
  CHECK(PlanOf(other).transforms_apart);
  CHECK(PlanOf(other).hadamard == 0);
  other = Of("nvfp4.te", 16);
  other.signs = HadamardSignSource::kSeeded;
  CHECK(PlanOf(other).transforms_apart);
}

TEST_CASE("Two operands of a tensor share an amax, or one pass measures both", "[gpu]") {
  const OperandRecipe row = Of("nvfp4.te"), turned = Of("nvfp4.te", 16), mx = Of("mxfp4.rceil");
  CHECK(PlanOf(row, row).amax == PairAmax::kOne);
  CHECK(PlanOf(row, turned).amax == PairAmax::kOnePass);
  CHECK(PlanOf(turned, row).amax == PairAmax::kApart);
  CHECK(PlanOf(row, mx).amax == PairAmax::kApart);
  CHECK(PlanOf(row, mx).knows_column_amax);
  CHECK(PlanOf(row, Of("nvfp4.te", 64)).amax == PairAmax::kApart);
  CHECK_FALSE(PlanOf(row, Of("nvfp4.te", 64)).knows_column_amax);
  OperandRecipe decoded = turned;
  decoded.from_fprop = true;
  CHECK(PlanOf(row, decoded).amax == PairAmax::kApart);
  CHECK_FALSE(PlanOf(row, decoded).together);
  OperandRecipe delayed = Of("fp8_e4m3");
  delayed.delayed.length = 16;
  CHECK(PlanOf(delayed, Of("fp8_e4m3")).amax == PairAmax::kApart);
}

TEST_CASE("One kernel makes both operands of FP4 tensors whose amaxes are known", "[gpu]") {
  CHECK(PlanOf(Of("nvfp4.te"), Of("nvfp4.te", 16)).together);
  CHECK(PlanOf(Of("mxfp4.rceil"), Of("mxfp4.rceil")).together);
  CHECK_FALSE(PlanOf(Of("nvfp4.te"), Of("nvfp4.te")).together);  // a pass of its own measures
  CHECK_FALSE(PlanOf(Of("mxfp8_e4m3.rceil"), Of("mxfp8_e4m3.rceil")).together);
  CHECK_FALSE(PlanOf(Of("nvfp4.te"), Of("mxfp4.rceil")).together);
  CHECK_FALSE(PlanOf(Of("mxfp4.rceil"), Of("mxfp4.torchao.rceil", 64)).together);
  CHECK_FALSE(PlanOf(OperandRecipe{}, OperandRecipe{}).together);
}

}  // namespace
}  // namespace fp4lab::gpu
