// Properties of the formats: published errors on Gaussian data, unbiased rounding, square blocks.
#include <cmath>
#include <numeric>
#include <vector>

#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/quantize/statistics.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

Matrix<float> Gaussian(std::size_t rows, std::size_t cols, double sigma, std::uint64_t seed = 3) {
  const RandomStream stream{.seed = seed};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i + 1 < x.values.size(); i += 2) {  // Box and Muller
    const PhiloxBlock bits = stream.Block(i);
    const double radius = sigma * std::sqrt(-2.0 * std::log(UniformOpen(bits[0])));
    const double angle = 2.0 * M_PI * UniformOpen(bits[1]);
    x.values[i] = static_cast<float>(radius * std::cos(angle));
    x.values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return x;
}

double MseTimes1000(std::string_view format, const Matrix<float>& x, double sigma) {
  double signal = 0.0;
  for (const float v : x.values) signal += static_cast<double>(v) * v;
  const double sqnr = MeasureQuantization(*FindDialect(format), x.View()).values["sqnr_db"];
  const auto count = static_cast<double>(x.values.size());
  return 1000.0 * signal / count * std::pow(10.0, -sqnr / 10.0) / (sigma * sigma);
}

TEST_CASE("NVFP4's error on Gaussian data is the published one", "[block][property]") {
  // Quartet II, Table 1: 9.0e-3 for 1x16 and 12.4e-3 for 16x16 blocks.
  const Matrix<float> x = Gaussian(1024, 1024, 1.0);
  CHECK(std::fabs(MseTimes1000("nvfp4", x, 1.0) - 9.0) < 0.1);
  CHECK(std::fabs(MseTimes1000("nvfp4.2d", x, 1.0) - 12.4) < 0.1);
}

TEST_CASE("MXFP4's error on Gaussian data, over one period of its scale, is the known one",
          "[block][property]") {
  double rceil = 0.0, floor = 0.0, ceil = 0.0, square = 0.0;
  constexpr int kSteps = 8;
  for (int i = 0; i < kSteps; ++i) {
    const double sigma = std::exp2(static_cast<double>(i) / kSteps);
    const Matrix<float> x = Gaussian(256, 512, sigma, 10 + static_cast<std::uint64_t>(i));
    rceil += MseTimes1000("mxfp4.rceil", x, sigma) / kSteps;
    ceil += MseTimes1000("mxfp4.ceil", x, sigma) / kSteps;
    floor += MseTimes1000("mxfp4.floor", x, sigma) / kSteps;
    square += MseTimes1000("mxfp4.rceil.2d", x, sigma) / kSteps;
  }
  // The scale rounded up from amax / 6 (which most papers call ceil) and OCP's floor are close;
  // torchao's CEIL, rounded up from amax / 4, loses most of a binade.
  CHECK(std::fabs(rceil - 13.7) < 0.4);
  CHECK(std::fabs(floor - 13.4) < 0.4);
  CHECK(std::fabs(ceil - 19.9) < 0.5);
  CHECK(square > 16.0);
  CHECK(square < 23.0);
}

TEST_CASE("With an amax just above 3, scales rounded up never let MXFP4 use the codes of 4 and 6",
          "[block][property]") {
  // NVIDIA's example (arXiv 2509.25149): amax / 6 > 1/2 is rounded up to the scale 1, and 3.1 is
  // nearer to 3 than to 4.
  Matrix<float> x = Gaussian(64, 64, 1.0);
  for (float& v : x.values) v = std::fmod(v, 3.1f);
  for (std::size_t i = 0; i < x.values.size(); i += 32) x.values[i] = 3.1f;
  const Quantized nvfp4 =
      Quantize(x.View(), {.dialect = *FindDialect("nvfp4"), .amax = TensorAmax(x.View())});
  const auto uses_top = [](const Quantized& q) {
    for (const std::uint8_t byte : q.codes) {
      if ((byte & 7) >= 6 || (byte >> 4 & 7) >= 6) return true;
    }
    return false;
  };
  for (const char* rule : {"mxfp4.rceil", "mxfp4.ceil"}) {
    CHECK_FALSE(uses_top(Quantize(x.View(), {.dialect = *FindDialect(rule)})));
  }
  CHECK(uses_top(nvfp4));
}

TEST_CASE("Square blocks quantize a matrix and its transpose alike, bit for bit",
          "[block][property]") {
  for (const char* name : {"nvfp4.2d", "mxfp4.ceil.2d", "mxfp4.rceil.2d"}) {
    const Matrix<float> w = TestMatrix(Kind::kNormal, 96, 130);
    const QuantizeOptions options{.dialect = *FindDialect(name), .amax = TensorAmax(w.View())};
    const Quantized q = Quantize(w.View(), options);
    const Quantized t = Quantize(w.View().Transposed(), options);
    const ScaleLayout scales(options.dialect, q.rows, q.cols);
    const ScaleLayout turned_scales(options.dialect, t.rows, t.cols);
    bool same = true;
    for (std::size_t r = 0; r < w.rows; ++r) {
      for (std::size_t c = 0; c < w.cols; ++c) {
        same &= reference::CodeAt(q, r, c) == reference::CodeAt(t, c, r);
        same &= q.scales[scales.Index(r, c)] == t.scales[turned_scales.Index(c, r)];
      }
    }
    CHECK(same);
  }
}

// Blocks whose scale is exact, so that no element is clipped: one element is 6 times an E4M3 value,
// the others are smaller.
Matrix<float> UnclippedNvfp4() {
  Matrix<float> x = Gaussian(64, 64, 1.0, 8);
  for (std::size_t b = 0; b < x.values.size() / 16; ++b) {
    const float s = Decode(FormatId::kE4M3, b == 0 ? 0x7E : 0x50 + static_cast<unsigned>(b % 40));
    for (std::size_t i = 0; i < 16; ++i) {
      float& v = x.values[16 * b + i];
      v = i == 5 ? 6.0f * s : 6.0f * s * std::fmod(std::fabs(v), 1.0f) * (v < 0.0f ? -1.0f : 1.0f);
    }
  }
  return x;
}

// ||mean of n stochastic quantizations - x||^2 / ||x||^2
double ErrorOfMean(const Matrix<float>& x, const Dialect& format, int n) {
  const float amax = TensorAmax(x.View());
  const double decode = OperandDecode(format, amax);
  std::vector<double> mean(x.values.size(), 0.0);
  Matrix<float> y(x.rows, x.cols);
  for (int i = 0; i < n; ++i) {
    QuantizeToValues(x.View(),
                     {.dialect = WithRounding(format, ElementRounding::kStochastic16),
                      .random = {.seed = 4, .step = static_cast<std::uint32_t>(i)},
                      .amax = amax},
                     y.View());
    for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += y.values[k] * decode / n;
  }
  double error = 0.0, power = 0.0;
  for (std::size_t k = 0; k < mean.size(); ++k) {
    error += (mean[k] - x.values[k]) * (mean[k] - x.values[k]);
    power += static_cast<double>(x.values[k]) * x.values[k];
  }
  return error / power;
}

TEST_CASE("Stochastic rounding is unbiased: the error of a mean of n falls as 1 / n",
          "[block][property]") {
  struct Row {
    const char* format;
    Matrix<float> x;
  };
  for (const Row& row : {Row{"nvfp4", UnclippedNvfp4()}, Row{"mxfp4.rceil", Gaussian(64, 64, 1.0)},
                         Row{"mxfp8_e4m3.rceil", Gaussian(64, 64, 1.0)}}) {
    INFO(row.format);
    const Dialect format = *FindDialect(row.format);
    const double one = ErrorOfMean(row.x, format, 1);
    for (const int n : {4, 32, 256}) {
      const double scaled = ErrorOfMean(row.x, format, n) * n;
      CHECK(scaled > 0.9 * one);
      CHECK(scaled < 1.1 * one);
    }
  }
}

TEST_CASE("Scaling a tensor by a power of two changes no code and no NVFP4 scale",
          "[block][property]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 32, 64);
  Matrix<float> y = x;
  for (float& v : y.values) v *= 0x1p-9f;
  for (const Dialect& named : TestDialects()) {
    INFO(named.name);
    const Quantized a = Quantize(x.View(), {.dialect = named, .amax = TensorAmax(x.View())});
    const Quantized b = Quantize(y.View(), {.dialect = named, .amax = TensorAmax(y.View())});
    CHECK(a.codes == b.codes);
    if (named.block_scale == BlockScale::kFolded) CHECK(a.scales == b.scales);
  }
}

TEST_CASE("Quantizing decoded MX values again changes nothing", "[block][property]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 32, 64);
  for (const char* name : {"mxfp4.floor", "mxfp4.even", "mxfp8_e4m3.floor", "mxfp8_e5m2.floor"}) {
    const QuantizeOptions options{.dialect = *FindDialect(name)};
    Matrix<float> once(32, 64), twice(32, 64);
    QuantizeToValues(x.View(), options, once.View());
    QuantizeToValues(std::as_const(once).View(), options, twice.View());
    CHECK(BitsOf(once) == BitsOf(twice));
  }
}

}  // namespace
}  // namespace fp4lab
