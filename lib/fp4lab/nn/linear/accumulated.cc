#include "fp4lab/nn/linear/accumulated.h"

#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/step_parts.h"
#include "fp4lab/nn/linear/operand.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/operand.h"

namespace fp4lab {
namespace {

// An operand of the product: codes and block scales, with the amax of its tensor or the decode
// scales of its rows, which are applied to the result.
struct Product {
  MmaOperand operand;
  float amax = 0.0f;
  std::vector<float> row_decode;
};

MmaOperand OperandOf(const Dialect& d, const Quantized& q) {
  return MakeMmaOperand(FormatOf(d.element), {q.codes.data(), q.rows, q.cols}, FormatOf(d.scale),
                        d.block_rows, d.block_cols, q.scales);
}

Product Prepare(const LinearCall& call, const AccumulatedOperand& from) {
  Matrix<float> x = RowMajorCopy(from.x);  // dgrad and wgrad read transposed tensors
  RoundBf16(x.View(), x.View());
  if (from.recipe.hadamard != 0) {
    RandomHadamard(x.View(), TransformOf(from.recipe, call), x.View());
  }
  if (!from.recipe.format) {
    return {.operand = MakeMmaOperand(FormatOf(FormatId::kBF16), x.View()), .row_decode = {}};
  }
  const Dialect& d = *from.recipe.format;
  DialectOptions options = OptionsOf(from.recipe, from.operand, call);
  if (from.recipe.delayed.length > 0) {
    options.amax = {DelayedAmax(from.operand, call, TensorAmaxes(d, x.View(), {})[0])};
  }
  const Quantized q = QuantizeAs(d, x.View(), options);
  if (call.observer != nullptr) {
    Matrix<float> values(x.rows, x.cols);
    ToOperandValues(d, q, values.View());
    options.amax = q.amax;
    (*call.observer)({from.operand, x.View(), values.View(), d, options, q});
  }
  Product out{.operand = OperandOf(d, q), .row_decode = {}};
  KeepAmax(d, q.amax, &out.amax, &out.row_decode);
  return out;
}

MmaOperand Sample(const OperandRecipe& recipe) {
  Matrix<float> x(1, 128, 1.0f);
  if (!recipe.format) return MakeMmaOperand(FormatOf(FormatId::kBF16), x.View());
  const DialectOptions options{.source = RandomSource{}};
  return OperandOf(*recipe.format, QuantizeAs(*recipe.format, x.View(), options));
}

}  // namespace

std::string WhyNotAccumulated(const GemmRecipe& recipe) {
  const IeeeArithmetic ieee;
  if (recipe.accumulation == nullptr) return "";
  for (const OperandRecipe* operand : {&recipe.a, &recipe.b}) {
    if (operand->format && operand->format->scale_encoding == ScaleEncoding::kBinary32) {
      return "the accumulation has no scales in binary32";
    }
  }
  return WhyNot(*recipe.accumulation, Sample(recipe.a), Sample(recipe.b));
}

void MultiplyAccumulated(const GemmRecipe& recipe, const LinearCall& call,
                         const AccumulatedOperand& a, const AccumulatedOperand& b, bool accumulate,
                         MatrixView<float> c) {
  const IeeeArithmetic ieee;
  const Product pa = Prepare(call, a), pb = Prepare(call, b);
  const std::string problem = WhyNot(*recipe.accumulation, pa.operand, pb.operand);
  if (!problem.empty()) {
    throw Error("accumulation " + std::string(recipe.accumulation->name),
                problem + ", in operand " + std::string(OperandName(a.operand)) + " or " +
                    std::string(OperandName(b.operand)));
  }
  const StepScope part(StepPart::kGemm);
  Matrix<float> y(c.rows, c.cols);
  GemmAs(*recipe.accumulation, pa.operand, pb.operand, {.alpha = AlphaOf(recipe, pa.amax, pb.amax)},
         y.View());
  ScaleRows(y.View(), pa.row_decode, pb.row_decode, accumulate, c);
}

}  // namespace fp4lab
