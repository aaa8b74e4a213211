// TraceAs reports how QuantizeAs came to a code, and the code's distance to a tie.
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("A trace ends in the bytes of QuantizeAs in every dialect", "[quantize]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 33, 70);
  std::vector<std::uint16_t> random(x.values.size());
  for (std::size_t i = 0; i < random.size(); ++i)
    random[i] = static_cast<std::uint16_t>(i * 40503u);
  for (const Dialect& d : Dialects()) {
    const Quantized q = QuantizeAs(d, x.View(), {.random = random});
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{69}, std::size_t{17 * 70 + 33}, std::size_t{32 * 70 + 69}}) {
      const Trace t = TraceAs(d, x.View(), at / 70, at % 70, {.random = random});
      CAPTURE(d.name, at);
      CHECK(t.code == q.codes[at]);
      CHECK(t.x == x.values[at]);
      if (!q.scales.empty()) {
        const std::size_t block = t.row / static_cast<std::size_t>(d.block_rows) * q.scale_cols +
                                  t.col / static_cast<std::size_t>(d.block_cols);
        CHECK(t.scale_byte == q.scales[block]);
      }
      if (!q.amax.empty()) CHECK(t.amax == q.amax[d.row_scaled ? t.row : 0]);
      CHECK(t.divides == HasDivisor(d.factor));
      CHECK(t.code_tie_ulps >= 0);
    }
  }
}

TEST_CASE("The distance to a tie counts binary32 numbers", "[quantize]") {
  const Dialect& te = *FindDialect("te");
  Matrix<float> x(1, 16);
  x(0, 0) = 6.0f;  // with amax = 2688 the encode scale is 1; b = 6 makes the scale and the factor 1
  x(0, 1) = 2.5f;
  x(0, 2) = std::nextafter(2.5f, 3.0f);
  x(0, 3) = std::nextafter(std::nextafter(-0.25f, 0.0f), 0.0f);
  const DialectOptions options{.amax = {2688.0f}};
  const Trace tie = TraceAs(te, x.View(), 0, 1, options);
  CHECK(tie.encode == 1.0f);
  CHECK(tie.scale == 1.0f);
  CHECK(tie.scaled == 2.5f);
  CHECK(tie.code_tie_ulps == 0);
  CHECK(tie.code == 4);
  CHECK(TraceAs(te, x.View(), 0, 2, options).code_tie_ulps == 1);
  CHECK(TraceAs(te, x.View(), 0, 3, options).code_tie_ulps == 2);
  // t = fl(6 * fl(1/6)) = 1; the boundary 1.0625 is 2^19 floats above it, 0.96875 2^19 below.
  CHECK(tie.scale_before == 1.0f);
  CHECK(tie.scale_tie_ulps == 0x1p19);

  Dialect truncating = te;
  truncating.rounding = ElementRounding::kTowardZero;
  x(0, 4) = 3.0f;
  CHECK(TraceAs(truncating, x.View(), 0, 4, options).code_tie_ulps == 0);
}

TEST_CASE("For E8M0 the distance is to the nearest maximum with another byte", "[quantize]") {
  Matrix<float> x(1, 32);
  x(0, 0) = 4.0f;
  CHECK(TraceAs(*FindDialect("mxfp4.floor"), x.View(), 0, 0).scale_tie_ulps == 1);
  CHECK(TraceAs(*FindDialect("mxfp4.ceil"), x.View(), 0, 0).scale_tie_ulps == 1);
  CHECK(TraceAs(*FindDialect("mxfp4.even"), x.View(), 0, 0).scale_tie_ulps == 0x1p21 + 1);
  x(0, 0) = 7.0f;
  CHECK(TraceAs(*FindDialect("mxfp4.even"), x.View(), 0, 0).scale_tie_ulps == 1);
}

TEST_CASE("A row-scaled matrix is its rows, each quantized as a tensor of its own", "[quantize]") {
  Matrix<float> x = TestMatrix(Kind::kNormal, 7, 50);
  for (std::size_t r = 0; r < 7; ++r) {
    for (std::size_t c = 0; c < 50; ++c) x(r, c) *= std::ldexp(1.0f, 3 * static_cast<int>(r));
  }
  std::size_t tried = 0;
  for (const Dialect& d : Dialects()) {
    if (!d.row_scaled) continue;
    CAPTURE(d.name);
    Dialect whole_tensor = d;
    whole_tensor.row_scaled = false;
    const Quantized whole = QuantizeAs(d, x.View());
    REQUIRE(whole.amax.size() == 7);
    CHECK(whole.codes != QuantizeAs(whole_tensor, x.View()).codes);
    const Matrix<float> values = DequantizeAs(d, whole);
    for (std::size_t r = 0; r < 7; ++r) {
      const Quantized row = QuantizeAs(whole_tensor, x.View().Block(r, 0, 1, 50));
      CHECK(whole.amax[r] == row.amax[0]);
      CHECK(std::equal(row.codes.begin(), row.codes.end(), whole.codes.begin() + r * 50));
      // Bytes, numbers in binary32, or neither.
      const auto bytes = static_cast<std::ptrdiff_t>(r * row.scales.size());
      const auto numbers = static_cast<std::ptrdiff_t>(r * row.scale_values.size());
      CHECK(std::equal(row.scales.begin(), row.scales.end(), whole.scales.begin() + bytes));
      CHECK(std::equal(row.scale_values.begin(), row.scale_values.end(),
                       whole.scale_values.begin() + numbers));
      const Matrix<float> row_values = DequantizeAs(whole_tensor, row);
      CHECK(std::equal(row_values.values.begin(), row_values.values.end(),
                       values.values.begin() + r * 50));
    }
    ++tried;
  }
  // With and without four over six: two errors, two bounds, two error paths; FlashInfer's per
  // token.
  CHECK(tried == 15);
}

TEST_CASE("The bytes do not depend on the number of threads, nor a view's on its strides",
          "[quantize]") {
  const Matrix<float> x = TestMatrix(Kind::kTies, 40, 64);
  Matrix<float> copy(64, 40);
  for (std::size_t r = 0; r < 64; ++r) {
    for (std::size_t c = 0; c < 40; ++c) copy(r, c) = x(c, r);
  }
  for (const char* name : {"te", "nvfp4.te.4over6.mse.256.2d", "mxfp4.even", "fp8_e4m3"}) {
    const Dialect& d = *FindDialect(name);
    const int threads = Threads();
    SetThreads(1);
    const Quantized one = QuantizeAs(d, x.View());
    SetThreads(3);
    CHECK(QuantizeAs(d, x.View()) == one);
    SetThreads(threads);
    CHECK(QuantizeAs(d, x.View().Transposed()) == QuantizeAs(d, copy.View()));
  }
}

TEST_CASE("Options that do not fit the dialect are a caller's bug", "[quantize]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 4, 16);
  CHECK_THROWS_AS(QuantizeAs(*FindDialect("te"), x.View(), {.amax = {1, 2}}), std::logic_error);
  CHECK_THROWS_AS(QuantizeAs(*FindDialect("nvfp4.te.row-scaled"), x.View(), {.amax = {1}}),
                  std::logic_error);
  CHECK_THROWS_AS(QuantizeAs(*FindDialect("nvfp4.te.stochastic"), x.View()), std::logic_error);
  CHECK_THROWS_AS(TraceAs(*FindDialect("te"), x.View(), 4, 0), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
