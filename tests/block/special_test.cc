// Quantization of special inputs: the table of block/quantize.h, row by row, for every block
// format, by the scalar reference and the kernels, rowwise and columnwise.
#include <cmath>
#include <limits>
#include <vector>

#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t CodeAt(const Quantized& q, std::size_t c) { return reference::CodeAt(q, 0, c); }

enum class Family { kNvfp4, kMx, kRceil, kTensor };
Family FamilyOf(const Dialect& f) {
  if (f.block_scale == BlockScale::kFolded) return Family::kNvfp4;
  if (f.block_scale == BlockScale::kOneBlock) return Family::kTensor;
  return f.block_scale == BlockScale::kRceil ? Family::kRceil : Family::kMx;
}

// Quantizes the values with every rounding, as a row and as a column, checks both results against
// the reference's, and calls body(q) with the reference's.
template <class Body>
void UnderRoundings(const Dialect& format, const std::vector<float>& values, Body body) {
  Matrix<float> row(1, values.size()), column(values.size(), 1);
  row.values = values;
  column.values = values;
  for (const ElementRounding rounding :
       {ElementRounding::kNearestEven, ElementRounding::kTowardZero,
        ElementRounding::kStochastic16}) {
    const QuantizeOptions options{.dialect = WithRounding(format, rounding),
                                  .amax = TensorAmax(row.View())};
    const Quantized want = reference::Quantize(row.View(), options);
    CHECK((Quantize(row.View(), options) == want));
    CHECK((Quantize(column.View().Transposed(), options) == want));
    body(want);
  }
}

template <class Body>
void ForFormats(Body body) {
  for (const Dialect& named : TunedRows()) {
    INFO(named.name);
    const Format& element = FormatOf(named.element);
    body(named, element, FamilyOf(named));
  }
}

TEST_CASE("Zeros have the least scale and codes 0 that keep their signs", "[block][special]") {
  ForFormats([](const Dialect& format, const Format& element, Family family) {
    UnderRoundings(format, {0.0f, -0.0f, 0.0f, -0.0f, 0.0f}, [&](const Quantized& q) {
      if (family != Family::kTensor) CHECK(q.scales == std::vector<std::uint8_t>{0});
      for (std::size_t c = 0; c < 5; ++c)
        CHECK(CodeAt(q, c) == (c % 2 == 1 ? SignBit(element) : 0));
    });
    // Zeros in a block with another value.
    UnderRoundings(format, {1.0f, -0.0f, 0.0f}, [&](const Quantized& q) {
      CHECK(CodeAt(q, 1) == SignBit(element));
      CHECK(CodeAt(q, 2) == 0);
    });
  });
}

TEST_CASE("A NaN gets the NaN code and changes nothing else", "[block][special]") {
  ForFormats([](const Dialect& format, const Format& element, Family) {
    const std::vector<float> values = {1.5f, -0.3f, 0.7f, -1.1f};
    std::vector<float> with_nan = values;
    with_nan[2] = -kNan;
    std::vector<float> with_zero = values;
    with_zero[2] = 0.0f;
    std::vector<Quantized> zeros;
    UnderRoundings(format, with_zero, [&](const Quantized& q) { zeros.push_back(q); });
    std::size_t i = 0;
    UnderRoundings(format, with_nan, [&](const Quantized& q) {
      const Quantized& zero = zeros[i++];
      CHECK(q.scales == zero.scales);
      CHECK(CodeAt(q, 2) == NanCode(element));
      for (const std::size_t c : {0u, 1u, 3u}) CHECK(CodeAt(q, c) == CodeAt(zero, c));
    });
    UnderRoundings(format, {kNan, -kNan, kNan}, [&](const Quantized& q) {
      if (!q.scales.empty()) CHECK(q.scales[0] == 0);
      CHECK(q.amax == std::vector<float>(HasTensorScale(format) ? 1 : 0, 0.0f));
      for (std::size_t c = 0; c < 3; ++c) CHECK(CodeAt(q, c) == NanCode(element));
    });
  });
}

TEST_CASE("An Inf saturates, and makes the scale of MX floor, ceil and even NaN",
          "[block][special]") {
  ForFormats([](const Dialect& format, const Format& element, Family family) {
    UnderRoundings(format, {1.0f, kInf, -kInf, -2.0f}, [&](const Quantized& q) {
      if (family == Family::kNvfp4) CHECK(q.scales[0] == 0x7E);
      if (family == Family::kRceil) CHECK(q.scales[0] == 0xFE);
      if (family == Family::kMx) {
        CHECK(q.scales[0] == 0xFF);
        for (std::size_t c = 0; c < 4; ++c) CHECK(CodeAt(q, c) == NanCode(element));
        Matrix<float> y(1, 4);
        Dequantize(format, q, y.View());
        for (const float v : y.values) CHECK(std::isnan(v));
        return;
      }
      CHECK(CodeAt(q, 1) == MaxFiniteCode(element));
      CHECK(CodeAt(q, 2) == (MaxFiniteCode(element) | SignBit(element)));
    });
  });
}

TEST_CASE("Subnormal values are quantized, not flushed", "[block][special]") {
  const float tiny = 0x1p-128f;
  ForFormats([&](const Dialect& format, const Format& element, Family family) {
    UnderRoundings(format, {tiny, -tiny / 2, 0x1p-149f, 0.0f}, [&](const Quantized& q) {
      if (family == Family::kMx || family == Family::kRceil) {
        CHECK(q.scales[0] == 0);  // 2^-127: the elements are 1/2, -1/4
        CHECK(CodeAt(q, 0) == Encode(element, 0.5f));
      }
      if (family == Family::kTensor) {  // FLT_MAX * 2^-128 is just below 1
        const std::uint32_t one = Encode(element, 1.0f);
        CHECK((CodeAt(q, 0) == one || CodeAt(q, 0) == one - 1));
      }
      if (family == Family::kNvfp4) CHECK(q.scales[0] != 0);
      Matrix<float> y(1, 4);
      Dequantize(format, q, y.View());
      CHECK(y(0, 0) > 0.0f);
    });
  });
}

TEST_CASE("A last block of any length is quantized as if the rest of it did not exist",
          "[block][special]") {
  ForFormats([](const Dialect& format, const Format&, Family) {
    const std::size_t width = format.block_scale == BlockScale::kOneBlock
                                  ? 32
                                  : static_cast<std::size_t>(format.block_cols);
    const Matrix<float> x = TestMatrix(Kind::kNormal, 1, 2 * width, 5);
    const float amax = TensorAmax(x.View());
    const Quantized whole = Quantize(x.View(), {.dialect = format, .amax = amax});
    for (std::size_t n = 1; n <= 2 * width; ++n) {
      const MatrixView<const float> part(x.values.data(), 1, n);
      const QuantizeOptions options{.dialect = format, .amax = amax};
      const Quantized q = Quantize(part, options);
      REQUIRE((q == reference::Quantize(part, options)));
      // Whole blocks equal those of the whole row; the last block equals a quantization of its
      // elements alone.
      const std::size_t first = (n - 1) / width * width;
      const Quantized last =
          Quantize(MatrixView<const float>(x.values.data() + first, 1, n - first), options);
      for (std::size_t c = 0; c < n; ++c) {
        REQUIRE(CodeAt(q, c) == (c < first ? CodeAt(whole, c) : CodeAt(last, c - first)));
      }
      if (!q.scales.empty()) REQUIRE(q.scales.back() == last.scales[0]);
    }
  });
}

}  // namespace
}  // namespace fp4lab
