#include "fp4lab/nn/linear.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/tensor/gemm.h"
#include "fp4lab/transform/hadamard.h"
#include "tests/nn/linear_products.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;
constexpr std::size_t kTokens = 64, kIn = 96, kOut = 32;

// An operand as the scalar references make it from a dense copy.
struct Operand {
  Matrix<float> values;   // multiplied by the GEMM
  Matrix<float> decoded;  // with the tensor scale
  float amax = 0.0f;
  std::vector<float> row_decode = {};  // of a row-scaled dialect
};

Operand Expected(const OperandRecipe& recipe, bool bf16, LinearOperand which, View x) {
  Operand out{Matrix<float>(x.rows, x.cols), Matrix<float>(x.rows, x.cols)};
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      out.values(r, c) = bf16 ? RoundToBf16(x(r, c)) : x(r, c);
    }
  }
  if (recipe.hadamard != 0) {
    const std::uint32_t signs = recipe.hadamard == 16 ? kTeSignMask16 : kTeSignMask32;
    reference::RandomHadamard(out.values.View(), recipe.hadamard, signs, out.values.View());
  }
  out.decoded = out.values;
  if (!recipe.format) return out;
  const Dialect& d = *recipe.format;
  DialectOptions options{.source = RandomSource{kRandom, recipe.random}};
  options.source->stream.tensor += static_cast<std::uint32_t>(which);
  const Quantized q = reference::QuantizeAs(d, out.values.View(), options);
  for (const float amax : q.amax) {
    if (d.row_scaled) out.row_decode.push_back(OperandDecode(d, amax));
    out.amax = amax;
  }
  reference::QuantizeToValues(d, out.values.View(), options, out.values.View());
  out.decoded = DequantizeAs(d, q);
  return out;
}

struct Product {
  Matrix<float> y;          // by the reference GEMM with the stated block and alpha
  Matrix<double> double_y;  // of the decoded operands, in binary64
};

Product Multiply(const GemmRecipe& recipe, const Operand& a, const Operand& b) {
  GemmOptions options;
  const bool scaled_a = recipe.a.format && a.row_decode.empty();
  const bool scaled_b = recipe.b.format && b.row_decode.empty();
  if (recipe.a.format && recipe.b.format) {
    options.block = std::min(recipe.a.format->block_cols, recipe.b.format->block_cols);
  }
  if (scaled_a && scaled_b) {
    options.alpha = GemmAlpha(*recipe.a.format, a.amax, *recipe.b.format, b.amax);
  } else if (scaled_a) {
    options.alpha = OperandDecode(*recipe.a.format, a.amax);
  } else if (scaled_b) {
    options.alpha = OperandDecode(*recipe.b.format, b.amax);
  }
  Product out{Matrix<float>(a.values.rows, b.values.rows),
              Matrix<double>(a.values.rows, b.values.rows)};
  reference::Gemm(a.values.View(), b.values.View(), options, out.y.View());
  for (std::size_t i = 0; i < a.values.rows; ++i) {
    for (std::size_t j = 0; j < b.values.rows; ++j) {
      if (!a.row_decode.empty()) out.y(i, j) *= a.row_decode[i];
      if (!b.row_decode.empty()) out.y(i, j) *= b.row_decode[j];
      for (std::size_t k = 0; k < a.values.cols; ++k) {
        out.double_y(i, j) += double{a.decoded(i, k)} * b.decoded(j, k);
      }
    }
  }
  return out;
}

// ||x - truth|| / ||truth||.
double RelativeError(const Matrix<float>& x, const Matrix<double>& truth) {
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    error += std::pow(x.values[i] - truth.values[i], 2);
    norm += std::pow(truth.values[i], 2);
  }
  return error == 0.0 ? 0.0 : std::sqrt(error / norm);
}

std::vector<Json> TestedRecipes() {
  std::vector<Json> recipes;
  for (const std::string& name : RecipeNames()) recipes.push_back(name);
  recipes.push_back({{"base", "mxfp4"}, {"weight_block", "1d"}, {"scale_rule", "floor"}});
  recipes.push_back({{"base", "te_nvfp4"}, {"disable_2d_quantization", true}});
  recipes.push_back({{"base", "te_nvfp4"}, {"forward_only", true}});
  recipes.push_back({{"base", "te_nvfp4"}, {"fprop", {{"input", {{"format", "mxfp4.ceil"}}}}}});
  recipes.push_back({{"base", "te_nvfp4"}, {"fprop", {{"weight", {{"format", "none"}}}}}});
  recipes.push_back({{"base", "te_nvfp4"}, {"fprop", {{"weight", {{"rounding", "stochastic"}}}}}});
  return recipes;
}

// Recipes with one dialect of the table in all operands and gradients rounded stochastically.
std::vector<Json> RecipesOfDialects() {
  std::vector<Json> recipes;
  for (const Dialect& d : Dialects()) {
    const Json plain{{"format", d.name}};
    Json random = plain;
    random["rounding"] = "stochastic";
    random["random_bits"] = recipes.size() % 2 == 0 ? 16 : 8;
    recipes.push_back({{"base", "bf16"},
                       {"fprop", {{"input", plain}, {"weight", plain}}},
                       {"dgrad", {{"grad", random}, {"weight", plain}}},
                       {"wgrad", {{"grad", random}, {"input", plain}}}});
  }
  return recipes;
}

LinearData NormalData() {
  return {NormalMatrix(1, kTokens, kIn), NormalMatrix(2, kOut, kIn, 0.1),
          NormalMatrix(3, kTokens, kOut, 1e-4)};
}

TEST_CASE("A linear's three products are those of the references, for every recipe", "[nn]") {
  const LinearData data = NormalData();
  const Matrix<float>&x = data.x, &w = data.w, &dy = data.dy;
  std::vector<Json> recipes = TestedRecipes();
  for (const Json& json : RecipesOfDialects()) recipes.push_back(json);
  for (const Json& json : recipes) {
    CAPTURE(json.dump());
    const LinearRecipe r = ReadRecipe(json, "test").linear;
    const auto operand = [&](const OperandRecipe& o, LinearOperand which, View v) {
      return Expected(o, r.bf16, which, v);
    };
    const Product y = Multiply(r.fprop, operand(r.fprop.a, kFpropInput, x.View()),
                               operand(r.fprop.b, kFpropWeight, w.View()));
    const Product dx = Multiply(r.dgrad, operand(r.dgrad.a, kDgradGrad, dy.View()),
                                operand(r.dgrad.b, kDgradWeight, w.View().Transposed()));
    const Product dw = Multiply(r.wgrad, operand(r.wgrad.a, kWgradGrad, dy.View().Transposed()),
                                operand(r.wgrad.b, kWgradInput, x.View().Transposed()));
    LinearWeight weight;
    weight.w = w.View();
    LinearScratch scratch;
    const LinearCall call{kRandom};
    Matrix<float> my_y(kTokens, kOut), my_dx(kTokens, kIn), my_dw(kOut, kIn);
    LinearForward(r, call, {x.View()}, &weight, &scratch, Write::kOverwrite, my_y.View());
    LinearBackward(r, call, {x.View()}, &weight, {dy.View()}, &scratch, my_dx.View(), my_dw.View());
    CHECK(SameBits(my_y, y.y));
    CHECK(SameBits(my_dx, dx.y));
    CHECK(SameBits(my_dw, dw.y));
    CHECK(RelativeError(my_y, y.double_y) < 2e-6);
    CHECK(RelativeError(my_dx, dx.double_y) < 2e-6);
    CHECK(RelativeError(my_dw, dw.double_y) < 2e-6);
  }
}

// `base` with one accumulation in all three GEMMs.
Json Accumulated(const std::string& base, const std::string& name) {
  return {{"base", base}, {"accumulation", {{"fprop", name}, {"dgrad", name}, {"wgrad", name}}}};
}

Products ProductsOf(const Json& json, const LinearData& data) {
  return ProductsOf(ReadRecipe(json, "test").linear, data, nullptr, 0.0f, 0.0f);
}

TEST_CASE("Blocks that are summed one after the other are the order of every FP4 GEMM", "[nn]") {
  const LinearData data = NormalData();
  for (const char* base : {"te_nvfp4", "mxfp4"}) {
    CAPTURE(base);
    const Products usual = ProductsOf(base, data);
    const Products stated = ProductsOf(Accumulated(base, "fp32-blocks"), data);
    CHECK(SameBits(stated.y, usual.y));
    CHECK(SameBits(stated.dx, usual.dx));
    CHECK(SameBits(stated.dw, usual.dw));
  }
}

TEST_CASE("A stated accumulation serves all three GEMMs", "[nn]") {
  const LinearData data = NormalData();
  for (const char* base : {"bf16", "te_nvfp4"}) {
    const Products exact = ProductsOf(Accumulated(base, "exact"), data);
    const Products usual = ProductsOf(base, data);
    const auto near = [](const Matrix<float>& x, const Matrix<float>& y) {
      Matrix<double> truth(y.rows, y.cols);
      std::copy(y.values.begin(), y.values.end(), truth.values.begin());
      return RelativeError(x, truth);
    };
    const std::string core = base == std::string("bf16") ? "hopper.f16.f32" : "blackwell.mxf4.f32";
    for (const std::string& name : {std::string("exact"), std::string("fp32-sequential"), core}) {
      CAPTURE(base, name);
      const Products p = ProductsOf(Accumulated(base, name), data);
      CHECK(near(p.y, exact.y) < 1e-6);
      CHECK(near(p.dx, exact.dx) < 1e-6);
      CHECK(near(p.dw, exact.dw) < 1e-6);
      CHECK(near(p.y, usual.y) < 1e-6);
      CHECK(near(p.dx, usual.dx) < 1e-6);
      CHECK(near(p.dw, usual.dw) < 1e-6);
    }
  }
}

TEST_CASE("An input that is rounded already gives the same products, with its amax and without",
          "[nn]") {
  const LinearData data = NormalData();
  Matrix<float> x(kTokens, kIn), dy(kTokens, kOut);
  const float amax_x = RoundBf16(data.x.View(), x.View());
  const float amax_dy = RoundBf16(data.dy.View(), dy.View());
  for (const Json& json : TestedRecipes()) {
    const LinearRecipe r = ReadRecipe(json, "test").linear;
    if (!r.bf16) continue;
    CAPTURE(json.dump());
    LinearWeight weight;
    weight.w = data.w.View();
    LinearScratch scratch;
    const LinearCall call{kRandom};
    Matrix<float> y[3], dx[3], dw[3];
    for (int i = 0; i < 3; ++i) {
      y[i] = Matrix<float>(kTokens, kOut);
      dx[i] = Matrix<float>(kTokens, kIn);
      dw[i] = Matrix<float>(kOut, kIn);
      const LinearInput input = i == 0   ? LinearInput{data.x.View()}
                                : i == 1 ? LinearInput{x.View(), true, amax_x}
                                         : LinearInput{.x = x.View(), .rounded = true};
      const LinearInput grad = i == 0   ? LinearInput{data.dy.View()}
                               : i == 1 ? LinearInput{dy.View(), true, amax_dy}
                                        : LinearInput{.x = dy.View(), .rounded = true};
      LinearForward(r, call, input, &weight, &scratch, Write::kOverwrite, y[i].View());
      LinearBackward(r, call, input, &weight, grad, &scratch, dx[i].View(), dw[i].View());
    }
    for (int i = 1; i < 3; ++i) {
      CHECK(SameBits(y[0], y[i]));
      CHECK(SameBits(dx[0], dx[i]));
      CHECK(SameBits(dw[0], dw[i]));
    }
  }
}

TEST_CASE("Forward adds to y where asked, backward always adds to dw", "[nn]") {
  const LinearData data = NormalData();
  const LinearRecipe recipe = ReadRecipe(Json("te_nvfp4"), "test").linear;
  LinearWeight weight;
  weight.w = data.w.View();
  LinearScratch scratch;
  Matrix<float> once(kTokens, kOut), twice(kTokens, kOut), dx(kTokens, kIn), dw(kOut, kIn);
  const LinearCall call{kRandom};
  LinearForward(recipe, call, {data.x.View()}, &weight, &scratch, Write::kOverwrite, once.View());
  twice = once;
  LinearForward(recipe, call, {data.x.View()}, &weight, &scratch, Write::kAccumulate, twice.View());
  for (float& v : once.values) v *= 2.0f;
  CHECK(SameBits(once, twice));
  LinearBackward(recipe, call, {data.x.View()}, &weight, {data.dy.View()}, &scratch, dx.View(),
                 dw.View());
  Matrix<float> doubled = dw;
  LinearBackward(recipe, call, {data.x.View()}, &weight, {data.dy.View()}, &scratch, dx.View(),
                 dw.View());
  for (float& v : doubled.values) v *= 2.0f;
  CHECK(SameBits(doubled, dw));
}

TEST_CASE("A weight that micro-batches share gives each the products of a weight of its own",
          "[nn]") {
  std::vector<Json> recipes = TestedRecipes();
  for (const PublishedRecipe& r : PublishedRecipes()) recipes.push_back(r.name);
  constexpr std::size_t kSize = 128;  // every recipe's blocks and transforms divide it
  const Matrix<float> w = NormalMatrix(2, kSize, kSize, 0.1);
  const LinearData first{NormalMatrix(1, kSize, kSize), w, NormalMatrix(3, kSize, kSize, 1e-4)};
  const LinearData second{NormalMatrix(4, kSize, kSize), w, NormalMatrix(5, kSize, kSize, 1e-4)};
  const LinearCall call{kRandom};
  for (const Json& json : recipes) {
    const LinearRecipe r = ReadRecipe(json, "test").linear;
    if (AmaxHistoryFloats(ReadRecipe(json, "test")) > 0) continue;  // it needs histories
    CAPTURE(json.dump());
    LinearWeight weight;
    weight.w = w.View();
    LinearScratch scratch;
    for (const LinearData* data : {&first, &second}) {
      Matrix<float> y(kSize, kSize), dx(kSize, kSize), dw(kSize, kSize);
      LinearForward(r, call, {data->x.View()}, &weight, &scratch, Write::kOverwrite, y.View());
      LinearBackward(r, call, {data->x.View()}, &weight, {data->dy.View()}, &scratch, dx.View(),
                     dw.View());
      const Products own = ProductsOf(r, *data, nullptr, 0.0f, 0.0f);
      CHECK(SameBits(y, own.y));
      CHECK(SameBits(dx, own.dx));
      CHECK(SameBits(dw, own.dw));
    }
  }
}

TEST_CASE("dgrad multiplies by the values that fprop's random bits gave, in all micro-batches",
          "[nn]") {
  const LinearRecipe recipe =
      ReadRecipe({{"base", "bf16"},
                  {"fprop",
                   {{"input", {{"format", "nvfp4.te"}}},
                    {"weight", {{"format", "nvfp4.te"}, {"rounding", "stochastic"}}}}},
                  {"dgrad", {{"weight", {{"from", "fprop"}}}}}},
                 "test")
          .linear;
  for (const std::size_t out :
       {std::size_t{32}, std::size_t{4096}}) {  // a small and a large weight
    CAPTURE(out);
    const Matrix<float> w = NormalMatrix(2, out, kIn, 0.1), x = NormalMatrix(1, kTokens, kIn),
                        dy = NormalMatrix(3, kTokens, out);
    LinearCall call{kRandom};
    LinearWeight weight;
    weight.w = w.View();
    LinearScratch scratch;
    Matrix<float> dx[2];
    for (Matrix<float>& d : dx) {
      Matrix<float> y(kTokens, out), dw(out, kIn);
      d = Matrix<float>(kTokens, kIn);
      LinearForward(recipe, call, {x.View()}, &weight, &scratch, Write::kOverwrite, y.View());
      LinearBackward(recipe, call, {x.View()}, &weight, {dy.View()}, &scratch, d.View(), dw.View());
      call.random.tensor += 100;  // the next micro-batch has other random bits
    }
    CHECK(SameBits(dx[0], dx[1]));
  }
}

TEST_CASE("Quantized weights are kept until Changed() and per recipe", "[nn]") {
  LinearData data = NormalData();
  const LinearRecipe nvfp4 = ReadRecipe(Json("te_nvfp4"), "test").linear;
  const LinearRecipe bf16 = ReadRecipe(Json("bf16"), "test").linear;
  LinearWeight weight;
  weight.w = data.w.View();
  LinearScratch scratch;
  Matrix<float> first(kTokens, kOut), y(kTokens, kOut);
  const auto forward = [&](const LinearRecipe& recipe, Matrix<float>* out) {
    LinearForward(recipe, LinearCall{kRandom}, {data.x.View()}, &weight, &scratch,
                  Write::kOverwrite, out->View());
  };
  forward(nvfp4, &first);
  for (float& v : data.w.values) v = -v;
  forward(nvfp4, &y);
  CHECK(SameBits(first, y));
  weight.Changed();
  forward(nvfp4, &y);
  for (float& v : first.values) v = -v;
  CHECK(y.values == first.values);
  forward(bf16, &y);
  CHECK(y.values != first.values);
  forward(nvfp4, &y);
  CHECK(y.values == first.values);
}

TEST_CASE("An observer sees every quantized operand before and after", "[nn]") {
  const LinearData data = NormalData();
  const LinearRecipe recipe = ReadRecipe(Json("te_nvfp4"), "test").linear;
  std::vector<std::string> seen;
  const OperandObserver observer = [&](const ObservedOperand& operand) {
    seen.push_back(std::string(OperandName(operand.operand)));
    const View before = operand.before;
    Matrix<float> again(before.rows, before.cols);
    reference::QuantizeToValues(operand.dialect, before, operand.options, again.View());
    bool same = true;
    for (std::size_t r = 0; r < before.rows; ++r) {
      for (std::size_t c = 0; c < before.cols; ++c) same &= again(r, c) == operand.values(r, c);
    }
    CHECK(same);
    CHECK(operand.quantized == QuantizeAs(operand.dialect, before, operand.options));
  };
  LinearWeight weight;
  weight.w = data.w.View();
  LinearScratch scratch;
  Matrix<float> y(kTokens, kOut), dx(kTokens, kIn), dw(kOut, kIn);
  const LinearCall call{kRandom, &observer};
  LinearForward(recipe, call, {data.x.View()}, &weight, &scratch, Write::kOverwrite, y.View());
  LinearBackward(recipe, call, {data.x.View()}, &weight, {data.dy.View()}, &scratch, dx.View(),
                 dw.View());
  CHECK(seen == std::vector<std::string>{"fprop.weight", "fprop.input", "dgrad.grad", "wgrad.grad",
                                         "wgrad.input"});
}

TEST_CASE("RoundBf16 gives the reference's bits and amax on every SIMD target", "[nn]") {
  Matrix<float> x = NormalMatrix(5, 7, 161, 3.0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {nan,       -nan,      -0.0f, 1e-40f,   3.4028235e38f,
                           0x1.01p0f, 0x1.03p0f, 0.0f,  -1.5e30f, 0x1.008p0f};
  std::copy(std::begin(special), std::end(special), x.values.begin() + 30);
  Matrix<float> expected(7, 161), out(7, 161), whole(7, 161);
  for (const float last : {1.0f, -inf}) {
    x.values[800] = last;
    for (const MatrixView<const float> part :
         {View(x.View()), View(x.View().Block(1, 3, 5, 143))}) {
      const MatrixView<float> to = part.rows == 7 ? out.View() : out.View().Block(1, 3, 5, 143);
      const MatrixView<float> reference_to =
          part.rows == 7 ? expected.View() : expected.View().Block(1, 3, 5, 143);
      const float amax = reference::RoundBf16(part, reference_to);
      for (const std::string& target : SimdTargets()) {
        PinSimdTarget(target);
        CAPTURE(target);
        CHECK(RoundBf16(part, to) == amax);
        CHECK(SameBits(out, expected));
        Matrix<float> in_place = x;
        CHECK(RoundBf16(in_place.View(), in_place.View()) ==
              reference::RoundBf16(x.View(), whole.View()));
        CHECK(SameBits(in_place, whole));
      }
    }
  }
  PinSimdTarget("best");
}

// An observer makes the GEMMs run on values in place of FP4 integers.
void CheckBothPaths(const LinearRecipe& recipe, const LinearData& data) {
  const OperandObserver look = [](const ObservedOperand&) {};
  const Products values = ProductsOf(recipe, data, &look);
  const Products integers = ProductsOf(recipe, data);
  CHECK(SameBits(integers.y, values.y));
  CHECK(SameBits(integers.dx, values.dx));
  CHECK(SameBits(integers.dw, values.dw));
}

TEST_CASE("A linear on FP4 integers gives the bits of a linear on values", "[nn]") {
  const LinearData small = NormalData();
  const LinearData odd{.x = NormalMatrix(1, 96, 83),
                       .w = NormalMatrix(2, 59, 83, 0.1),
                       .dy = NormalMatrix(3, 96, 59, 1e-4)};
  std::vector<Json> recipes = TestedRecipes();
  for (const Json& json : RecipesOfDialects()) recipes.push_back(json);
  for (const Json& json : recipes) {
    CAPTURE(json.dump());
    const LinearRecipe recipe = ReadRecipe(json, "test").linear;
    CheckBothPaths(recipe, small);
    CheckBothPaths(recipe, odd);
  }
}

TEST_CASE("A large weight made anew for each use gives the bits of one that is kept", "[nn]") {
  const LinearData large{.x = NormalMatrix(1, 32, 528),
                         .w = NormalMatrix(2, 512, 528, 0.1),
                         .dy = NormalMatrix(3, 32, 512, 1e-4)};
  for (const Json& json : TestedRecipes()) {  // an observed weight keeps all operands
    CAPTURE(json.dump());
    CheckBothPaths(ReadRecipe(json, "test").linear, large);
  }
}

TEST_CASE("A linear falls back to values if scales exceed the range of FP4 integers", "[nn]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : {"mxfp4", "te_nvfp4"}) {
    const LinearRecipe recipe = ReadRecipe(Json(name), "test").linear;
    for (const float special : {0x1p70f, 0x1p-80f, 0x1p-140f, kInfinity, kNan}) {
      CAPTURE(name, special);
      LinearData in_x = NormalData(), in_w = in_x, in_dy = in_x;
      in_x.x(3, 40) = special;
      in_w.w(5, 64) = special;
      in_dy.dy(33, 1) = special;
      if (special < 1.0f) {  // whole blocks of tiny numbers
        for (Matrix<float>* m : {&in_x.x, &in_w.w, &in_dy.dy}) {
          for (float& value : m->values) value *= special;
        }
      }
      for (const LinearData* data : {&in_x, &in_w, &in_dy}) CheckBothPaths(recipe, *data);
    }
  }
}

}  // namespace
}  // namespace fp4lab
