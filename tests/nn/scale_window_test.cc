// Windows of outer scales: the bits of a scalar walk through the definition (nn/linear/operand.h),
// window by window, and the distance of its products from those of binary64.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/nn/linear/operand.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/recipe/recipe.h"
#include "tests/nn/linear_products.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;

Matrix<float> Turned(View x) {
  Matrix<float> out(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) out(c, r) = x(r, c);
  }
  return out;
}

// Values whose size changes from window to window and row to row, with zeros and outliers.
Matrix<float> Uneven(std::uint64_t seed, std::size_t rows, std::size_t cols, double deviation) {
  Matrix<float> x = NormalMatrix(seed, rows, cols, deviation);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      x(r, c) *= std::ldexp(1.0f, static_cast<int>((3 * r + c / 32) % 11) - 5);
      if (c % 29 == 7 && r % 3 == 0) x(r, c) *= 300.0f;
      if (r % 5 == 1 && c >= 64) x(r, c) = 0.0f;
    }
  }
  return x;
}

LinearData Data(std::size_t tokens, std::size_t in, std::size_t out) {
  return {Uneven(1, tokens, in, 1.0), Uneven(2, out, in, 0.1), Uneven(3, tokens, out, 1e-4)};
}

// An operand of the walk: values, and the factors that undo its outer scales.
struct Walked {
  Matrix<float> values;   // (rows, k)
  Matrix<float> windows;  // (rows, windows): decode scales; empty without windows
  std::size_t window = 0;
  std::vector<float> rows;             // decode scales of rows; empty without
  float amax = 0.0f;                   // of the tensor, if it has one scale
  const Dialect* of_tensor = nullptr;  // the format with one scale for the tensor
  int block = 0;                       // columns per block scale; 0: no format

  float Decoded(std::size_t r, std::size_t k) const {
    float v = values(r, k);
    if (window != 0) return v * windows(r, k / window);
    if (!rows.empty()) return v * rows[r];
    return of_tensor != nullptr ? v * OperandDecode(*of_tensor, amax) : v;
  }
};

// Quantizes each window as a tensor of its own, with the random bits of its elements in the matrix
// that is filled up to whole windows.
void WalkWindows(const OperandRecipe& recipe, const RandomSource& source, Walked* out) {
  const Dialect& d = *recipe.format;
  const auto w = static_cast<std::size_t>(recipe.scale_window);
  const std::size_t rows = out->values.rows, cols = out->values.cols, windows = (cols + w - 1) / w;
  out->window = w;
  out->windows = Matrix<float>(rows, windows);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < windows; ++i) {
      Matrix<float> x(1, w);
      for (std::size_t c = 0; c < w && i * w + c < cols; ++c) x(0, c) = out->values(r, i * w + c);
      std::vector<std::uint16_t> random(w);
      for (std::size_t c = 0; c < w; ++c) {
        random[c] = static_cast<std::uint16_t>(source.stream.Bits16((r * windows + i) * w + c));
      }
      DialectOptions options;
      if (TakesRandomBits(d)) options.random = random;
      const Quantized q = reference::QuantizeAs(d, x.View(), options);
      ToOperandValues(d, q, x.View());
      out->windows(r, i) = OperandDecode(d, q.amax.at(0));
      for (std::size_t c = 0; c < w && i * w + c < cols; ++c) out->values(r, i * w + c) = x(0, c);
    }
  }
}

// The operand of x, whose reduction axis lies along columns.
Walked Walk(const OperandRecipe& recipe, LinearOperand operand, bool bf16, const Matrix<float>& x) {
  Walked out;
  out.values = x;
  if (bf16) {
    for (float& v : out.values.values) v = RoundToBf16(v);
  }
  const LinearCall call{.random = kRandom};
  if (recipe.hadamard != 0) {
    const Matrix<float> before = out.values;
    reference::RandomHadamard(before.View(), TransformOf(recipe, call), out.values.View());
  }
  if (!recipe.format) return out;
  const Dialect& d = *recipe.format;
  out.block = d.block_cols;
  const RandomSource source = RandomSourceOf(recipe, operand, {.random = kRandom});
  if (recipe.scale_window != 0) {
    WalkWindows(recipe, source, &out);
    return out;
  }
  const Quantized q = reference::QuantizeAs(d, out.values.View(), {.source = source});
  ToOperandValues(d, q, out.values.View());
  if (d.row_scaled) {
    for (const float amax : q.amax) out.rows.push_back(OperandDecode(d, amax));
  } else if (HasTensorScale(d)) {
    out.amax = q.amax.at(0);
    out.of_tensor = &d;
  }
  return out;
}

// c = [c +] a b^T, one element at a time, as linear/operand.h states it.
void Multiply(const Walked& a, const Walked& b, bool accumulates, Matrix<float>* c) {
  const std::size_t length = a.values.cols;
  std::size_t step = length;
  for (const Walked* x : {&a, &b}) {
    if (x->window != 0) step = std::min(step, x->window);
  }
  std::size_t block =
      std::min(a.block, b.block) == 0 ? step : static_cast<std::size_t>(std::min(a.block, b.block));
  float alpha = 1.0f;
  if (a.of_tensor != nullptr && b.of_tensor != nullptr) {
    alpha = GemmAlpha(*a.of_tensor, a.amax, *b.of_tensor, b.amax);
  } else if (a.of_tensor != nullptr) {
    alpha = OperandDecode(*a.of_tensor, a.amax);
  } else if (b.of_tensor != nullptr) {
    alpha = OperandDecode(*b.of_tensor, b.amax);
  }
  for (std::size_t i = 0; i < c->rows; ++i) {
    for (std::size_t j = 0; j < c->cols; ++j) {
      float sum = 0.0f;
      for (std::size_t k = 0; k < length; k += step) {
        float p = 0.0f;
        for (std::size_t first = k; first < std::min(k + step, length); first += block) {
          float dot = 0.0f;
          for (std::size_t n = first; n < std::min({first + block, k + step, length}); ++n) {
            dot = std::fma(a.values(i, n), b.values(j, n), dot);
          }
          p = first == k ? 0.0f + dot : p + dot;
        }
        if (a.window != 0) p *= a.windows(i, k / a.window);
        if (b.window != 0) p *= b.windows(j, k / b.window);
        sum = k == 0 ? p : sum + p;
      }
      sum *= alpha;
      if (!a.rows.empty()) sum *= a.rows[i];
      if (!b.rows.empty()) sum *= b.rows[j];
      (*c)(i, j) = accumulates ? (*c)(i, j) + sum : sum;
    }
  }
}

// The tensor that fprop's operand decodes to, which no transform of these tests changes.
Matrix<float> Decoded(const Walked& operand, bool bf16) {
  Matrix<float> out = operand.values;
  for (std::size_t r = 0; r < out.rows; ++r) {
    for (std::size_t c = 0; c < out.cols; ++c) {
      out(r, c) = operand.Decoded(r, c);
      if (bf16) out(r, c) = RoundToBf16(out(r, c));
    }
  }
  return out;
}

struct WalkedProducts {
  Products products;
  Walked a, b;  // fprop's operands
};

WalkedProducts Expected(const LinearRecipe& recipe, const LinearData& data) {
  const bool bf16 = recipe.bf16;
  WalkedProducts out;
  Products& p = out.products;
  p = {Matrix<float>(data.x.rows, data.w.rows, 0.5f), Matrix<float>(data.x.rows, data.x.cols),
       Matrix<float>(data.w.rows, data.w.cols, 0.25f)};
  out.a = Walk(recipe.fprop.a, kFpropInput, bf16, data.x);
  out.b = Walk(recipe.fprop.b, kFpropWeight, bf16, data.w);
  Multiply(out.a, out.b, true, &p.y);
  const Matrix<float> w = recipe.dgrad.b.from_fprop ? Decoded(out.b, bf16) : data.w;
  const Matrix<float> x = recipe.wgrad.b.from_fprop ? Decoded(out.a, bf16) : data.x;
  Multiply(Walk(recipe.dgrad.a, kDgradGrad, bf16, data.dy),
           Walk(recipe.dgrad.b, kDgradWeight, bf16, Turned(w.View())), false, &p.dx);
  Multiply(Walk(recipe.wgrad.a, kWgradGrad, bf16, Turned(data.dy.View())),
           Walk(recipe.wgrad.b, kWgradInput, bf16, Turned(x.View())), true, &p.dw);
  return out;
}

LinearRecipe Read(const Json& json) { return ReadRecipe(json, "test").linear; }

// A recipe with windows in the operands of `operands`: x w (fprop), g v (dgrad), G X (wgrad).
LinearRecipe With(Json recipe, const char* operands, int window = 64, int other = 0) {
  const std::string chosen = operands;
  if (recipe.is_string()) recipe = Json{{"base", recipe}};
  const struct {
    char letter;
    const char *gemm, *operand;
  } places[] = {{'x', "fprop", "input"},  {'w', "fprop", "weight"}, {'g', "dgrad", "grad"},
                {'v', "dgrad", "weight"}, {'G', "wgrad", "grad"},   {'X', "wgrad", "input"}};
  for (const auto& [letter, gemm, operand] : places) {
    if (chosen.find(letter) == std::string::npos) continue;
    const bool second = letter == 'w' || letter == 'v' || letter == 'X';
    recipe[gemm][operand]["scale_window"] = second && other != 0 ? other : window;
  }
  return Read(recipe);
}

const Json kOneRow = {{"base", "te_nvfp4_no_rht"}, {"disable_2d_quantization", true}};

void CheckBits(const LinearRecipe& recipe, const LinearData& data) {
  const Products expected = Expected(recipe, data).products;
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

TEST_CASE(
    "Products of windows have the bits of their definition, on every target and for any "
    "threads",
    "[nn]") {
  const LinearData data = Data(128, 256, 128);
  for (const int window : kScaleWindows) {
    CAPTURE(window);
    CheckBits(With(kOneRow, "xwgvGX", window), data);
  }
  CheckBits(With(kOneRow, "xwgvGX", 64, 128), data);  // two lengths in one product
  CheckBits(With(kOneRow, "xwgvGX", 128, 64), data);
  CheckBits(With("te_nvfp4_no_rht", "xgGX"), data);  // beside weights of 16x16 under one scale
  CheckBits(With({{"base", "te_nvfp4"}, {"disable_2d_quantization", true}}, "GX", 64), data);
  for (const char* one : {"x", "w", "g", "v", "G", "X"}) {
    CAPTURE(one);
    CheckBits(With(kOneRow, one, 64), data);
  }
}

TEST_CASE("Rows that end inside a window have a shorter one", "[nn]") {
  const LinearData data = Data(80, 96, 112);
  CheckBits(With(kOneRow, "xwgvGX", 64), data);
  CheckBits(With(kOneRow, "xwgvGX", 128), data);
  CheckBits(With(kOneRow, "xwgvGX", 128, 64), data);
}

TEST_CASE("Windows stand beside other formats, scales of rows and fprop's values", "[nn]") {
  const LinearData data = Data(64, 128, 128);
  // Beside an operand in BF16, whose sum has no blocks.
  Json mixed = {{"base", "bf16"}};
  mixed["fprop"]["input"] = {{"format", "nvfp4.te"}};
  mixed["wgrad"]["input"] = {{"format", "nvfp4.te"}, {"rounding", "stochastic"}};
  CheckBits(With(mixed, "xX", 64), data);
  // Beside a scale of each row.
  Json rows = kOneRow;
  rows["fprop"]["weight"]["format"] = "nvfp4.te.row-scaled";
  rows["wgrad"]["grad"] = {{"format", "nvfp4.te.row-scaled"}, {"rounding", "nearest_even"}};
  CheckBits(With(rows, "xX", 64), data);
  // Blocks of 64 under FP8 elements, as values.
  const Json fp8 = {{"like", "nvfp4.te"}, {"element", "e4m3"}, {"block", {1, 64}}};
  Json wide = {{"base", "bf16"}};
  wide["fprop"]["input"]["format"] = wide["fprop"]["weight"]["format"] = fp8;
  CheckBits(With(wide, "xw", 64), data);
  CheckBits(With(wide, "xw", 128, 64), data);
  // In binary32.
  Json binary32 = kOneRow;
  binary32["training_dtype"] = "fp32";
  CheckBits(With(binary32, "xwgvGX", 64), data);
  Json decoded = kOneRow;
  decoded["dgrad"]["weight"]["from"] = decoded["wgrad"]["input"]["from"] = "fprop";
  CheckBits(With(decoded, "xwgvGX", 128), data);
  CheckBits(With(decoded, "xw", 64), data);
}

TEST_CASE("An observer sees windows as rows, and changes no bit", "[nn]") {
  const LinearData data = Data(64, 96, 64);
  const LinearRecipe recipe = With(kOneRow, "xwgvGX", 64);
  int seen = 0;
  const OperandObserver look = [&](const ObservedOperand& operand) {
    CHECK(operand.dialect.row_scaled);
    CHECK(operand.before.cols == 64);
    CHECK(operand.quantized.amax.size() == operand.before.rows);
    ++seen;
    if (operand.operand != kFpropInput) return;
    CHECK(operand.before.rows == 2 * data.x.rows);
    CHECK(operand.before(3, 5) == RoundToBf16(data.x(1, 64 + 5)));
    CHECK(operand.before(3, 32) == 0.0f);  // columns 96 to 127 of a row
  };
  const Products observed = ProductsOf(recipe, data, &look), plain = ProductsOf(recipe, data);
  CHECK(seen == 6);
  CHECK(SameBits(observed.y, plain.y));
  CHECK(SameBits(observed.dx, plain.dx));
  CHECK(SameBits(observed.dw, plain.dw));
}

TEST_CASE("Windows differ from binary64's product of their decoded operands by roundings of sums",
          "[nn]") {
  const LinearData data = Data(64, 256, 64);
  for (const int window : kScaleWindows) {
    const LinearRecipe recipe = With(kOneRow, "xwgvGX", window);
    const WalkedProducts walked = Expected(recipe, data);
    const Products got = ProductsOf(recipe, data);
    double worst = 0.0;
    for (std::size_t t = 0; t < data.x.rows; ++t) {
      for (std::size_t o = 0; o < data.w.rows; ++o) {
        double exact = 0.5, size = 0.5;
        for (std::size_t k = 0; k < data.x.cols; ++k) {
          const double a = double{walked.a.values(t, k)} * walked.a.windows(t, k / walked.a.window);
          const double b = double{walked.b.values(o, k)} * walked.b.windows(o, k / walked.b.window);
          exact += a * b;
          size += std::fabs(a * b);
        }
        worst = std::max(worst, std::fabs(double{got.y(t, o)} - exact) / size);
      }
    }
    CAPTURE(window);
    // 16 blocks and 4 windows: at most 16 + 4 + 2 + 1 roundings, each of at most 2^-24 of the
    // sizes.
    CHECK(worst < 23 * 0x1p-24);
    CHECK(worst > 0.0);
  }
}

TEST_CASE("A window's scale keeps its elements apart from the outliers of other windows", "[nn]") {
  Matrix<float> x(1, 128);
  for (std::size_t c = 0; c < 128; ++c) x(0, c) = c < 64 ? 1e6f : 1e-3f;
  Matrix<float> w(1, 128, 0.0f);
  for (std::size_t c = 64; c < 128; ++c) w(0, c) = 1.0f;  // reads the small ones alone
  const auto y = [&](const LinearRecipe& recipe) {
    Matrix<float> out(1, 1);
    LinearWeight weight;
    weight.w = w.View();
    LinearScratch scratch;
    LinearForward(recipe, {.random = kRandom}, {x.View()}, &weight, &scratch, Write::kOverwrite,
                  out.View());
    return out(0, 0);
  };
  CHECK(y(Read(kOneRow)) == 0.0f);  // a block scale of 1e-3 / 1e6 of the largest is none
  CHECK(std::fabs(y(With(kOneRow, "x", 64)) / 0.064f - 1.0f) < 0.01f);
  CHECK(y(With(kOneRow, "x", 128)) == 0.0f);
}

TEST_CASE("The patch of hot channels takes the scales of their windows", "[nn]") {
  const LinearData data = Data(64, 128, 64);
  // All channels are hot and the weight is not quantized, so that all that quantization takes away
  // comes back, up to BF16.
  Json recipe = kOneRow;
  recipe["fprop"]["weight"]["format"] = "none";
  const LinearRecipe plain = With(recipe, "x", 64);
  recipe["fprop"]["input"]["side"] = {{"term", "patch"}, {"channels", 128}};
  const LinearRecipe patched = With(recipe, "x", 64);
  const Matrix<float> exact = ProductsOf(Read("bf16"), data).y;
  const auto error = [&](const Matrix<float>& y) {
    double sum = 0.0;
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      sum += std::pow(double{y.values[i]} - exact.values[i], 2);
    }
    return std::sqrt(sum);
  };
  CHECK(error(ProductsOf(patched, data).y) < 0.01 * error(ProductsOf(plain, data).y));
}

TEST_CASE("A linear without tokens, and one without windows to fill, is total", "[nn]") {
  const LinearRecipe recipe = With(kOneRow, "xwgvGX", 64);
  const LinearData none = Data(0, 64, 64);
  const Products got = ProductsOf(recipe, none);
  for (const float v : got.dw.values) CHECK(v == 0.25f);
  LinearData poisoned = Data(64, 64, 64);
  poisoned.x(0, 0) = std::nanf("");
  poisoned.x(1, 3) = INFINITY;
  CheckBits(recipe, Data(16, 16, 16));
  ProductsOf(recipe, poisoned);
}

}  // namespace
}  // namespace fp4lab
