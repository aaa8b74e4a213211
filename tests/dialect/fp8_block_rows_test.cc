// FP8 blocks of Transformer Engine and DeepGEMM, and DeepGEMM's MXFP4, against loops that follow
// their sources: compute_scale_from_amax, and per_token_cast_to_fp8 with ceil_to_ue8m0.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A block of 128 numbers each: ordinary ones, and those at which the formulas part.
std::vector<std::vector<float>> Blocks() {
  std::vector<std::vector<float>> blocks;
  const Matrix<float> x = NormalMatrix(3, 64, 128);
  for (std::size_t r = 0; r < x.rows; ++r) {
    blocks.emplace_back(&x(r, 0), &x(r, 0) + 128);
    for (float& v : blocks.back()) v = std::ldexp(v, static_cast<int>(r % 40) - 25);
  }
  const auto filled = [&](float first, float rest) {
    std::vector<float> block(128, rest);
    block[5] = first;
    blocks.push_back(block);
  };
  for (const float amax : {448.0f, 57344.0f, std::nextafter(448.0f, 449.0f), 447.99997f, 1e-4f,
                           9.9e-5f, 1e-30f, 1e-40f, 3.0e38f, 1.75f, 224.0f, 0.875f}) {
    filled(amax, amax / 3);
  }
  filled(0, 0);
  filled(-0.0f, 0);
  filled(kInf, 1);
  filled(kNan, 0.5f);
  return blocks;
}

struct Block {
  float scale;  // 0 where it is not compared
  std::vector<std::uint32_t> codes;
};

float MaxOf(const std::vector<float>& x, bool keeps_nan) {
  float amax = 0;
  for (const float v : x) {
    if (std::isnan(v) && keeps_nan) return v;
    if (std::fabs(v) > amax) amax = std::fabs(v);
  }
  return amax;
}

Block Te(const std::vector<float>& x, FormatId element, bool power) {
  const float amax = MaxOf(x, false);
  float scale = 1;
  if (!std::isinf(amax) && amax != 0) {
    scale = MaxFinite(element) / amax;
    if (std::isinf(scale)) scale = std::numeric_limits<float>::max();
    if (power) scale = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & 0xFF800000u);
  }
  Block b{static_cast<float>(1.0 / static_cast<double>(scale)), {}};
  for (const float v : x) b.codes.push_back(Encode(element, v * scale));
  return b;
}

float CeilToUe8m0(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
  const std::uint32_t e = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
  return std::bit_cast<float>(std::clamp(e, 1u, 254u) << 23);
}

Block DeepGemm(const std::vector<float>& x, bool power) {
  const float amax = MaxOf(x, true);
  const float scale = (amax < 1e-4f ? 1e-4f : amax) / 448.0f;
  Block b{power ? CeilToUe8m0(scale) : scale, {}};
  for (const float v : x) b.codes.push_back(Encode(FormatId::kE4M3, v * (1.0f / b.scale)));
  return b;
}

std::vector<std::uint8_t> DeepGemmFp4(const std::vector<float>& x, float* scale) {
  const float amax = MaxOf(x, true);
  *scale = CeilToUe8m0((amax < 1e-4f ? 1e-4f : amax) / 6.0f);
  std::vector<std::uint8_t> codes;
  for (const float v : x) {
    const float scaled = v * (1.0f / *scale), a = std::min(std::fabs(scaled), 6.0f);
    unsigned code = 0;
    for (const float middle : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) {
      code += a > middle ? 1 : 0;
    }
    if (std::isnan(scaled)) code = 7;
    codes.push_back(static_cast<std::uint8_t>(code | (scaled < 0 && code != 0 ? 8u : 0u)));
  }
  return codes;
}

const Dialect& Row(const std::string& name) {
  const Dialect* row = FindDialect(name);
  REQUIRE(row != nullptr);
  return *row;
}

bool Same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void CheckBlock(const Dialect& d, const std::vector<float>& x, const Block& want) {
  const MatrixView<const float> view(x.data(), 1, x.size());
  for (const Quantized& q : {QuantizeAs(d, view), reference::QuantizeAs(d, view)}) {
    const float scale = q.scale_values.empty() ? Decode(d.scale, q.scales[0]) : q.scale_values[0];
    CHECK(Same(scale, want.scale));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool equal = Same(Decode(d.element, q.codes[i]), Decode(d.element, want.codes[i]));
      CAPTURE(i, x[i]);
      REQUIRE(equal);
    }
  }
}

TEST_CASE("Transformer Engine's FP8 blocks, powers of two and FP32", "[dialect]") {
  for (const std::string element : {"fp8_e4m3", "fp8_e5m2"}) {
    for (const bool power : {true, false}) {
      const Dialect& d = Row(element + ".te.1x128" + (power ? "" : ".fp32"));
      CAPTURE(d.name);
      std::size_t n = 0;
      for (const std::vector<float>& x : Blocks()) {
        CAPTURE(n++);
        CheckBlock(d, x, Te(x, d.element, power));
      }
    }
  }
  // What users see of the difference from the rows that round a quotient up.
  const std::vector<float> zeros(128, 0.0f);
  const MatrixView<const float> view(zeros.data(), 1, 128);
  CHECK(QuantizeAs(Row("fp8_e4m3.te.1x128"), view).scales[0] == 127);
  CHECK(QuantizeAs(Row("fp8_e4m3.1x128.e8m0"), view).scales[0] == 0);
  CHECK(QuantizeAs(Row("fp8_e4m3.te.1x128.fp32"), view).scale_values[0] == 1.0f);
}

TEST_CASE("DeepGEMM's FP8 blocks, powers of two and FP32", "[dialect]") {
  for (const bool power : {true, false}) {
    const Dialect& d = Row(std::string("fp8_e4m3.deepgemm.1x128") + (power ? "" : ".fp32"));
    CAPTURE(d.name);
    std::size_t n = 0;
    for (const std::vector<float>& x : Blocks()) {
      CAPTURE(n++);
      CheckBlock(d, x, DeepGemm(x, power));
    }
  }
  const std::vector<float> zeros(128, 0.0f);
  const MatrixView<const float> view(zeros.data(), 1, 128);
  CHECK(QuantizeAs(Row("fp8_e4m3.deepgemm.1x128.fp32"), view).scale_values[0] == 1e-4f / 448.0f);
  CHECK(QuantizeAs(Row("fp8_e4m3.deepgemm.1x128.fp32"), view).codes[0] == 0);
}

TEST_CASE("Square blocks have the scale of their largest element", "[dialect]") {
  const Matrix<float> x = NormalMatrix(4, 200, 300);
  for (const std::string name : {"fp8_e4m3.te.128x128", "fp8_e4m3.te.128x128.fp32",
                                 "fp8_e4m3.deepgemm.128x128", "fp8_e4m3.deepgemm.128x128.fp32"}) {
    CAPTURE(name);
    const Dialect& d = Row(name);
    const Quantized q = QuantizeAs(d, x.View());
    REQUIRE(q.scale_rows == 2);
    REQUIRE(q.scale_cols == 3);
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t j = 0; j < 3; ++j) {
        std::vector<float> block;
        for (std::size_t r = i * 128; r < std::min<std::size_t>(200, i * 128 + 128); ++r) {
          for (std::size_t c = j * 128; c < std::min<std::size_t>(300, j * 128 + 128); ++c) {
            block.push_back(x(r, c));
          }
        }
        const bool power = d.scale == FormatId::kE8M0;
        const Block want = name.find("deepgemm") != std::string::npos
                               ? DeepGemm(block, power)
                               : Te(block, FormatId::kE4M3, power);
        const std::size_t at = i * 3 + j;
        CHECK((power ? Decode(d.scale, q.scales[at]) : q.scale_values[at]) == want.scale);
        CHECK(q.codes[i * 128 * 300 + j * 128] == want.codes[0]);
      }
    }
  }
}

TEST_CASE("DeepGEMM's MXFP4 has ties toward zero, and no -0", "[dialect]") {
  const Dialect& d = Row("mxfp4.deepgemm");
  for (const std::vector<float>& x : Blocks()) {
    const MatrixView<const float> view(x.data(), 1, 32);
    const std::vector<float> block(x.begin(), x.begin() + 32);
    float scale = 0;
    const std::vector<std::uint8_t> codes = DeepGemmFp4(block, &scale);
    for (const Quantized& q : {QuantizeAs(d, view), reference::QuantizeAs(d, view)}) {
      CHECK(Decode(d.scale, q.scales[0]) == scale);
      CHECK(q.codes == codes);
    }
  }
  std::vector<float> ties(32, 0.0f);
  const float tie[] = {6, 0.25f, -0.25f, 0.75f, 1.25f, -1.75f, 2.5f, 3.5f, -5};
  std::copy(std::begin(tie), std::end(tie), ties.begin());
  const Quantized q = QuantizeAs(d, MatrixView<const float>(ties.data(), 1, 32));
  const std::vector<std::uint8_t> first(q.codes.begin(), q.codes.begin() + 9);
  CHECK(first == std::vector<std::uint8_t>{7, 0, 0, 1, 2, 11, 4, 5, 14});
}

}  // namespace
}  // namespace fp4lab
