#include "fp4lab/quantize/operand.h"

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/quantize/implementation.h"

namespace fp4lab {
namespace {

// Whether an implementation writes integers, two rows of two, with these strides and stage.
bool WritesIntegers(const Dialect& dialect, const DialectOptions& options, bool turned,
                    const UnitStage& stage) {
  const Matrix<float> x(2, 2);
  Matrix<std::uint8_t> codes(2, 2);
  const auto view = turned ? codes.View().Transposed() : codes.View();
  return FirstThatCan(QuantizeImplementations(),
                      {dialect, x.View(), options, {.integers = view}, stage}) != nullptr;
}

}  // namespace

void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  Expects(out.rows == x.rows && out.cols == x.cols, "out has the shape of x");
  Expects(!HasTensorScale(dialect) || !options.amax.empty(), "the amax is known");
  Make({dialect, x, options, {.values = out}});
}

bool QuantizeToFp4Integers(const Dialect& dialect, MatrixView<const float> x,
                           const DialectOptions& options, const Fp4Integers& out) {
  const IeeeArithmetic ieee;
  Expects(HasFp4Integers(dialect), "FP4 in blocks of 16 or 32 under scales with few bits");
  Expects(!HasTensorScale(dialect) || !options.amax.empty(), "the amax is known");
  return Make({dialect, x, options, {.integers = out.codes, .scales = out.scales}});
}

bool WritesColumns(const Dialect& dialect, const DialectOptions& options) {
  const IeeeArithmetic ieee;
  return WritesIntegers(dialect, options, true, {});
}

bool TakesStage(const Dialect& dialect, const DialectOptions& options) {
  const IeeeArithmetic ieee;
  const UnitStage stage{nullptr,
                        [](const void*, MatrixView<const float>, bool, MatrixView<float>) {}};
  return WritesIntegers(dialect, options, false, stage);
}

namespace reference {

void QuantizeToValues(const Dialect& dialect, MatrixView<const float> x,
                      const DialectOptions& options, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  ToOperandValues(dialect, reference::QuantizeAs(dialect, x, options), out);
}

}  // namespace reference
}  // namespace fp4lab
