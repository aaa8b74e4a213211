#include "fp4lab/tensor/tensor_core_gemm.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/block/quantize.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"
#include "tests/support/values.h"
#include "tests/tensor/operands.h"

namespace fp4lab {
namespace {

const Format& kE2m1 = FormatOf(FormatId::kE2M1);
const Format& kE4m3 = FormatOf(FormatId::kE4M3);
const Format& kE5m2 = FormatOf(FormatId::kE5M2);
const Format& kE8m0 = FormatOf(FormatId::kE8M0);
const Format& kBf16 = FormatOf(FormatId::kBF16);
const Format& kFp16 = FormatOf(FormatId::kFP16);

// The formats of two operands that a model takes.
struct Pair {
  Format a, b;
  int group = 0;
  Format scale = {};
};

std::vector<Pair> PairsOf(const TensorCoreModel& model) {
  const auto has = [&model](std::string_view part) {
    return model.name.find(part) != std::string_view::npos;
  };
  if (has("mxf4"))
    return {{kE2m1, kE2m1, 16, kE4m3}, {kE2m1, kE2m1, 16, kE8m0}, {kE2m1, kE2m1, 32, kE8m0}};
  if (has("mxf8f6f4")) return {{kE4m3, kE5m2, 32, kE8m0}, {kE2m1, kE4m3, 32, kE8m0}};
  if (has("f8f6f4")) return {{kE4m3, kE4m3}, {kE5m2, FormatOf(FormatId::kE3M2)}};
  if (has("f8")) return {{kE4m3, kE4m3}, {kE5m2, kE5m2}};
  if (has("tf32")) return {{kTf32, kTf32}};
  if (has("volta") || has("f16.f16")) return {{kFp16, kFp16}};
  return {{kBf16, kBf16}, {kFp16, kFp16}};
}

std::size_t Differences(const Matrix<float>& x, const Matrix<float>& y) {
  std::size_t differences = 0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    differences +=
        std::bit_cast<std::uint32_t>(x.values[i]) != std::bit_cast<std::uint32_t>(y.values[i]);
  }
  return differences;
}

// Compares the product on every SIMD target and with 1 and 3 threads with its definition.
void CheckAgainstReference(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                           const ProductOptions& options, const Matrix<float>& c) {
  Matrix<float> expected = c;
  reference::TensorCoreGemm(model, a, b, options, expected.View());
  const int threads_before = Threads();
  for (const std::string& target : SimdTargets()) {
    for (const int threads : {1, 3}) {
      PinSimdTarget(target);
      SetThreads(threads);
      Matrix<float> got = c;
      TensorCoreGemm(model, a, b, options, got.View());
      INFO(model.name << " on " << target << ", " << threads << " threads, M N K " << a.rows << " "
                      << b.rows << " " << a.cols << ", group " << a.group);
      CHECK(Differences(got, expected) == 0);
    }
  }
  PinSimdTarget("best");
  SetThreads(threads_before);
}

Matrix<float> Accumulator(Inputs inputs, std::size_t rows, std::size_t cols) {
  const Format fp32 = {32, 8, 23, 127, Specials::kInfAndNan, true};
  const RandomStream stream{.seed = 9, .tensor = static_cast<std::uint32_t>(inputs)};
  Matrix<float> c(rows, cols);
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    const std::uint32_t random = stream.Bits32(i);
    const std::uint32_t field = inputs == Inputs::kLow    ? random >> 24 & 3u
                                : inputs == Inputs::kHigh ? 253u + (random >> 24 & 1u)
                                                          : 90u + (random >> 20 & 63u);
    c.values[i] = std::bit_cast<float>(CodeWith(fp32, random, field));
  }
  return c;
}

TEST_CASE("TensorCoreGemm gives TensorCoreDot's bits for every model and kind of input",
          "[tensor][differential]") {
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  std::uint32_t seed = 0;
  for (const TensorCoreModel& model : kTensorCoreModels) {
    for (const Pair& pair : PairsOf(model)) {
      for (const Inputs inputs : kAllInputs) {
        ++seed;
        const std::size_t m = 5, n = 34, k = 131;
        const MmaOperand a = RandomOperand(pair.a, m, k, inputs, 2 * seed, pair.group, pair.scale);
        const MmaOperand b =
            RandomOperand(pair.b, n, k, inputs, 2 * seed + 1, pair.group, pair.scale);
        REQUIRE(WhyNot(model, a, b) == "");
        INFO("inputs " << static_cast<int>(inputs));
        CheckAgainstReference(model, a, b, {.accumulate = seed % 2 == 0},
                              Accumulator(inputs, m, n));
      }
    }
  }
}

TEST_CASE("TensorCoreGemm gives the definition's bits at every border of its tiles",
          "[tensor][differential]") {
  struct Shape {
    std::size_t m, n, k;
  };
  for (const char* name : {"blackwell.mxf4.f32", "hopper.f16.f32", "hopper.mma.f8.f32"}) {
    const TensorCoreModel& model = *FindTensorCoreModel(name);
    const Pair pair = PairsOf(model).front();
    for (const Shape& s :
         {Shape{0, 3, 16}, Shape{3, 0, 16}, Shape{2, 2, 0}, Shape{1, 1, 1}, Shape{33, 31, 63},
          Shape{32, 32, 64}, Shape{31, 65, 17}, Shape{65, 33, 33}}) {
      CheckAgainstReference(
          model, RandomOperand(pair.a, s.m, s.k, Inputs::kTypical, 1, pair.group, pair.scale),
          RandomOperand(pair.b, s.n, s.k, Inputs::kTypical, 2, pair.group, pair.scale),
          {.alpha = -0.3f, .accumulate = true}, Accumulator(Inputs::kTypical, s.m, s.n));
    }
  }
}

TEST_CASE("Every reading of mxf4's open questions has its kernel", "[tensor][differential]") {
  const TensorCoreModel& model = *FindTensorCoreModel("blackwell.mxf4.f32");
  for (const bool cancelled : {false, true}) {
    for (const bool zero : {false, true}) {
      for (const Inputs inputs : {Inputs::kCancelling, Inputs::kWide}) {
        MmaOperand a = RandomOperand(kE2m1, 9, 256, inputs, 71, 16, kE8m0);
        const MmaOperand b = RandomOperand(kE2m1, 40, 256, inputs, 72, 16, kE8m0);
        for (std::size_t i = 0; i < a.codes.size(); ++i) {
          if (i / 16 % 3 == 0) a.codes[i] = 0;  // groups of zeros
        }
        CheckAgainstReference(
            model, a, b, {.open = {.cancelled_group_counts = cancelled, .zero_group_counts = zero}},
            Matrix<float>(9, 40));
      }
    }
  }
}

// The dot product of a row of ones with `b`, added to c.
float OneDot(const char* model, const std::vector<float>& b, float c) {
  const Matrix<float> ones(1, b.size(), 1.0f);
  Matrix<float> row(1, b.size()), d(1, 1, c);
  row.values = b;
  TensorCoreGemm(*FindTensorCoreModel(model), MakeMmaOperand(kBf16, ones.View()),
                 MakeMmaOperand(kBf16, row.View()), {.accumulate = true}, d.View());
  return d(0, 0);
}

TEST_CASE("Cancellation, alignment, overflow and special values as Hopper answers them",
          "[tensor]") {
  const float inf = std::numeric_limits<float>::infinity();
  // 2^-24 and 2^-25 under a cancelling pair of ones: aligned to 2^-25, both survive; 2^-26 is lost.
  CHECK(OneDot("hopper.f16.f32", {1, -1, 0x1p-24f}, 0) == 0x1p-24f);
  CHECK(OneDot("hopper.f16.f32", {1, -1, -0x1p-25f}, 0) == -0x1p-25f);
  CHECK(OneDot("hopper.f16.f32", {1, -1, 0x1p-26f}, 0) == 0.0f);
  CHECK(OneDot("ampere.f16.f32", {1, -1, 0x1p-25f}, 0) == 0.0f);
  // The accumulator is aligned as well, and sets the alignment.
  CHECK(OneDot("hopper.f16.f32", {1, -1}, 0x1p-26f) == 0.0f);
  CHECK(OneDot("hopper.f16.f32", {0x1p-30f}, 1) == 1.0f);
  // Sums are truncated, not rounded to nearest.
  CHECK(OneDot("hopper.f16.f32", {1, 0x1.8p-24f}, 0) == 1.0f);
  CHECK(OneDot("hopper.f16.f32", {-1, -0x1.8p-24f}, 0) == -1.0f);
  // Subnormals are kept, overflow gives infinity, and an infinity stays.
  CHECK(OneDot("hopper.f16.f32", {0x1p-130f, 0x1p-133f}, 0x1p-149f) ==
        0x1p-130f + 0x1p-133f + 0x1p-149f);
  CHECK(OneDot("hopper.f16.f32", {0x1p127f, 0x1p127f}, 0) == inf);
  CHECK(OneDot("hopper.f16.f32", {-0x1p127f, -0x1p127f}, 0) == -inf);
  std::vector<float> long_row(40, 0x1p127f);
  CHECK(OneDot("hopper.f16.f32", long_row, 0) == inf);
  long_row[39] = -inf;
  CHECK(std::bit_cast<std::uint32_t>(OneDot("hopper.f16.f32", long_row, 0)) == 0x7FFFFFFFu);
  CHECK(std::bit_cast<std::uint32_t>(OneDot("hopper.f16.f32", {1}, -NAN)) == 0x7FFFFFFFu);
  CHECK(std::bit_cast<std::uint32_t>(OneDot("hopper.f16.f32", {0}, -0.0f)) == 0u);
}

TEST_CASE("A zero group, a NaN scale and a zero scale in a product of NVFP4 operands", "[tensor]") {
  const TensorCoreModel& model = *FindTensorCoreModel("blackwell.mxf4.f32");
  MmaOperand a{.rows = 3, .cols = 64, .format = kE2m1, .group = 16, .scale_format = kE4m3};
  a.codes.assign(3 * 64, 2);     // 1
  a.scales.assign(3 * 4, 0x38);  // 1
  MmaOperand b = a;
  std::fill(a.codes.begin(), a.codes.begin() + 16, 0u);  // row 0, group 0: zeros
  a.scales[5] = 0x7F;                                    // row 1: NaN
  a.scales[8] = 0x80;                                    // row 2: a zero, the sign ignored
  Matrix<float> c(3, 3);
  TensorCoreGemm(model, a, b, {.alpha = 0.5f}, c.View());
  for (std::size_t n = 0; n < 3; ++n) {
    CHECK(c(0, n) == 24.0f);
    CHECK(std::bit_cast<std::uint32_t>(c(1, n)) == 0x7FFFFFFFu);
    CHECK(c(2, n) == 24.0f);
  }
}

TEST_CASE("Outputs are rounded once more, to the type asked for", "[tensor]") {
  const TensorCoreModel& model = *FindTensorCoreModel("hopper.f16.f32");
  const MmaOperand a = RandomOperand(kBf16, 8, 64, Inputs::kTypical, 1),
                   b = RandomOperand(kBf16, 8, 64, Inputs::kTypical, 2);
  Matrix<float> f32(8, 8), bf16(8, 8), f16(8, 8);
  TensorCoreGemm(model, a, b, {.alpha = 3.0f}, f32.View());
  TensorCoreGemm(model, a, b, {.alpha = 3.0f, .output = GemmOutput::kBf16}, bf16.View());
  TensorCoreGemm(model, a, b, {.alpha = 3.0f, .output = GemmOutput::kFp16}, f16.View());
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(bf16.values[i] == RoundToBf16(f32.values[i]));
    CHECK(f16.values[i] == Decode(FormatId::kFP16, Encode(FormatId::kFP16, f32.values[i])));
  }
}

TEST_CASE("An operand from a quantized matrix stands for its unscaled values", "[tensor]") {
  const Matrix<float> x = NormalMatrix(3, 34, 70, 2.0);
  for (const char* name : {"nvfp4", "nvfp4.2d", "mxfp4.rceil", "mxfp8_e4m3.floor", "fp8_e5m2"}) {
    INFO(name);
    const Dialect& dialect = *FindDialect(name);
    const Quantized q = Quantize(x.View(), {.dialect = dialect, .amax = TensorAmax(x.View())});
    Matrix<float> values(34, 70);
    BlockScaledValues(dialect, q, values.View());
    const MmaOperand operand = MakeMmaOperand(dialect, q);
    CHECK(FloatValues(operand).values == values.values);
    const MmaOperand bf16 = Unscaled(operand, kBf16);
    REQUIRE(bf16.codes.size() == 34 * 70);
    CHECK(FloatValues(bf16).values == values.values);
  }
  Matrix<float> fine(1, 1, 1.0f + 0x1p-10f);
  CHECK(Unscaled(MakeMmaOperand(kTf32, fine.View()), kBf16).codes.empty());
}

TEST_CASE("WhyNot names the operands that a tensor core model does not take", "[tensor]") {
  const MmaOperand nvfp4 = RandomOperand(kE2m1, 2, 64, Inputs::kTypical, 1, 16, kE4m3);
  const MmaOperand bf16 = RandomOperand(kBf16, 2, 64, Inputs::kTypical, 1);
  CHECK(WhyNot(*FindTensorCoreModel("hopper.f16.f32"), nvfp4, nvfp4) ==
        "the instruction takes no block scales");
  CHECK(WhyNot(*FindTensorCoreModel("blackwell.mxf4.f32"), bf16, bf16) ==
        "the instruction takes block scales");
  CHECK(WhyNot(*FindTensorCoreModel("blackwell.mxf8f6f4.f32"), nvfp4, nvfp4) ==
        "the instruction takes E8M0 scales of 32 elements");
  CHECK(WhyNot(*FindTensorCoreModel("blackwell.mxf4.f32"), nvfp4, nvfp4) == "");
}

}  // namespace
}  // namespace fp4lab
