#include "fp4lab/quantize/diagnostics/block_statistics.h"

#include <cmath>

#include "fp4lab/base/random.h"
#include "fp4lab/quantize/statistics.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Approx;

// Blocks of 32 elements whose largest magnitudes are 6, 0.75, 0, 12 and 6: scales 1, 1/8, 0 (as
// MXFP4 encodes a zero block), 2 and 1.
Matrix<float> FiveBlocks() {
  Matrix<float> x(1, 160);
  x(0, 0) = 6.0f;
  x(0, 32) = -0.75f;
  x(0, 96) = 12.0f;
  x(0, 128) = 6.0f;
  x(0, 129) = 0.2f;  // becomes 0
  return x;
}

TEST_CASE("The histogram counts block scales by their binary exponents", "[quantize]") {
  const Matrix<float> x = FiveBlocks();
  const Dialect& d = *FindDialect("mxfp4.floor");
  const ScaleHistogram h = MeasureScales(d, QuantizeAs(d, x.View()));
  std::size_t blocks = h.zeros + h.not_finite;
  for (const std::size_t n : h.counts) blocks += n;
  CHECK(blocks == 5);
  const auto count = [&](int exponent) {
    const int i = exponent - h.first;
    return i < 0 || i >= static_cast<int>(h.counts.size()) ? 0 : h.counts[static_cast<size_t>(i)];
  };
  CHECK(count(0) == 2);
  CHECK(count(-3) == 1);
  CHECK(count(1) == 1);
}

TEST_CASE("Scales of 0 have a count of their own, and scales of NaN", "[quantize]") {
  Matrix<float> x(1, 48);
  x(0, 0) = 448.0f * 6.0f;  // the tensor scale is 1
  x(0, 16) = 1e-6f;         // 1e-6 / 6 becomes 0 in E4M3
  const Dialect& d = *FindDialect("nvfp4.te");
  const ScaleHistogram h = MeasureScales(d, QuantizeAs(d, x.View()));
  CHECK(h.zeros == 2);
  CHECK(h.first == 8);
  CHECK(h.counts == std::vector<std::size_t>{1});
  CHECK(h.ZeroPercent() == Approx(200.0 / 3));
  CHECK(h.Spread() == 0.0);
  CHECK(ScaleHistogram{}.ZeroPercent() == 0.0);
}

TEST_CASE("The spread of scales is the standard deviation of their exponents", "[quantize]") {
  const ScaleHistogram h{.first = -4, .counts = {1, 0, 1}};
  CHECK(h.Spread() == Approx(1.0));
  CHECK(ScaleHistogram{}.Spread() == 0.0);
}

TEST_CASE("The error of a block is that of its elements alone", "[quantize]") {
  const Matrix<float> x = FiveBlocks();
  const Dialect& d = *FindDialect("mxfp4.floor");
  const BlockErrors e = MeasureBlockErrors(d, x.View(), QuantizeAs(d, x.View()));
  REQUIRE(e.rows == 1);
  REQUIRE(e.cols == 5);
  for (const std::size_t exact : {0, 1, 2, 3}) CHECK(e.relative[exact] == 0.0);
  const double small = static_cast<double>(0.2f);
  CHECK(e.relative[4] == Approx(small / std::sqrt(36.0 + small * small)));
}

TEST_CASE("Block errors add up to the tensor's SQNR in every dialect", "[quantize]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 64, 128);
  for (const char* name : {"nvfp4.te", "nvfp4.te.2d", "mxfp4.rceil", "mxfp8_e4m3.rceil"}) {
    const Dialect* d = FindDialect(name);
    CAPTURE(name);
    const Quantized q = QuantizeAs(*d, x.View());
    const BlockErrors e = MeasureBlockErrors(*d, x.View(), q);
    REQUIRE(e.relative.size() == e.rows * e.cols);
    const std::size_t tall = x.rows / e.rows, wide = x.cols / e.cols;
    double signal = 0.0, noise = 0.0;
    for (std::size_t i = 0; i < e.rows; ++i) {
      for (std::size_t j = 0; j < e.cols; ++j) {
        double squares = 0.0;
        for (std::size_t r = i * tall; r < (i + 1) * tall; ++r) {
          for (std::size_t c = j * wide; c < (j + 1) * wide; ++c) {
            squares += double{x(r, c)} * x(r, c);
          }
        }
        const double relative = e.relative[i * e.cols + j];
        signal += squares;
        noise += relative * relative * squares;
      }
    }
    const double sqnr = MeasureQuantization(*d, x.View(), q).values["sqnr_db"];
    CHECK(10.0 * std::log10(signal / noise) == Approx(sqnr).epsilon(1e-9));
  }
}

TEST_CASE("Kurtosis is near 3 for bell-shaped numbers, and outliers are beyond six r.m.s.",
          "[quantize]") {
  const Dialect& d = *FindDialect("nvfp4.te");
  Matrix<float> x(512, 256);  // sums of twelve uniform numbers, whose kurtosis is 2.9
  const RandomStream stream{.seed = 5};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    double sum = -6.0;
    for (std::size_t k = 0; k < 12; ++k) sum += UniformOpen(stream.Bits32(12 * i + k));
    x.values[i] = static_cast<float>(sum);
  }
  QuantizationStatistics s = MeasureQuantization(d, x.View());
  CHECK(s.values["kurtosis"] == Approx(2.9).epsilon(0.02));
  CHECK(s.values["outlier_percent"] == 0.0);
  Matrix<float> one(16, 64, 1.0f);
  one(3, 5) = -40.0f;  // r.m.s. of 1023 ones and a 40: 1.6
  s = MeasureQuantization(d, one.View());
  CHECK(s.values["outlier_percent"] == Approx(100.0 / 1024));
  const double squares = 1023.0 + 1600.0, fourth = 1023.0 + 2560000.0;
  CHECK(s.values["kurtosis"] == Approx(1024.0 * fourth / (squares * squares)));
  CHECK(s.values["crest_factor"] == Approx(40.0 / std::sqrt(squares / 1024)));
  s = MeasureQuantization(d, Matrix<float>(4, 16).View());
  CHECK(s.values["kurtosis"] == 0.0);
  CHECK(s.values["crest_factor"] == 0.0);
}

}  // namespace
}  // namespace fp4lab
