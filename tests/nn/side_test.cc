// Side terms of operands: the bits of a scalar walk through the definition (nn/side/side_term.h),
// sums of both parts, and operands whose errors are known by hand.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/nn/side/side_term.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/tensor/gemm.h"
#include "tests/nn/linear_products.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;
constexpr std::size_t kTokens = 64, kIn = 96, kOut = 32;

// A tensor with a mean in each channel and channels that stand out.
Matrix<float> Planted(std::uint64_t seed, std::size_t rows, std::size_t cols, double deviation) {
  Matrix<float> x = NormalMatrix(seed, rows, cols, deviation);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      if (c % 13 == 5) x(r, c) *= 40.0f;
      x(r, c) += static_cast<float>(deviation * (c % 7 == 2 ? 3.0 : 0.1));
    }
  }
  return x;
}

LinearData PlantedData() {
  return {Planted(1, kTokens, kIn, 1.0), NormalMatrix(2, kOut, kIn, 0.1),
          Planted(3, kTokens, kOut, 1e-4)};
}

// The definition, one element at a time.

float R(bool bf16, float x) { return bf16 ? RoundToBf16(x) : x; }

Matrix<float> Rounded(bool bf16, const Matrix<float>& x) {
  Matrix<float> out = x;
  for (float& v : out.values) v = R(bf16, v);
  return out;
}

float MeanOf(bool bf16, const Matrix<float>& x, std::size_t c) {
  double sum = 0.0;
  for (std::size_t t = 0; t < x.rows; ++t) sum += x(t, c);
  return R(bf16, static_cast<float>(sum / static_cast<double>(x.rows)));
}

float SumOf(const Matrix<float>& x, std::size_t c) {
  double sum = 0.0;
  for (std::size_t t = 0; t < x.rows; ++t) sum += x(t, c);
  return static_cast<float>(sum);
}

std::vector<std::size_t> HotOf(const SideTerm& side, const Matrix<float>& x) {
  std::vector<double> statistic(x.cols, 0.0);
  for (std::size_t c = 0; c < x.cols; ++c) {
    for (std::size_t t = 0; t < x.rows; ++t) {
      const double v = x(t, c);
      const bool norm = side.by == ChannelStatistic::kNorm;
      statistic[c] = norm ? statistic[c] + v * v : std::max(statistic[c], std::fabs(v));
    }
  }
  std::vector<std::size_t> hot;
  while (hot.size() < HotChannelCount(side, x.cols)) {
    std::size_t best = x.cols;
    for (std::size_t c = 0; c < x.cols; ++c) {
      if (std::find(hot.begin(), hot.end(), c) != hot.end()) continue;
      if (best == x.cols || statistic[c] > statistic[best]) best = c;
    }
    hot.push_back(best);
  }
  std::sort(hot.begin(), hot.end());
  return hot;
}

// The tensor that Q takes.
Matrix<float> RestOf(const SideTerm& side, bool bf16, const Matrix<float>& tensor) {
  Matrix<float> x = Rounded(bf16, tensor);
  if (side.Is(SideTermKind::kMean)) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float mean = MeanOf(bf16, Rounded(bf16, tensor), c);
      for (std::size_t t = 0; t < x.rows; ++t) x(t, c) = R(bf16, x(t, c) - mean);
    }
  }
  if (side.Is(SideTermKind::kColumns)) {
    for (const std::size_t c : HotOf(side, Rounded(bf16, tensor))) {
      for (std::size_t t = 0; t < x.rows; ++t) x(t, c) = 0.0f;
    }
  }
  return x;
}

// The values that an operand without a transform stands for, in the tensor's orientation.
Matrix<float> Decoded(const OperandRecipe& recipe, LinearOperand operand, const Matrix<float>& x) {
  Matrix<float> turned(x.cols, x.rows), out(x.rows, x.cols);
  const bool columnwise = IsColumnwise(operand);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) turned(c, r) = x(r, c);
  }
  const Matrix<float>& from = columnwise ? turned : x;
  const DialectOptions options{.source = RandomSourceOf(recipe, operand, {.random = kRandom})};
  const Quantized q = reference::QuantizeAs(*recipe.format, from.View(), options);
  Matrix<float> values(from.rows, from.cols);
  ToOperandValues(*recipe.format, q, values.View());
  for (std::size_t r = 0; r < from.rows; ++r) {
    const float amax = q.amax.empty() ? 0.0f : q.amax[recipe.format->row_scaled ? r : 0];
    const float decode = OperandDecode(*recipe.format, amax);
    for (std::size_t c = 0; c < from.cols; ++c) {
      (columnwise ? out(c, r) : out(r, c)) = values(r, c) * decode;
    }
  }
  return out;
}

// The part of the tensor whose product is a side term's, as whole as the tensor: for the sums of
// hot channels.
Matrix<float> SideOf(const OperandRecipe& recipe, LinearOperand operand, bool bf16,
                     const Matrix<float>& tensor) {
  const Matrix<float> x = Rounded(bf16, tensor);
  const std::vector<std::size_t> hot = HotOf(recipe.side, x);
  Matrix<float> side(x.rows, hot.size());
  const bool patch = recipe.side.Is(SideTermKind::kPatch);
  const Matrix<float> decoded = patch ? Decoded(recipe, operand, x) : Matrix<float>();
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t i = 0; i < hot.size(); ++i) {
      const float whole = x(t, hot[i]);
      side(t, i) = patch ? R(bf16, whole - decoded(t, hot[i])) : whole;
    }
  }
  return side;
}

// c (tokens, n) += S; other (n, channels).
void AddAlongChannels(const OperandRecipe& recipe, LinearOperand operand, bool bf16,
                      const Matrix<float>& tensor, const Matrix<float>& other, Matrix<float>* c) {
  const Matrix<float> b = Rounded(bf16, other), x = Rounded(bf16, tensor);
  const std::vector<std::size_t> hot = HotOf(recipe.side, x);
  const bool mean = recipe.side.Is(SideTermKind::kMean);
  const Matrix<float> side = mean ? Matrix<float>() : SideOf(recipe, operand, bf16, tensor);
  for (std::size_t t = 0; t < c->rows; ++t) {
    for (std::size_t n = 0; n < c->cols; ++n) {
      float sum = 0.0f;
      if (mean) {
        for (std::size_t k = 0; k < x.cols; ++k) sum = std::fma(MeanOf(bf16, x, k), b(n, k), sum);
      }
      for (std::size_t i = 0; i < hot.size(); ++i) {
        sum = std::fma(side(t, i), b(n, hot[i]), sum);
      }
      (*c)(t, n) += sum;
    }
  }
}

// c (channels, n), or (n, channels), += S; b (tokens, n), rounded.
void AddAlongTokens(const OperandRecipe& recipe, LinearOperand operand, bool bf16,
                    const Matrix<float>& tensor, const Matrix<float>& b, Matrix<float>* c) {
  const Matrix<float> x = Rounded(bf16, tensor);
  const auto at = [&](std::size_t channel, std::size_t n) -> float& {
    return operand == kWgradGrad ? (*c)(channel, n) : (*c)(n, channel);
  };
  if (recipe.side.Is(SideTermKind::kMean)) {
    for (std::size_t k = 0; k < x.cols; ++k) {
      for (std::size_t n = 0; n < b.cols; ++n) at(k, n) += MeanOf(bf16, x, k) * SumOf(b, n);
    }
    return;
  }
  const std::vector<std::size_t> hot = HotOf(recipe.side, x);
  const Matrix<float> side = SideOf(recipe, operand, bf16, tensor);
  for (std::size_t i = 0; i < hot.size(); ++i) {
    for (std::size_t n = 0; n < b.cols; ++n) {
      float sum = 0.0f;
      for (std::size_t t = 0; t < x.rows; ++t) sum = std::fma(side(t, i), b(t, n), sum);
      at(hot[i], n) += sum;
    }
  }
}

Matrix<float> Turned(const Matrix<float>& x) {
  Matrix<float> out(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) out(c, r) = x(r, c);
  }
  return out;
}

LinearRecipe WithoutSides(LinearRecipe recipe) {
  for (GemmRecipe* gemm : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
    gemm->a.side = gemm->b.side = {};
  }
  return recipe;
}

// The three products: those of what is left of each tensor, under the recipe without side terms
// (linear_test has their definition), and the side terms on top.
Products Expected(const LinearRecipe& recipe, const LinearData& data) {
  const bool bf16 = recipe.bf16;
  const LinearRecipe plain = WithoutSides(recipe);
  const auto rest = [&](const OperandRecipe& operand, const Matrix<float>& x) {
    return operand.side ? RestOf(operand.side, bf16, x) : x;
  };
  Products out = ProductsOf(plain, {rest(recipe.fprop.a, data.x), data.w, data.dy});
  out.dx = ProductsOf(plain, {data.x, data.w, rest(recipe.dgrad.a, data.dy)}).dx;
  const Matrix<float> dy = rest(recipe.wgrad.a, data.dy);
  out.dw = ProductsOf(plain, {rest(recipe.wgrad.b, data.x), data.w, dy}).dw;
  if (recipe.fprop.a.side) {
    AddAlongChannels(recipe.fprop.a, kFpropInput, bf16, data.x, data.w, &out.y);
  }
  if (recipe.dgrad.a.side) {
    AddAlongChannels(recipe.dgrad.a, kDgradGrad, bf16, data.dy, Turned(data.w), &out.dx);
  }
  if (recipe.wgrad.a.side) {
    AddAlongTokens(recipe.wgrad.a, kWgradGrad, bf16, data.dy, Rounded(bf16, data.x), &out.dw);
  }
  if (recipe.wgrad.b.side) {
    AddAlongTokens(recipe.wgrad.b, kWgradInput, bf16, data.x, Rounded(bf16, dy), &out.dw);
  }
  return out;
}

// `base` with one side term in the operands of `operands`, or in all four.
LinearRecipe With(const Json& base, const Json& side, const char* operands = "xgGX") {
  Json recipe = base.is_string() ? Json{{"base", base}} : base;
  const std::string chosen = operands;
  const auto put = [&](char letter, const char* gemm, const char* operand) {
    if (chosen.find(letter) != std::string::npos) recipe[gemm][operand]["side"] = side;
  };
  put('x', "fprop", "input");
  put('g', "dgrad", "grad");
  put('G', "wgrad", "grad");
  put('X', "wgrad", "input");
  return ReadRecipe(recipe, "test").linear;
}

Json Hot(const char* term, const Json& channels, const char* by = "amax") {
  return {{"term", term}, {"channels", channels}, {"by", by}};
}

void CheckBits(const LinearRecipe& recipe, const LinearData& data) {
  const Products expected = Expected(recipe, data);
  const int threads = Threads();
  for (const int n : {1, 3}) {
    SetThreads(n);
    for (const std::string& target : SimdTargets()) {
      CAPTURE(n, target);
      PinSimdTarget(target);
      const Products got = ProductsOf(recipe, data);
      CHECK(SameBits(got.y, expected.y));
      CHECK(SameBits(got.dx, expected.dx));
      CHECK(SameBits(got.dw, expected.dw));
    }
    PinSimdTarget("best");
  }
  SetThreads(threads);
}

TEST_CASE("Side terms have the bits of their definition, on every target and for any threads",
          "[nn]") {
  const LinearData data = PlantedData();
  const Json rows = {{"base", "bf16"},
                     {"fprop", {{"input", {{"format", "nvfp4.te.row-scaled"}}}}},
                     {"wgrad", {{"input", {{"format", "nvfp4.te.row-scaled"}}}}}};
  for (const Json& side : {Json("mean"), Hot("columns", 3), Hot("columns", "7%", "norm")}) {
    for (const Json& base : {Json("te_nvfp4"), Json("mxfp4"), Json("te_fp8_currentscaling"), rows,
                             Json("bf16"), Json("fp32")}) {
      CAPTURE(side.dump(), base.dump());
      CheckBits(With(base, side), data);
    }
  }
  for (const Json& side : {Hot("patch", 3), Hot("patch", "7%", "norm")}) {
    for (const Json& base : {Json("te_nvfp4_no_rht"), Json("te_mxfp8"),
                             Json({{"base", "mxfp4"}, {"disable_rht", true}})}) {
      CAPTURE(side.dump(), base.dump());
      CheckBits(With(base, side), data);
    }
    CheckBits(With(rows, side, "xX"), data);
  }
}

TEST_CASE("Each operand has a side term of its own", "[nn]") {
  const LinearData data = PlantedData();
  for (const char* operands : {"x", "g", "G", "X", "xX", "gG"}) {
    CAPTURE(operands);
    for (const Json& side : {Json("mean"), Hot("columns", 3), Hot("patch", 3)}) {
      CheckBits(With("te_nvfp4_no_rht", side, operands), data);
    }
  }
}

TEST_CASE("An observer sees what is quantized of an operand, and changes no bit", "[nn]") {
  const LinearData data = PlantedData();
  const LinearRecipe recipe = With("te_nvfp4_no_rht", "mean", "xX");
  int seen = 0;
  const OperandObserver look = [&](const ObservedOperand& operand) {
    if (operand.operand != kFpropInput) return;
    ++seen;
    const Matrix<float> rest = RestOf(recipe.fprop.a.side, true, data.x);
    std::size_t different = 0;
    for (std::size_t r = 0; r < rest.rows; ++r) {
      for (std::size_t c = 0; c < rest.cols; ++c) {
        different += operand.before(r, c) != rest(r, c) ? 1 : 0;
      }
    }
    CHECK(different == 0);
  };
  const Products observed = ProductsOf(recipe, data, &look), plain = ProductsOf(recipe, data);
  CHECK(seen == 1);
  CHECK(SameBits(observed.y, plain.y));
  CHECK(SameBits(observed.dw, plain.dw));
}

// ||x - truth|| / ||truth||.
double RelativeError(const Matrix<float>& x, const Matrix<double>& truth, double start) {
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    error += std::pow(x.values[i] - start - truth.values[i], 2);
    norm += std::pow(truth.values[i], 2);
  }
  return std::sqrt(error / norm);
}

struct Truth {
  Matrix<double> y = Matrix<double>(kTokens, kOut), dx = Matrix<double>(kTokens, kIn),
                 dw = Matrix<double>(kOut, kIn);
};

Truth TruthOf(bool bf16, const LinearData& data) {
  const Matrix<float> x = Rounded(bf16, data.x), w = Rounded(bf16, data.w),
                      dy = Rounded(bf16, data.dy);
  Truth truth;
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t o = 0; o < kOut; ++o) {
      for (std::size_t i = 0; i < kIn; ++i) {
        truth.y(t, o) += double{x(t, i)} * w(o, i);
        truth.dx(t, i) += double{dy(t, o)} * w(o, i);
        truth.dw(o, i) += double{dy(t, o)} * x(t, i);
      }
    }
  }
  return truth;
}

TEST_CASE("Without quantization, both parts add up to the product in binary64", "[nn]") {
  const LinearData data = PlantedData();
  // bf16: mu and r are rounded to 8 bits; columns are only moved.
  const struct {
    const char* base;
    Json side;
    double bound;
  } cases[] = {{"fp32", "mean", 3e-6},
               {"fp32", Hot("columns", 5), 3e-6},
               {"bf16", "mean", 4e-3},
               {"bf16", Hot("columns", 5), 3e-6}};
  for (const auto& [base, side, bound] : cases) {
    CAPTURE(base, side.dump());
    const LinearRecipe recipe = With(base, side);
    const Truth truth = TruthOf(recipe.bf16, data);
    const Products got = ProductsOf(recipe, data);
    CHECK(RelativeError(got.y, truth.y, 0.5) < bound);
    CHECK(RelativeError(got.dx, truth.dx, 0.0) < bound);
    CHECK(RelativeError(got.dw, truth.dw, 0.25) < bound);
  }
}

TEST_CASE("Hot channels lower the errors of all three products of planted outliers", "[nn]") {
  const LinearData data = PlantedData();
  const Truth truth = TruthOf(true, data);
  const auto errors = [&](const LinearRecipe& recipe) {
    const Products got = ProductsOf(recipe, data);
    return std::array{RelativeError(got.y, truth.y, 0.5), RelativeError(got.dx, truth.dx, 0.0),
                      RelativeError(got.dw, truth.dw, 0.25)};
  };
  // Out of the block of its outlier, each channel beside it is finer.
  const auto plain = errors(ReadRecipe("te_nvfp4_no_rht", "test").linear);
  const auto columns = errors(With("te_nvfp4_no_rht", Hot("columns", 9)));
  for (std::size_t i = 0; i < 3; ++i) CHECK(columns[i] < 0.95 * plain[i]);
  // A patch takes away the error of the outliers alone, and none of the weight's.
  const Json exact_weight = {{"base", "te_nvfp4_no_rht"},
                             {"fprop", {{"weight", {{"format", "none"}}}}},
                             {"dgrad", {{"weight", {{"format", "none"}}}}}};
  const auto inputs = errors(ReadRecipe(exact_weight, "test").linear);
  const auto patched = errors(With(exact_weight, Hot("patch", 9)));
  for (std::size_t i = 0; i < 3; ++i) CHECK(patched[i] < inputs[i]);
  const auto all = errors(With(exact_weight, Hot("patch", "100%")));
  CHECK(all[0] < 0.05 * inputs[0]);
  CHECK(all[1] < 0.05 * inputs[1]);
}

// y of one token's sum: w is a row of ones that is not quantized, x is nvfp4.te.
float Sum(const std::vector<std::vector<float>>& tokens, const Json& side) {
  const std::size_t cols = tokens.front().size();
  Matrix<float> x(tokens.size(), cols);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    std::copy(tokens[t].begin(), tokens[t].end(), &x.View()(t, 0));
  }
  const Matrix<float> w(1, cols, 1.0f);
  const Json recipe = {{"base", "bf16"},
                       {"fprop", {{"input", {{"format", "nvfp4.te"}, {"side", side}}}}}};
  LinearWeight weight;
  weight.w = w.View();
  LinearScratch scratch;
  Matrix<float> y(tokens.size(), 1);
  LinearForward(ReadRecipe(recipe, "test").linear, {kRandom}, {x.View()}, &weight, &scratch,
                Write::kOverwrite, y.View());
  return y(0, 0);
}

TEST_CASE("The error of a block with an outlier is the one computed by hand", "[nn]") {
  // 2688 = 6 * 448 makes the tensor scale 1 and the block's scale 448. Of 15 elements beside it,
  // 100 is 0.22 of a scale and rounds to 0: the sum of 2688 + 15 * 100 loses 1500.
  std::vector<float> row(16, 100.0f);
  row[0] = 2688.0f;
  CHECK(Sum({row}, "none") == 2688.0f);
  // Without the outlier, 100 is its block's largest magnitude, and exact but for the tensor scale.
  CHECK(Sum({row}, Hot("columns", 1)) == Catch::Approx(4188.0f).epsilon(1e-6));
  // The outlier is exact, so its patch adds nothing; each further hot channel gives 100 back.
  CHECK(Sum({row}, Hot("patch", 1)) == 2688.0f);
  CHECK(Sum({row}, Hot("patch", 4)) == 2988.0f);
  CHECK(Sum({row}, Hot("patch", "100%")) == 4188.0f);
  // Two tokens around a mean of (2688, 0, ..): the rest is +-100 alone.
  std::vector<float> other(16, -100.0f);
  other[0] = 2688.0f;
  CHECK(Sum({row, other}, "none") == 2688.0f);
  CHECK(Sum({row, other}, "mean") == Catch::Approx(4188.0f).epsilon(1e-6));
}

TEST_CASE("Of equal channels the first are hot, a NaN counts as 0, and no token has no mean",
          "[nn]") {
  Matrix<float> x(2, 6, 1.0f);
  x(0, 1) = std::numeric_limits<float>::quiet_NaN();
  x(1, 1) = 0.5f;
  x(1, 4) = -3.0f;
  for (const ChannelStatistic by : {ChannelStatistic::kAmax, ChannelStatistic::kNorm}) {
    SplitTensor split;
    Split({SideTermKind::kColumns, by, 3}, true, {x.View()}, &split);
    CHECK(split.hot == std::vector<std::size_t>{0, 2, 4});
    CHECK(split.side(1, 2) == -3.0f);
    CHECK(split.rest.x(1, 4) == 0.0f);
    CHECK(split.rest.x(1, 5) == 1.0f);
  }
  CHECK(HotChannelCount({SideTermKind::kPatch, ChannelStatistic::kAmax, 0, 1.0}, 128) == 2);
  CHECK(HotChannelCount({SideTermKind::kPatch, ChannelStatistic::kAmax, 0, 1.0}, 100) == 1);
  CHECK(HotChannelCount({SideTermKind::kMean}, 100) == 0);
  const Matrix<float> none(0, 6);
  SplitTensor split;
  Split({SideTermKind::kMean}, true, {none.View()}, &split);
  CHECK(split.mean == std::vector<float>(6, 0.0f));
}

TEST_CASE("A side term is added to a product with an accumulation of its own", "[nn]") {
  const LinearData data = PlantedData();
  const Json base = {
      {"base", "te_nvfp4"},
      {"accumulation", {{"fprop", "exact"}, {"wgrad", "exact"}, {"dgrad", "exact"}}}};
  CheckBits(With(base, "mean"), data);
  CheckBits(With(base, Hot("columns", 3)), data);
}

}  // namespace
}  // namespace fp4lab
