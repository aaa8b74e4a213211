#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/dialect/stages.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Dialect& Find(std::string_view name) {
  const Dialect* dialect = FindDialect(name);
  REQUIRE(dialect != nullptr);
  return *dialect;
}

int Byte(std::string_view name, float block_amax, float amax = 0.0f) {
  const Dialect& d = Find(name);
  return ScaleByteOf(d, block_amax, ScaleBefore(d, block_amax, TensorScaleOf(d, amax)));
}

TEST_CASE("The NVFP4 tensor scale is 1 for amax 0 and Inf and FLT_MAX where it overflows",
          "[dialect]") {
  const auto encode = [](float amax) { return TensorScaleOf(Find("nvfp4"), amax).encode; };
  CHECK(encode(0.0f) == 1.0f);
  CHECK(encode(kInf) == 1.0f);
  CHECK(encode(kNan) == kFloatMax);
  CHECK(encode(1e-36f) == kFloatMax);
  CHECK(encode(0x1p-149f) == kFloatMax);
  CHECK(encode(2688.0f) == 1.0f);
  CHECK(std::bit_cast<std::uint32_t>(TensorScaleOf(Find("nvfp4"), 1e-36f).decode) == 0x00200000u);
}

TEST_CASE("The block that holds an NVFP4 tensor's amax gets scale 448", "[dialect]") {
  for (const float amax : {1.0f, 3.3f, 0.017f, 12345.0f, 2688.0f}) {
    CHECK(Byte("nvfp4", amax, amax) == 0x7E);
  }
  CHECK(Byte("nvfp4", kInf, kInf) == 0x7E);
  CHECK(Byte("nvfp4", 0.0f, 1.0f) == 0);
}

TEST_CASE("A block far below the tensor's amax gets scale 0 and the largest multiplier",
          "[dialect]") {
  const Dialect& d = Find("nvfp4");
  CHECK(Byte("nvfp4", 1e-6f, 1.0f) == 0);
  CHECK(FactorOf(d, 1e-6f, 0.0f, 0, TensorScaleOf(d, 1.0f)) == kFloatMax);
  CHECK(Byte("nvfp4", 2.3e-6f, 1.0f) == 1);
}

TEST_CASE("Each MX rule turns an amax into its own byte", "[dialect]") {
  struct Row {
    float amax;
    int floor, ceil, rceil, even;
  };
  // Bytes for E2M1 (emax 2, largest element 6): 127 stands for scale 1.
  for (const Row& row :
       {Row{4.0f, 127, 127, 127, 127}, Row{5.0f, 127, 128, 127, 127}, Row{6.0f, 127, 128, 127, 127},
        Row{0x1.800002p2f, 127, 128, 128, 127}, Row{6.99f, 127, 128, 128, 127},
        Row{7.0f, 127, 128, 128, 128}, Row{7.5f, 127, 128, 128, 128}, Row{8.0f, 128, 128, 128, 128},
        Row{0.0f, 0, 0, 0, 0}, Row{0x1p-126f, 0, 0, 0, 0}, Row{0x1p-149f, 0, 0, 0, 0},
        Row{kFloatMax, 252, 253, 253, 253}, Row{kInf, 255, 255, 254, 255}}) {
    CAPTURE(row.amax);
    CHECK(Byte("mxfp4.floor", row.amax) == row.floor);
    CHECK(Byte("mxfp4.ceil", row.amax) == row.ceil);
    CHECK(Byte("mxfp4.rceil", row.amax) == row.rceil);
    CHECK(Byte("mxfp4.even", row.amax) == row.even);
  }
  CHECK(Byte("mxfp8_e4m3.floor", 448.0f) == 127);
  CHECK(Byte("mxfp8_e4m3.rceil", 448.0f) == 127);
  CHECK(Byte("mxfp8_e4m3.rceil", 449.0f) == 128);
  CHECK(Byte("mxfp8_e5m2.floor", 57344.0f) == 127);
  CHECK(Byte("mxfp8_e4m3.even", 480.0f) == 127);  // 480 would be NaN's code: it saturates to 448
  CHECK(Byte("mxfp8_e4m3.even", 496.0f) == 128);
  CHECK(Byte("mxfp8_e5m2.ceil", 57344.0f) == 128);
  CHECK(Byte("mxfp8_e5m2.even", 61440.0f) == 128);
  CHECK(Byte("mxfp6_e2m3.floor", 7.5f) == 127);
  CHECK(Byte("mxfp6_e2m3.rceil", 7.5f) == 127);
  CHECK(Byte("mxfp6_e2m3.rceil", 7.51f) == 128);
  CHECK(Byte("mxfp6_e2m3.even", 7.74f) == 127);
  CHECK(Byte("mxfp6_e2m3.even", 7.75f) == 128);
  CHECK(Byte("mxfp6_e3m2.floor", 28.0f) == 127);
  CHECK(Byte("mxfp6_e3m2.rceil", 28.0f) == 127);
  CHECK(Byte("mxfp6_e3m2.rceil", 29.0f) == 128);
  CHECK(Byte("mxfp6_e3m2.ceil", 16.5f) == 128);
  CHECK(Byte("mxfp6_e3m2.even", 30.0f) == 128);
}

TEST_CASE("The reciprocal of an E8M0 scale is exact at both ends and NaN for NaN", "[dialect]") {
  CHECK(E8m0Reciprocal(0) == 0x1p127f);
  CHECK(E8m0Reciprocal(127) == 1.0f);
  CHECK(E8m0Reciprocal(253) == 0x1p-126f);
  CHECK(E8m0Reciprocal(254) == 0x1p-127f);
  CHECK(std::isnan(E8m0Reciprocal(255)));
}

TEST_CASE("The FP8 tensor scale is max / amax, 1 for 0, Inf and NaN, and at most FLT_MAX",
          "[dialect]") {
  CHECK(TensorFp8Scale(FormatId::kE4M3, 448.0f).encode == 1.0f);
  CHECK(TensorFp8Scale(FormatId::kE5M2, 3.5f).encode == 16384.0f);
  CHECK(TensorFp8Scale(FormatId::kE4M3, 0.0f).encode == 1.0f);
  CHECK(TensorFp8Scale(FormatId::kE4M3, kInf).encode == 1.0f);
  CHECK(TensorFp8Scale(FormatId::kE4M3, kNan).encode == 1.0f);
  CHECK(TensorFp8Scale(FormatId::kE4M3, 1e-40f).encode == kFloatMax);
  CHECK(OperandDecode(Find("fp8_e4m3"), 896.0f) == 2.0f);
}

TEST_CASE("A GEMM's alpha joins the tensor scales of its operands", "[dialect]") {
  const Dialect &nvfp4 = Find("nvfp4"), &fp8 = Find("fp8_e4m3"), &mx = Find("mxfp4.rceil");
  CHECK(GemmAlpha(nvfp4, 2688.0f, nvfp4, 2688.0f) == 1.0f);
  CHECK(GemmAlpha(nvfp4, 3.0f, Find("nvfp4.2d"), 5.0f) == 15.0f / 7225344.0f);
  CHECK(GemmAlpha(nvfp4, 2688.0f, fp8, 896.0f) == 2.0f);
  CHECK(GemmAlpha(mx, 7.0f, mx, 9.0f) == 1.0f);
}

}  // namespace
}  // namespace fp4lab
