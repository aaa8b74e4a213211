// A dialect is a formula at a version: the differences between versions of one code base.
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Bytes = std::vector<std::uint8_t>;

const Dialect& Row(std::string_view name) {
  const Dialect* row = FindDialect(name);
  INFO(name);
  REQUIRE(row != nullptr);
  return *row;
}

// Quantizes one row whose elements are all `others` except the first.
Quantized OfOneRow(std::string_view name, std::size_t cols, float others, float first) {
  Matrix<float> x(1, cols, others);
  x(0, 0) = first;
  return QuantizeAs(Row(name), x.View());
}

TEST_CASE("compressed-tensors has a global scale of 1 where 2688/amax is Inf or NaN",
          "[quantize]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : {"nvfp4.compressed-tensors", "nvfp4.compressed-tensors.bf16",
                           "nvfp4.compressed-tensors.triton"}) {
    CAPTURE(name);
    const Quantized zeros = OfOneRow(name, 16, 0.0f, 0.0f);
    CHECK(zeros.scales == Bytes{0x20});  // 0 becomes 2^-3
    CHECK(zeros.codes == Bytes(16, 0));
    // 2688/amax overflows below 2688/FLT_MAX = 7.9e-36.
    const Quantized tiny = OfOneRow(name, 16, 1e-36f, 1e-36f);
    CHECK(tiny.scales == Bytes{0x20});
    CHECK(tiny.codes == Bytes(16, 0));
    CHECK(OfOneRow(name, 16, 1e-35f, 1e-35f).scales == Bytes{0x7E});
    // NaN reaches the global scale, which becomes 1: the other block has the scale 6/6.
    const Quantized nan = OfOneRow(name, 32, 6.0f, kNan);
    CHECK(nan.scales == Bytes{0x7F, 0x38});
    CHECK(nan.codes[31] == 7);
  }
  const Quantized zeros = OfOneRow("nvfp4.compressed-tensors.0.14", 16, 0.0f, 0.0f);
  CHECK(zeros.scales == Bytes{0x7F});
  CHECK(OfOneRow("nvfp4.compressed-tensors.0.14", 32, 6.0f, kNan).scales == Bytes{0x7F, 0x7F});
}

TEST_CASE("torchao's single level multiplies by the rounded reciprocal; until 0.17 it divided",
          "[quantize]") {
  // s = 1.875: 1.25 s is exact, so x/s is the tie 1.25 (code 2), but fl(1/s) lies above 1/s.
  constexpr float kScale = 1.875f;
  const float tie = 1.25f * kScale;
  REQUIRE(tie * (1.0f / kScale) > 1.25f);
  Matrix<float> x(1, 16, tie);
  x(0, 0) = 6.0f * kScale;
  const Quantized now = QuantizeAs(Row("nvfp4.torchao.single-level"), x.View());
  const Quantized then = QuantizeAs(Row("nvfp4.torchao.single-level.0.17"), x.View());
  CHECK(now.scales == then.scales);
  CHECK(now.scales == Bytes{static_cast<std::uint8_t>(Encode(FormatId::kE4M3, kScale))});
  CHECK(then.codes[1] == 2);
  CHECK(now.codes[1] == 3);
}

TEST_CASE("EVEN's rounding carries a large maximum to Inf: NaN in torchao, 2^128 until 0.18",
          "[quantize]") {
  const auto byte = [](std::string_view name, std::uint32_t bits) {
    return OfOneRow(name, 32, 1.0f, std::bit_cast<float>(bits)).scales.at(0);
  };
  for (const std::uint32_t bits : {0x7F600000u, 0x7F7EBEF5u, 0x7F7FFFFFu, 0x7F800000u}) {
    CAPTURE(bits);
    CHECK(byte("mxfp4.torchao.even", bits) == 0xFF);
    CHECK(byte("mxfp4.torchao.even.0.18", bits) == 0xFD);
    CHECK(byte("mxfp4.even", bits) == (bits == 0x7F800000u ? 0xFF : 0xFD));
  }
  for (const char* name : {"mxfp4.torchao.even", "mxfp4.torchao.even.0.18", "mxfp4.even"}) {
    CHECK(byte(name, 0x7F5FFFFFu) == 0xFC);  // one below: nothing is carried
  }
  // Half a unit of E4M3's fraction is smaller than half a unit of E2M1's.
  CHECK(byte("mxfp8_e4m3.torchao.even", 0x7F780000u) == 0xFF);
  CHECK(byte("mxfp8_e4m3.torchao.even", 0x7F77FFFFu) == 0xF6);
  // FLOOR and CEIL round nothing.
  CHECK(byte("mxfp4.torchao.floor", 0x7F7FFFFFu) == 0xFC);
  CHECK(byte("mxfp4.torchao.ceil", 0x7F7FFFFFu) == 0xFD);
  for (const char* rule : {"floor", "ceil"}) {
    CHECK(byte("mxfp4.torchao." + std::string(rule), 0x7F800000u) == 0xFF);
    CHECK(byte("mxfp4.torchao." + std::string(rule) + ".0.18", 0x7F800000u) == 0xFD);
  }
}

TEST_CASE("Under a scale byte of 0 torchao divided by 2^-126 until 0.18", "[quantize]") {
  const float x = 3.0f * 0x1p-127f;  // byte 0 = 2^-127 holds it: 3
  CHECK(OfOneRow("mxfp4.torchao.floor", 32, x, x).scales.at(0) == 0);
  CHECK(OfOneRow("mxfp4.torchao.floor", 32, x, x).codes.at(0) == 5);       // 3
  CHECK(OfOneRow("mxfp4.torchao.floor.0.18", 32, x, x).codes.at(0) == 3);  // 1.5
}

TEST_CASE("qwix takes scales below 2^-63 for 1, and rounds MXFP4's to BF16", "[quantize]") {
  const Quantized tiny = OfOneRow("nvfp4.qwix", 16, 0x1p-70f, 0x1p-70f);
  CHECK(tiny.scales == Bytes{0x38});
  CHECK(tiny.codes == Bytes(16, 0));
  const Quantized underflow = OfOneRow("nvfp4.qwix", 16, 0x1p-50f, 0x1p-50f);
  CHECK(underflow.scales == Bytes{0});
  CHECK(underflow.codes == Bytes(16, 7));  // x / 0
  // 6.99 * 2/7 = 1.9971 is 2 in BF16, 6.98 * 2/7 = 1.9943 is 1.9922.
  CHECK(OfOneRow("mxfp4.qwix.oas", 32, 6.99f, 6.99f).scales == Bytes{128});
  CHECK(OfOneRow("mxfp4.qwix.oas", 32, 6.98f, 6.98f).scales == Bytes{127});
  CHECK(OfOneRow("mxfp4.even", 32, 6.99f, 6.99f).scales == Bytes{127});
  CHECK(OfOneRow("mxfp4.qwix.oas", 32, 0x1p-70f, 0x1p-70f).scales == Bytes{127});
}

TEST_CASE("torchao's training kernels took Transformer Engine's formulas after 0.18",
          "[quantize]") {
  CHECK(FindDialect("nvfp4.torchao.training") == FindDialect("nvfp4.torchao"));
  CHECK(SameFormulas(Row("nvfp4.torchao"), Row("nvfp4.te")));
  CHECK(OfOneRow("nvfp4.torchao.training", 16, 0.0f, 0.0f).scales == Bytes{0});
  CHECK(OfOneRow("nvfp4.torchao.training.0.18", 16, 0.0f, 0.0f).scales == Bytes{0x08});
}

}  // namespace
}  // namespace fp4lab
