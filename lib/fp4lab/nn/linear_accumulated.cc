#include "fp4lab/nn/linear_accumulated.h"

#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/operand.h"
#include "fp4lab/nn/linear_operand.h"
#include "fp4lab/nn/round_bf16.h"

namespace fp4lab {
namespace {

// Codes and scales for the product, and the tensor's or rows' scales for after it.
struct Product {
  MmaOperand operand;
  float amax = 0.0f;
  std::vector<float> row_decode;
};

MmaOperand WithCodes(const Dialect& d, const Quantized& q) {
  MmaOperand x{.rows = q.rows, .cols = q.cols, .format = FormatOf(d.element)};
  x.codes.assign(q.codes.begin(), q.codes.end());
  if (d.block_rows == 0) return x;
  const BlockGrid grid(d, q.rows, q.cols);
  x.group = d.block_cols;
  x.scale_format = FormatOf(d.scale);
  for (std::size_t r = 0; r < q.rows; ++r) {
    const auto row =
        q.scales.begin() + static_cast<std::ptrdiff_t>(r / grid.block_rows * grid.cols);
    x.scales.insert(x.scales.end(), row, row + static_cast<std::ptrdiff_t>(grid.cols));
  }
  return x;
}

Product Prepare(const LinearCall& call, const AccumulatedOperand& from) {
  Matrix<float> x(from.x.rows, from.x.cols);
  RoundBf16(from.x, x.View());
  if (from.recipe.hadamard != 0) {
    RandomHadamard(x.View(), TransformOf(from.recipe, call), x.View());
  }
  if (!from.recipe.format) {
    return {.operand = MakeMmaOperand(FormatOf(FormatId::kBF16), x.View()), .row_decode = {}};
  }
  const Dialect& d = *from.recipe.format;
  DialectOptions options = OptionsOf(from.recipe, from.operand, call);
  if (from.recipe.delayed.length > 0) {
    options.amax = {DelayedAmax(from.operand, call, LevelTwoAmax(d, x.View(), {})[0])};
  }
  const Quantized q = QuantizeAs(d, x.View(), options);
  if (call.observer != nullptr) {
    Matrix<float> values(x.rows, x.cols);
    options.amax = q.amax;
    QuantizeToValues(d, x.View(), options, values.View());
    (*call.observer)(from.operand, x.View(), values.View(), d, options);
  }
  Product out{.operand = WithCodes(d, q), .row_decode = {}};
  KeepAmax(d, q.amax, &out.amax, &out.row_decode);
  return out;
}

MmaOperand Sample(const OperandRecipe& recipe) {
  Matrix<float> x(1, 128, 1.0f);
  if (!recipe.format) return MakeMmaOperand(FormatOf(FormatId::kBF16), x.View());
  const DialectOptions options{.source = RandomSource{}};
  return WithCodes(*recipe.format, QuantizeAs(*recipe.format, x.View(), options));
}

}  // namespace

std::string WhyNotAccumulated(const GemmRecipe& recipe) {
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
  const Product pa = Prepare(call, a), pb = Prepare(call, b);
  const std::string problem = WhyNot(*recipe.accumulation, pa.operand, pb.operand);
  if (!problem.empty()) {
    throw Error("accumulation " + std::string(recipe.accumulation->name),
                problem + ", in operand " + std::string(OperandName(a.operand)) + " or " +
                    std::string(OperandName(b.operand)));
  }
  Matrix<float> y(c.rows, c.cols);
  GemmAs(*recipe.accumulation, pa.operand, pb.operand, {.alpha = AlphaOf(recipe, pa.amax, pb.amax)},
         y.View());
  ScaleRows(y.View(), pa.row_decode, pb.row_decode, accumulate, c);
}

}  // namespace fp4lab
