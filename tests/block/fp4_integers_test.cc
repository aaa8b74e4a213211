// QuantizeToFp4Integers: the meaning of its integers and scales, and the same bytes on every
// target.
#include "fp4lab/block/fp4_integers.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

// FP4 integers and scales in the memory order of x (row-major or transposed), with padding between
// rows.
struct Integers {
  std::size_t gap = 5;
  Matrix<std::uint8_t> codes;
  Matrix<float> scales;
  bool transposed;
  std::size_t rows, cols, scale_rows, scale_cols;

  Integers(MatrixView<const float> x, const Dialect& format, bool transposed)
      : transposed(transposed), rows(x.rows), cols(x.cols) {
    const auto block_rows = static_cast<std::size_t>(format.block_rows);
    const auto block_cols = static_cast<std::size_t>(format.block_cols);
    scale_rows = (rows + block_rows - 1) / block_rows;
    scale_cols = (cols + block_cols - 1) / block_cols;
    codes = transposed ? Matrix<std::uint8_t>(cols, rows + gap, 0xEE)
                       : Matrix<std::uint8_t>(rows, cols + gap, 0xEE);
    scales = transposed ? Matrix<float>(scale_cols, scale_rows + gap, -1.0f)
                        : Matrix<float>(scale_rows, scale_cols + gap, -1.0f);
  }
  Fp4Integers View() {
    const auto c = codes.View().Block(0, 0, codes.rows, codes.cols - gap);
    const auto s = scales.View().Block(0, 0, scales.rows, scales.cols - gap);
    return transposed ? Fp4Integers{c.Transposed(), s.Transposed()} : Fp4Integers{c, s};
  }
  bool operator==(const Integers& o) const {
    return codes == o.codes && BitsOf(scales) == BitsOf(o.scales);
  }
};

std::vector<Dialect> IntegerFormats() {
  std::vector<Dialect> formats;
  for (const Dialect& f : TestDialects()) {
    if (HasFp4Integers(f)) formats.push_back(f);
  }
  return formats;
}

void CheckEveryTarget(const Matrix<float>& memory, bool transposed,
                      const QuantizeOptions& options) {
  const MatrixView<const float> x = transposed ? memory.View().Transposed() : memory.View();
  Integers want(x, options.dialect, transposed);
  const bool want_exact = reference::QuantizeToFp4Integers(x, options, want.View());
  const int threads = Threads();
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    const bool vary = memory.rows > 128 && target == SimdTargets().front();
    for (const int n : vary ? std::vector{1, 2, 3} : std::vector{1}) {
      SetThreads(n);
      INFO("target " << target << ", threads " << n);
      Integers got(x, options.dialect, transposed);
      CHECK(QuantizeToFp4Integers(x, options, got.View()) == want_exact);
      const bool same = got == want;
      CHECK(same);
    }
  }
  SetThreads(threads);
  PinSimdTarget("best");
}

TEST_CASE("FP4 integers are the reference's on every target", "[block][differential]") {
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const Dialect& format : IntegerFormats()) {
    for (const ElementRounding rounding :
         {ElementRounding::kNearestEven, ElementRounding::kStochastic16}) {
      for (const auto& [rows, cols] : {std::pair{1, 1},
                                       {3, 17},
                                       {33, 47},
                                       {5, 200},
                                       {128, 24},
                                       {6, 1100},
                                       {64, 64},
                                       {300, 136},
                                       {16, 2085}}) {
        for (const Kind kind : kKinds) {
          if (rows * cols > 10000 && kind != Kind::kNormal) continue;
          const Matrix<float> x = TestMatrix(kind, rows, cols);
          for (const bool transposed : {false, true}) {
            INFO(format.name << " " << rows << "x" << cols << " kind " << static_cast<int>(kind)
                             << " rounding " << static_cast<int>(rounding)
                             << (transposed ? " transposed" : ""));
            CheckEveryTarget(x, transposed,
                             {.dialect = WithRounding(format, rounding),
                              .random = {.seed = 0x123456789ABCDEF0u, .step = 3, .tensor = 9},
                              .amax = reference::TensorAmax(x.View())});
          }
        }
      }
    }
  }
}

TEST_CASE("FP4 integers times scales are the values of QuantizeToValues", "[block]") {
  for (const Dialect& format : IntegerFormats()) {
    const Matrix<float> x = TestMatrix(Kind::kNormal, 48, 80);
    const QuantizeOptions options{.dialect = format, .amax = TensorAmax(x.View())};
    Integers integers(x.View(), format, false);
    REQUIRE(QuantizeToFp4Integers(x.View(), options, integers.View()));
    Matrix<float> values(48, 80);
    QuantizeToValues(x.View(), options, values.View());
    bool same = true;
    for (std::size_t r = 0; r < 48; ++r) {
      for (std::size_t c = 0; c < 80; ++c) {
        const float scale = integers.View().scales(r / static_cast<std::size_t>(format.block_rows),
                                                   c / static_cast<std::size_t>(format.block_cols));
        const int twice = integers.codes(r, c) - 12;
        same &= std::abs(twice) <= 12 && 0.5f * static_cast<float>(twice) * scale == values(r, c);
      }
    }
    INFO(format.name);
    CHECK(same);
  }
}

TEST_CASE("QuantizeToFp4Integers takes input and output of any strides", "[block]") {
  const Dialect nvfp4 = *FindDialect("nvfp4");
  const Matrix<float> x = TestMatrix(Kind::kNormal, 33, 70);
  const QuantizeOptions options{.dialect = WithRounding(nvfp4, ElementRounding::kStochastic16),
                                .amax = TensorAmax(x.View())};
  Integers want(x.View(), nvfp4, false), got(x.View(), nvfp4, true), again(x.View(), nvfp4, false);
  Matrix<float> spread(33, 140);
  for (std::size_t i = 0; i < x.values.size(); ++i) spread.values[2 * i] = x.values[i];
  CHECK(reference::QuantizeToFp4Integers(x.View(), options, want.View()));
  CHECK(QuantizeToFp4Integers(x.View(), options, got.View()));
  CHECK(QuantizeToFp4Integers({spread.values.data(), 33, 70, 140, 2}, options, again.View()));
  CHECK(again == want);
  bool same = true;
  for (std::size_t r = 0; r < 33; ++r) {
    for (std::size_t c = 0; c < 70; ++c) {
      same &= got.View().codes(r, c) == want.View().codes(r, c) &&
              got.View().scales(r, c / 16) == want.View().scales(r, c / 16);
    }
  }
  CHECK(same);
}

TEST_CASE("FP4 integers are refused where products of scales would not be exact", "[block]") {
  const Dialect mxfp4 = *FindDialect("mxfp4.floor");
  Matrix<float> x(2, 64, 1.0f);
  const auto exact = [&](float element) {
    for (const std::string& target : SimdTargets()) {
      PinSimdTarget(target);
      x(1, 40) = element;
      for (std::size_t c = 32; c < 64; ++c) {
        if (c != 40) x(1, c) = 0.0f;
      }
      Integers got(x.View(), mxfp4, false), want(x.View(), mxfp4, false);
      const bool said = QuantizeToFp4Integers(x.View(), {.dialect = mxfp4}, got.View());
      CHECK(reference::QuantizeToFp4Integers(x.View(), {.dialect = mxfp4}, want.View()) == said);
      CHECK(got == want);
      if (element == 0.0f) CHECK(got.View().scales(1, 1) == 0.0f);
      PinSimdTarget("best");
      if (target == SimdTargets().back()) return said;
    }
    return false;
  };
  CHECK(exact(0.0f));
  CHECK(exact(-0.0f));
  CHECK(exact(0x1p-58f));
  CHECK_FALSE(exact(0x1p-59f));  // block scale 2^-61
  CHECK(exact(0x1p60f));
  CHECK_FALSE(exact(0x1p61f));  // block scale 2^59
  CHECK_FALSE(exact(std::numeric_limits<float>::infinity()));
  CHECK_FALSE(exact(std::numeric_limits<float>::quiet_NaN()));  // NaN decodes to 6 * 2^-127
}

TEST_CASE("Scales beyond the range are found anywhere in a row or a column of scales", "[block]") {
  const Dialect mxfp4 = *FindDialect("mxfp4.floor");
  const QuantizeOptions options{.dialect = mxfp4};
  for (const bool transposed : {false, true}) {
    for (std::size_t bad = 0; bad < 19; ++bad) {
      Matrix<float> memory(transposed ? 19 * 32 : 3, transposed ? 3 : 19 * 32, 1.0f);
      const auto x = transposed ? memory.View().Transposed() : memory.View();
      const auto said = [&](float element) {
        for (std::size_t c = 0; c < 32; ++c) x(2, bad * 32 + c) = element;
        Integers got(x, mxfp4, transposed);
        const bool exact = QuantizeToFp4Integers(x, options, got.View());
        return std::pair{exact, got.View().scales(2, bad)};
      };
      INFO("block " << bad << (transposed ? " of columns" : " of rows"));
      CHECK(said(0x1p-58f) == std::pair{true, 0x1p-60f});
      CHECK(said(0x1p-59f) == std::pair{false, 0x1p-61f});
      CHECK(said(0x1p60f) == std::pair{true, 0x1p58f});
      CHECK(said(0x1p61f) == std::pair{false, 0x1p59f});
      CHECK(said(0.0f) == std::pair{true, 0.0f});
      CHECK_FALSE(said(std::numeric_limits<float>::infinity()).first);
    }
  }
}

TEST_CASE("HasFp4Integers holds for E2M1 in blocks of 16 and 32 only", "[block]") {
  CHECK(HasFp4Integers(*FindDialect("nvfp4.2d")));
  CHECK(HasFp4Integers(*FindDialect("mxfp4.rceil")));
  CHECK_FALSE(HasFp4Integers(*FindDialect("mxfp8_e4m3.floor")));
  CHECK_FALSE(HasFp4Integers(DialectUnder(BlockScale::kFolded, FormatId::kE2M1, 1, 8)));
  const Matrix<float> x(4, 32, 1.0f);
  Integers out(x.View(), *FindDialect("nvfp4"), false);
  CHECK_THROWS(QuantizeToFp4Integers(x.View(), {.dialect = *FindDialect("fp8_e4m3")}, out.View()));
  CHECK_THROWS(QuantizeToFp4Integers(x.View().Block(0, 0, 4, 16),
                                     {.dialect = *FindDialect("nvfp4")}, out.View()));
}

}  // namespace
}  // namespace fp4lab
