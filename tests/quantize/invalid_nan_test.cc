// Decoded numbers that are NaN have the same bits on every machine: 0xFFC00000 where two numbers
// make one (0 times infinity), else those of the operand that is one. The processor's own choice
// for the first differs between x86 and Arm.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/decoded_product.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/implementation.h"
#include "fp4lab/quantize/operand.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// Whether `got` is a NaN that a * b may have: found by integers alone. Of two NaNs either may stay.
bool IsNanOf(std::uint32_t got, std::uint32_t a, std::uint32_t b) {
  const auto magnitude = [](std::uint32_t x) { return x & 0x7FFFFFFFu; };
  const auto is_nan = [&](std::uint32_t x) { return magnitude(x) > 0x7F800000u; };
  if (is_nan(a) && got == (a | 0x00400000u)) return true;
  if (is_nan(b) && got == (b | 0x00400000u)) return true;
  if (is_nan(a) || is_nan(b)) return false;
  const bool invalid = (magnitude(a) == 0 && magnitude(b) == 0x7F800000u) ||
                       (magnitude(b) == 0 && magnitude(a) == 0x7F800000u);
  return invalid && got == 0xFFC00000u;
}

struct Count {
  std::size_t nans = 0, invalid = 0, wrong = 0;
  void Add(float got, float a, float b) {
    if (!std::isnan(got)) return;
    ++nans;
    invalid += !std::isnan(a) && !std::isnan(b);
    wrong += !IsNanOf(Bits(got), Bits(a), Bits(b));
  }
};

TEST_CASE("A product and a quotient of numbers have one NaN", "[quantize][nan]") {
  volatile float zero = 0.0f, inf = kInf, one = 1.0f;  // at run time
  for (const float a : {+zero, -zero}) {
    for (const float b : {+inf, -inf}) {
      CHECK(Bits(DecodedProduct(a, b)) == 0xFFC00000u);
      CHECK(Bits(DecodedProduct(b, a)) == 0xFFC00000u);
    }
  }
  CHECK(Bits(DecodedQuotient(zero, zero)) == 0xFFC00000u);
  CHECK(Bits(DecodedQuotient(inf, -inf)) == 0xFFC00000u);
  for (const std::uint32_t nan : {0x7FC00000u, 0xFFC00001u, 0x7FC12345u}) {
    const auto x = std::bit_cast<float>(nan);
    CHECK(Bits(DecodedProduct(x, inf)) == nan);
    CHECK(Bits(DecodedProduct(zero, x)) == nan);
    CHECK(Bits(DecodedQuotient(x, one)) == nan);
  }
  CHECK(DecodedProduct(one, -3.0f) == -3.0f);
  CHECK(DecodedProduct(inf, one) == kInf);
}

TEST_CASE("Every dialect decodes under an infinite amax to the same NaN bits", "[quantize][nan]") {
  Count all;
  const Matrix<float> x = TestMatrix(Kind::kAnyBits, 33, 80);
  const std::vector<std::uint16_t> random(x.values.size(), 0x80);
  for (const Dialect& d : Dialects()) {
    CAPTURE(d.name);
    Quantized q = QuantizeAs(d, x.View(), {.random = random});
    for (const float amax : {0.0f, 1.0f, kInf}) {
      for (float& a : q.amax) a = amax;
      const BlockGrid grid(d, q.rows, q.cols);
      const Matrix<float> y = DequantizeAs(d, q);
      Matrix<float> operand(q.rows, q.cols);
      ToOperandValues(d, q, operand.View());
      Count count;
      for (std::size_t r = 0; r < q.rows; ++r) {
        for (std::size_t c = 0; c < q.cols; ++c) {
          const float value = Decode(d.element, q.codes[r * q.cols + c]);
          const float scale = ScaleAt(d, grid, q, r, c);
          const float scaled = d.prescale == 1.0f ? value : value / d.prescale;
          count.Add(y(r, c), scaled, DecodeFactor(d, scale, amax));
          count.Add(operand(r, c), value, scale);
          if (std::isnan(DecodeFactor(d, scale, amax)) && !std::isnan(scale)) {
            count.wrong += Bits(DecodeFactor(d, scale, amax)) != 0xFFC00000u;
          }
        }
      }
      CHECK(count.wrong == 0);
      all.nans += count.nans;
      all.invalid += count.invalid;
      if (q.amax.empty()) break;
    }
  }
  CHECK(all.nans > 1000);
  CHECK(all.invalid > 1000);
}

TEST_CASE("Kernels decode to the bits of the definition, NaN among them", "[quantize][nan]") {
  const Matrix<float> x = TestMatrix(Kind::kAnyBits, 33, 80);
  std::size_t nans = 0;
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    INFO("target " << target);
    for (const Dialect& d : TestDialects()) {
      CAPTURE(d.name);
      Quantized q = Quantize(x.View(), {.dialect = d});
      for (std::size_t i = 0; i < q.scales.size(); i += 3) q.scales[i] = 0;
      for (const float amax : {1.0f, kInf}) {
        for (float& a : q.amax) a = amax;
        const Matrix<float> want = DequantizeAs(d, InOrder(q, CodeOrder::kBytes));
        Matrix<float> rows(33, 80), turned(80, 33);
        Dequantize(d, q, rows.View());
        Dequantize(d, q, turned.View().Transposed());
        std::size_t wrong = 0;
        for (std::size_t r = 0; r < 33; ++r) {
          for (std::size_t c = 0; c < 80; ++c) {
            nans += std::isnan(want(r, c));
            wrong += Bits(rows(r, c)) != Bits(want(r, c));
            wrong += Bits(turned(c, r)) != Bits(want(r, c));
          }
        }
        CHECK(wrong == 0);
        if (q.amax.empty()) break;
      }
    }
  }
  PinSimdTarget("best");
  CHECK(nans > 1000);
}

TEST_CASE("Kernels give operands the bits of the definition, NaN among them", "[quantize][nan]") {
  const Matrix<float> x = TestMatrix(Kind::kAnyBits, 33, 80);
  std::size_t invalid = 0;
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    INFO("target " << target);
    for (const Dialect& d : Dialects()) {
      if (d.scale_encoding != ScaleEncoding::kBinary32) continue;  // others have no infinite scale
      CAPTURE(d.name);
      const Quantized q = reference::QuantizeAs(d, x.View());
      Matrix<float> want(33, 80), rows(33, 80), turned(80, 33);
      ToOperandValues(d, q, want.View());
      QuantizeToValues(d, x.View(), {}, rows.View());
      QuantizeToValues(d, x.View(), {}, turned.View().Transposed());
      std::size_t wrong = 0;
      for (std::size_t r = 0; r < 33; ++r) {
        for (std::size_t c = 0; c < 80; ++c) {
          invalid += Bits(want(r, c)) == 0xFFC00000u;
          wrong += Bits(rows(r, c)) != Bits(want(r, c));
          wrong += Bits(turned(c, r)) != Bits(want(r, c));
        }
      }
      CHECK(wrong == 0);
    }
  }
  PinSimdTarget("best");
  CHECK(invalid > 0);
}

}  // namespace
}  // namespace fp4lab
