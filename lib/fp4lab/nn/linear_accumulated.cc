#include "fp4lab/nn/linear_accumulated.h"

#include <algorithm>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/operand.h"
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
  DialectOptions options{.source = RandomSource{call.random, from.recipe.random}};
  options.source->stream.tensor += static_cast<std::uint32_t>(from.operand);
  const Quantized q = QuantizeAs(d, x.View(), options);
  if (call.observer != nullptr) {
    Matrix<float> values(x.rows, x.cols);
    options.amax = q.amax;
    QuantizeToValues(d, x.View(), options, values.View());
    (*call.observer)(from.operand, x.View(), values.View(), d, options);
  }
  Product out{.operand = WithCodes(d, q), .row_decode = {}};
  for (const float amax : q.amax) {
    if (d.row_scaled) out.row_decode.push_back(OperandDecode(d, amax));
    out.amax = amax;
  }
  return out;
}

float AlphaOf(const GemmRecipe& recipe, const Product& a, const Product& b) {
  const bool has_a = recipe.a.format && !recipe.a.format->row_scaled;
  const bool has_b = recipe.b.format && !recipe.b.format->row_scaled;
  if (has_a && has_b) return GemmAlpha(*recipe.a.format, a.amax, *recipe.b.format, b.amax);
  if (has_a) return OperandDecode(*recipe.a.format, a.amax);
  return has_b ? OperandDecode(*recipe.b.format, b.amax) : 1.0f;
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
  GemmAs(*recipe.accumulation, pa.operand, pb.operand, {.alpha = AlphaOf(recipe, pa, pb)},
         y.View());
  ParallelFor(c.rows, [&](std::size_t i) {
    for (std::size_t j = 0; j < c.cols; ++j) {
      float v = y(i, j);
      if (!pa.row_decode.empty()) v *= pa.row_decode[i];
      if (!pb.row_decode.empty()) v *= pb.row_decode[j];
      c(i, j) = accumulate ? c(i, j) + v : v;
    }
  });
}

}  // namespace fp4lab
