#include "fp4lab/tensor/accumulation.h"

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "fp4lab/base/parallel.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/tensor/gemm.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/values.h"
#include "tests/tensor/operands.h"

namespace fp4lab {
namespace {

MmaOperand Quantized(const char* format, std::uint64_t seed, std::size_t rows, std::size_t cols) {
  const Matrix<float> x = NormalMatrix(seed, rows, cols);
  const Dialect& dialect = *FindDialect(format);
  return MakeMmaOperand(dialect,
                        Quantize(x.View(), {.dialect = dialect, .amax = TensorAmax(x.View())}));
}

Matrix<float> ProductUnder(const char* name, const MmaOperand& a, const MmaOperand& b,
                           const ProductOptions& options = {}) {
  Matrix<float> c(a.rows, b.rows);
  GemmAs(*FindAccumulation(name), a, b, options, c.View());
  return c;
}

// The dot product of two BF16 rows.
float Dot(const char* name, std::vector<float> a, std::vector<float> b) {
  const MatrixView<const float> va(a.data(), 1, a.size()), vb(b.data(), 1, b.size());
  const Format& bf16 = FormatOf(FormatId::kBF16);
  return ProductUnder(name, MakeMmaOperand(bf16, va), MakeMmaOperand(bf16, vb))(0, 0);
}

TEST_CASE("Accumulations have names of their own, and the models' names", "[tensor]") {
  std::set<std::string_view> names;
  for (const Accumulation& a : Accumulations()) {
    CHECK(names.insert(a.name).second);
    CHECK(FindAccumulation(a.name) == &a);
    CHECK((a.order == SumOrder::kTensorCore) == (a.model != nullptr));
  }
  CHECK(names.size() == 5 + kTensorCoreModels.size());
  CHECK(FindAccumulation("fp32") == nullptr);
}

TEST_CASE("Each accumulation rounds where its name says", "[tensor]") {
  // 1 + 2^-24 + 2^-24: kept by the exact sum and binary64, lost one by one in binary32.
  const std::vector<float> x = {1, 0x1p-24f, 0x1p-24f, 0}, ones = {1, 1, 1, 1};
  CHECK(Dot("exact", x, ones) == 0x1.000002p0f);
  CHECK(Dot("fp64", x, ones) == 0x1.000002p0f);
  CHECK(Dot("fp32-sequential", x, ones) == 1.0f);
  CHECK(Dot("fp32-pairwise", {1, 0, 0x1p-24f, 0x1p-24f}, ones) == 0x1.000002p0f);
  CHECK(Dot("fp32-pairwise", {1, 0x1p-24f, 0x1p-24f, 0}, ones) == 1.0f);
  // Binary64 loses what the exact sum keeps.
  const std::vector<float> cancel = {0x1p60f, 1, -0x1p60f};
  CHECK(Dot("fp64", cancel, {1, 1, 1}) == 0.0f);
  CHECK(Dot("exact", cancel, {1, 1, 1}) == 1.0f);
  // Hopper aligns to 2^-25 of the largest term and truncates.
  CHECK(Dot("hopper.f16.f32", {1, 0x1p-24f, 0x1p-24f}, {1, 1, 1}) == 0x1.000002p0f);
  CHECK(Dot("hopper.f16.f32", {1, 0x1.8p-24f}, {1, 1}) == 1.0f);
}

TEST_CASE("Special values reach every accumulation", "[tensor]") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const char* name :
       {"exact", "fp64", "fp32-sequential", "fp32-pairwise", "fp32-blocks", "hopper.f16.f32"}) {
    INFO(name);
    CHECK(Dot(name, {inf, 1}, {1, 1}) == inf);
    CHECK(std::isnan(Dot(name, {inf, 1}, {0, 1})));
    CHECK(std::isnan(Dot(name, {inf, -inf}, {1, 1})));
    CHECK(std::isnan(Dot(name, {NAN, 1}, {1, 1})));
  }
}

TEST_CASE("A chip without FP4 computes FP4 operands from their values in BF16", "[tensor]") {
  const MmaOperand a = Quantized("nvfp4", 1, 5, 96), b = Quantized("nvfp4", 2, 7, 96);
  const Accumulation& hopper = *FindAccumulation("hopper.f16.f32");
  CHECK(WhyNot(hopper, a, b) == "");
  const Format& bf16 = FormatOf(FormatId::kBF16);
  Matrix<float> expected(5, 7);
  TensorCoreGemm(*hopper.model, Unscaled(a, bf16), Unscaled(b, bf16), {}, expected.View());
  CHECK(ProductUnder("hopper.f16.f32", a, b).values == expected.values);
  // FP8 tensor cores cannot take these operands.
  CHECK(WhyNot(*FindAccumulation("ada.f8.f32"), a, b) ==
        "an element times its scale is not representable in the operand format");
  CHECK(WhyNot(*FindAccumulation("blackwell.mxf8f6f4.f32"), a, b) ==
        "the instruction takes E8M0 scales of 32 elements");
}

TEST_CASE("Sums in binary32 refuse operands that are no binary32 numbers", "[tensor]") {
  MmaOperand x{.rows = 1,
               .cols = 32,
               .format = FormatOf(FormatId::kE2M1),
               .group = 32,
               .scale_format = FormatOf(FormatId::kE8M0)};
  x.codes.assign(32, 7);
  x.scales = {254};  // 6 * 2^127
  CHECK(WhyNot(*FindAccumulation("fp32-blocks"), x, x) ==
        "an element times its scale is not representable in binary32");
  CHECK(WhyNot(*FindAccumulation("exact"), x, x) == "");
  CHECK(ProductUnder("exact", x, x)(0, 0) == std::numeric_limits<float>::infinity());
}

TEST_CASE("Accumulations of FP4 operands differ by little, and do differ", "[tensor]") {
  // Scales of all sizes: with the scales of a normal matrix, sums of a thousand terms are exact.
  const Format &e2m1 = FormatOf(FormatId::kE2M1), &e4m3 = FormatOf(FormatId::kE4M3);
  const MmaOperand a = RandomOperand(e2m1, 16, 1024, Inputs::kWide, 3, 16, e4m3);
  const MmaOperand b = RandomOperand(e2m1, 16, 1024, Inputs::kWide, 4, 16, e4m3);
  const Matrix<float> exact = ProductUnder("exact", a, b);
  CHECK(ProductUnder("fp64", a, b).values == exact.values);
  for (const char* name : {"fp32-blocks", "fp32-sequential", "fp32-pairwise", "blackwell.mxf4.f32",
                           "hopper.f16.f32"}) {
    const Matrix<float> c = ProductUnder(name, a, b);
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < c.values.size(); ++i) {
      worst = std::max(worst, std::abs(double(c.values[i]) - exact.values[i]));
      largest = std::max(largest, std::abs(double(exact.values[i])));
    }
    INFO(name << " " << worst << " of " << largest);
    CHECK(worst > 0);
    CHECK(worst < largest * 0x1p-20);
  }
}

TEST_CASE("Accumulations give the same bits on any number of threads", "[tensor]") {
  const MmaOperand a = Quantized("mxfp4.rceil", 5, 37, 160),
                   b = Quantized("mxfp4.rceil", 6, 50, 160);
  const int threads_before = Threads();
  for (const Accumulation& accumulation : Accumulations()) {
    if (!WhyNot(accumulation, a, b).empty()) continue;
    INFO(accumulation.name);
    SetThreads(1);
    const Matrix<float> one = ProductUnder(std::string(accumulation.name).c_str(), a, b);
    SetThreads(4);
    CHECK(ProductUnder(std::string(accumulation.name).c_str(), a, b).values == one.values);
  }
  SetThreads(threads_before);
}

// A matrix of TE's golden products, as packed codes and scale bytes.
MmaOperand GoldenOperand(const NpzFile& file, const std::string& prefix, const std::string& name) {
  const NpyArray codes = file.Read(prefix + "q" + name), scales = file.Read(prefix + "s" + name);
  MmaOperand x{.rows = codes.shape.at(0),
               .cols = 2 * codes.shape.at(1),
               .format = FormatOf(FormatId::kE2M1),
               .group = 16,
               .scale_format = FormatOf(FormatId::kE4M3)};
  for (const std::uint8_t byte : codes.As<std::uint8_t>()) {
    x.codes.push_back(byte & 15u);
    x.codes.push_back(byte >> 4);
  }
  const auto bytes = scales.As<std::uint8_t>();
  x.scales.assign(bytes.begin(), bytes.end());
  return x;
}

TEST_CASE("fp32-blocks with the reference's alpha is TE's reference GEMM, bit for bit",
          "[tensor][golden]") {
  const NpzFile file = OpenGolden("te_gemm_misc.npz");
  for (const char* group : {"g0", "g1", "g2", "g3"}) {
    const std::string prefix = std::string(group) + ".1d.";
    INFO(prefix);
    const MmaOperand x = GoldenOperand(file, prefix, "x"), w = GoldenOperand(file, prefix, "w");
    const auto amax = [&](const char* name) {
      return std::bit_cast<float>(file.Read(prefix + name).As<std::uint32_t>()[0]);
    };
    const float alpha = Nvfp4Alpha(AlphaRule::kReference, amax("ax"), amax("aw"));
    const Matrix<float> y = ProductUnder("fp32-blocks", x, w, {.alpha = alpha});
    const NpyArray golden = file.Read(prefix + "y_fp32");
    const auto want = golden.As<std::uint32_t>();
    REQUIRE(want.size() == y.values.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      different += std::bit_cast<std::uint32_t>(y.values[i]) != want[i];
    }
    CHECK(different == 0);
    const Matrix<float> narrow =
        ProductUnder("fp32-blocks", x, w, {.alpha = alpha, .output = GemmOutput::kBf16});
    const NpyArray bf16 = file.Read(prefix + "y_bf16");
    for (std::size_t i = 0; i < narrow.values.size(); ++i) {
      REQUIRE(narrow.values[i] == Decode(FormatId::kBF16, bf16.As<std::uint16_t>()[i]));
    }
  }
}

TEST_CASE("The three conventions of alpha round at different places", "[tensor]") {
  std::size_t differ = 0;
  for (int i = 0; i < 200; ++i) {
    const float x = 1.0f + 0.013f * static_cast<float>(i),
                w = 3.0f - 0.007f * static_cast<float>(i);
    const float kernel = Nvfp4Alpha(AlphaRule::kKernel, x, w);
    const float reference = Nvfp4Alpha(AlphaRule::kReference, x, w);
    const float jax = Nvfp4Alpha(AlphaRule::kJax, x, w);
    const double exact = double(x) * w / (2688.0 * 2688.0);
    CHECK(reference == (x * w) / 7225344.0f);
    CHECK(jax == (x / 2688.0f) * (w / 2688.0f));
    for (const float alpha : {kernel, reference, jax}) {
      CHECK(std::abs(alpha / exact - 1) < 0x1p-22);
    }
    differ += kernel != reference || jax != reference;
  }
  CHECK(differ > 50);
}

}  // namespace
}  // namespace fp4lab
