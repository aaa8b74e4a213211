#include "fp4lab/quantize/statistics.h"

#include <cmath>
#include <limits>

#include "fp4lab/base/parallel.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

QuantizationStatistics Measure(const Matrix<float>& x, std::string_view format) {
  return MeasureQuantization(*FindDialect(format), x.View());
}

TEST_CASE("Statistics of a block worked by hand", "[quantize]") {
  // mxfp4.floor of amax 7: scale 1. 7 is clipped to 6, 0.2 becomes 0, 2.6 becomes 3; the rest
  // stays.
  Matrix<float> x(1, 32);
  x(0, 0) = 7.0f;
  x(0, 1) = 0.2f;
  x(0, 2) = -2.625f;
  x(0, 3) = 1.5f;
  const QuantizationStatistics s = Measure(x, "mxfp4.floor");
  const double noise = 1.0 + static_cast<double>(0.2f) * 0.2f + 0.375 * 0.375;
  const double signal = 49.0 + static_cast<double>(0.2f) * 0.2f + 2.625 * 2.625 + 2.25;
  CHECK(s.values["amax"] == 7.0f);
  CHECK(s.values["underflow_percent"] == 25.0);
  CHECK(s.values["clip_percent"] == 100.0 / 32.0);
  CHECK(s.values["sqnr_db"] == Catch::Approx(10.0 * std::log10(signal / noise)).epsilon(1e-14));
  CHECK(s.elements == 32);
  CHECK(s.not_finite == 0);
}

TEST_CASE("The bias is that of magnitudes, and stochastic rounding has none", "[quantize]") {
  Matrix<float> x(1, 32);  // 7 becomes 6, 0.25 and -0.25 become 0, -2.625 becomes -3
  x(0, 0) = 7.0f;
  x(0, 1) = 0.25f;
  x(0, 2) = -2.625f;
  x(0, 3) = -0.25f;
  const QuantizationStatistics s = Measure(x, "mxfp4.floor");
  CHECK(s.values["bias_percent"] ==
        Catch::Approx(100.0 * (-1.0 - 0.25 + 0.375 - 0.25) / (7.0 + 2.625 + 0.5)).epsilon(1e-14));

  const Matrix<float> normal = TestMatrix(Kind::kNormal, 512, 256);
  Dialect d = *FindDialect("mxfp4.rceil");  // clips nothing
  const auto bias = [&] {
    const DialectOptions options{.source = RandomSource{RandomStream{.seed = 7}}};
    return MeasureQuantization(d, normal.View(), options).values["bias_percent"];
  };
  d.rounding = ElementRounding::kStochastic16;
  CHECK(std::fabs(bias()) < 0.1);
  d.rounding = ElementRounding::kTowardZero;
  CHECK(bias() < -5.0);
}

TEST_CASE("Values that a format holds exactly have no error", "[quantize]") {
  Matrix<float> x(2, 16);
  for (std::size_t i = 0; i < 32; ++i) x.values[i] = Decode(FormatId::kE2M1, i % 16);
  const QuantizationStatistics s = Measure(x, "mxfp4.floor");
  CHECK(s.values["sqnr_db"] == 3000.0);  // the largest that is reported
  CHECK(s.values["underflow_percent"] == 0.0);
  CHECK(s.values["clip_percent"] == 0.0);
}

TEST_CASE("A zero tensor and a zero block scale give finite statistics", "[quantize]") {
  const QuantizationStatistics zero = Measure(Matrix<float>(3, 20), "nvfp4");
  CHECK(zero.values["sqnr_db"] == 0.0);
  CHECK(zero.values["underflow_percent"] == 0.0);
  CHECK(zero.values["amax"] == 0.0f);
  // The second block's scale underflows: its codes are +-6, its values 0, which counts as underflow
  // and not as clipping.
  Matrix<float> x(1, 32);
  x(0, 0) = 1.0f;
  for (std::size_t c = 16; c < 32; ++c) x(0, c) = 1e-7f;
  const QuantizationStatistics s = Measure(x, "nvfp4");
  CHECK(s.values["underflow_percent"] == Catch::Approx(100.0 * 16 / 17));
  CHECK(s.values["clip_percent"] == 0.0);
}

TEST_CASE("Elements that are not finite are counted and left out", "[quantize]") {
  Matrix<float> x(1, 16, 1.0f);
  x(0, 4) = std::numeric_limits<float>::quiet_NaN();
  const QuantizationStatistics s = Measure(x, "nvfp4");
  CHECK(s.not_finite == 1);
  CHECK(s.elements == 15);
  CHECK(s.values["sqnr_db"] > 100.0);
}

TEST_CASE("Statistics do not depend on the number of threads", "[quantize]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 100, 96);
  const int threads = Threads();
  SetThreads(1);
  const QuantizationStatistics one = Measure(x, "nvfp4");
  SetThreads(3);
  const QuantizationStatistics three = Measure(x, "nvfp4");
  SetThreads(threads);
  CHECK(one.values.numbers == three.values.numbers);
}

}  // namespace
}  // namespace fp4lab
