// Transformer Engine's calls, in the order in which its JAX dense layer makes them, give the
// results of the library's own linear under the recipe te_nvfp4 (nearest rounding).
#include "fp4lab/nn/linear.h"

#include <bit>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/te/gemm.h"
#include "fp4lab/te/quantize.h"
#include "fp4lab/transform/hadamard_transform.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr std::size_t kTokens = 128, kIn = 256, kOut = 384;

struct Tensor {
  std::vector<std::uint16_t> bits;
  Matrix<float> values;
  TeMatrix te = {};
};

Tensor RandomTensor(std::size_t rows, std::size_t cols, std::uint32_t id) {
  const RandomStream stream{.seed = 3, .tensor = id};
  Tensor t{.bits = std::vector<std::uint16_t>(rows * cols), .values = Matrix<float>(rows, cols)};
  for (std::size_t i = 0; i < t.bits.size(); ++i) {
    const PhiloxBlock r = stream.Block(i);
    const std::uint32_t exponent =
        120 + static_cast<std::uint32_t>(std::popcount(r[1] & 0xFFFFu)) / 2;
    t.bits[i] = static_cast<std::uint16_t>((r[0] & 0x807Fu) | exponent << 7);
    t.values.values[i] = std::bit_cast<float>(std::uint32_t{t.bits[i]} << 16);
  }
  t.te = {.bf16 = t.bits.data(), .rows = rows, .cols = cols};
  return t;
}

// Both outputs of a tensor.
struct Quantized2x {
  std::vector<std::uint8_t> row_codes, row_scales, column_codes, column_scales;
  PackedFp4 rows, columns;
  float amax = 0, column_amax = 0;

  Quantized2x(const TeMatrix& x, bool square)
      : row_codes(x.rows * x.cols / 2),
        row_scales(x.rows * x.cols / 16),
        column_codes(row_codes.size()),
        column_scales(row_scales.size()) {
    TeQuantization call{.square = square, .hadamard = !square, .sign_mask = kTeSignMask16};
    TeAmaxes(x, kTeSignMask16, &amax, &column_amax);
    if (square) column_amax = amax;
    call.rows = {row_codes.data(), row_scales.data(), x.cols / 16, amax};
    call.columns = {column_codes.data(), column_scales.data(), x.rows / 16, column_amax};
    TeQuantize(x, call);
    rows = {row_codes.data(), row_scales.data(), x.cols / 16, x.rows, x.cols};
    columns = {column_codes.data(), column_scales.data(), x.rows / 16, x.cols, x.rows};
  }
};

float Alpha(AlphaOrder order, float a, float b) {
  if (order == AlphaOrder::kReference) return a * b / 7225344.0f;
  if (order == AlphaOrder::kDecodeProduct) return a / 2688.0f * (b / 2688.0f);
  constexpr float kReciprocal = 1.0f / 2688.0f;
  return a * kReciprocal * (b * kReciprocal);
}

Matrix<float> Product(const PackedFp4& a, const PackedFp4& b, float alpha) {
  Matrix<float> out(a.rows, b.rows);
  PackedFp4Gemm(a, b, alpha, {}, {.fp32 = out.values.data(), .rows = a.rows, .cols = b.rows});
  return out;
}

TEST_CASE("Transformer Engine's calls give the library's own linear", "[te][nn]") {
  const Tensor x = RandomTensor(kTokens, kIn, 0), w = RandomTensor(kOut, kIn, 1);
  const Tensor dy = RandomTensor(kTokens, kOut, 2);
  const Quantized2x qx(x.te, false), qw(w.te, true), qdy(dy.te, false);

  const OperandRecipe lines{.format = *FindDialect("nvfp4.te")};
  const OperandRecipe square{.format = *FindDialect("nvfp4.te.2d")};
  OperandRecipe transformed = lines;
  transformed.hadamard = 16;
  for (const AlphaOrder order :
       {AlphaOrder::kReference, AlphaOrder::kDecodeProduct, AlphaOrder::kReciprocalProduct}) {
    const LinearRecipe recipe{.fprop = {.a = lines, .b = square, .alpha = order},
                              .dgrad = {.a = lines, .b = square, .alpha = order},
                              .wgrad = {.a = transformed, .b = transformed, .alpha = order}};
    LinearWeight weight;
    weight.w = w.values.View();
    LinearScratch scratch;
    Matrix<float> y(kTokens, kOut), dx(kTokens, kIn), dw(kOut, kIn, 0.0f);
    const LinearCall call;
    LinearForward(recipe, call, {x.values.View()}, &weight, &scratch, Write::kOverwrite, y.View());
    LinearBackward(recipe, call, {x.values.View()}, &weight, {dy.values.View()}, &scratch,
                   dx.View(), dw.View());
    CHECK(Product(qx.rows, qw.rows, Alpha(order, qx.amax, qw.amax)) == y);
    CHECK(Product(qdy.rows, qw.columns, Alpha(order, qdy.amax, qw.column_amax)) == dx);
    CHECK(Product(qdy.columns, qx.columns, Alpha(order, qdy.column_amax, qx.column_amax)) == dw);
  }
}

}  // namespace
}  // namespace fp4lab
