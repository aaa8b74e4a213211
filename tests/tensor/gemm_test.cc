#include "fp4lab/tensor/gemm.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd/simd.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The contract does not say which NaN: the sign and payload depend on the order of operands.
std::uint32_t Bits(float x) {
  return std::isnan(x) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(x);
}

// Floats with random mantissas and exponents in [-3, 4]: nearly every operation rounds.
float RandomFloat(RandomStream stream, std::size_t i) {
  const std::uint32_t bits = stream.Bits32(i);
  return std::bit_cast<float>((bits & 0x807FFFFFu) | (124 + (bits >> 23 & 7)) << 23);
}

// A matrix stored by rows or by columns, with a gap after each.
struct Stored {
  std::vector<float> memory;
  MatrixView<float> view;

  Stored(std::size_t rows, std::size_t cols, bool by_columns, std::size_t gap = 3)
      : memory((by_columns ? cols : rows) * ((by_columns ? rows : cols) + gap), -77.0f) {
    const std::size_t stride = (by_columns ? rows : cols) + gap;
    view = by_columns ? MatrixView<float>(memory.data(), rows, cols, 1, stride)
                      : MatrixView<float>(memory.data(), rows, cols, stride, 1);
  }
  Stored(MatrixView<const float> values, bool by_columns)
      : Stored(values.rows, values.cols, by_columns) {
    for (std::size_t r = 0; r < values.rows; ++r) {
      for (std::size_t c = 0; c < values.cols; ++c) view(r, c) = values(r, c);
    }
  }
};

Matrix<float> RandomMatrix(std::size_t rows, std::size_t cols, std::uint32_t tensor) {
  const RandomStream stream{.seed = 11, .tensor = tensor};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = RandomFloat(stream, i);
  return x;
}

std::size_t CountDifferences(const std::vector<float>& x, const std::vector<float>& y) {
  REQUIRE(x.size() == y.size());
  std::size_t differences = 0;
  for (std::size_t i = 0; i < x.size(); ++i) differences += Bits(x[i]) != Bits(y[i]);
  return differences;
}

// Compares Gemm with the reference for every way to store the operands, SIMD target and thread
// count in `threads`. Memory between the rows of c must stay unchanged.
void CheckAgainstReference(const Matrix<float>& a, const Matrix<float>& b, const Matrix<float>& c,
                           const GemmOptions& options, const std::vector<int>& threads) {
  INFO("M N K = " << a.rows << " " << b.rows << " " << a.cols << ", block " << options.block
                  << ", alpha " << options.alpha << ", accumulate " << options.accumulate);
  const int threads_before = Threads();
  for (const bool c_by_columns : {false, true}) {
    Stored expected(c.View(), c_by_columns);
    reference::Gemm(a.View(), b.View(), options, expected.view);
    for (const auto& [a_by_columns, b_by_columns] : std::array<std::pair<bool, bool>, 4>{
             {{false, false}, {false, true}, {true, false}, {true, true}}}) {
      const Stored sa(a.View(), a_by_columns), sb(b.View(), b_by_columns);
      for (const std::string& target : SimdTargets()) {
        for (const int count : threads) {
          PinSimdTarget(target);
          SetThreads(count);
          Stored got(c.View(), c_by_columns);
          Gemm(sa.view, sb.view, options, got.view);
          INFO(target << ", " << count << " threads, by columns: a " << a_by_columns << " b "
                      << b_by_columns << " c " << c_by_columns);
          CHECK(CountDifferences(got.memory, expected.memory) == 0);
        }
      }
    }
  }
  PinSimdTarget("best");
  SetThreads(threads_before);
}

struct Shape {
  std::size_t m, n, k;
};

// Shapes around the borders of tiles: 6 rows (4, 2, 1), 16 lanes, panels of 8 to 64 columns, 128
// steps of k, 258 x 256 tiles of c.
constexpr Shape kShapes[] = {
    {0, 5, 3},     {5, 0, 3},     {1, 1, 0},     {7, 65, 0},  {1, 1, 1},    {1, 64, 16},
    {2, 17, 3},    {3, 15, 5},    {4, 16, 33},   {5, 31, 16}, {6, 32, 17},  {7, 33, 32},
    {11, 48, 127}, {12, 63, 128}, {13, 64, 129}, {6, 65, 31}, {23, 7, 257}, {8, 129, 260},
    {259, 34, 40}, {19, 259, 20}, {265, 70, 150}};

TEST_CASE("Gemm gives the reference's bits at every tile border", "[tensor][differential]") {
  std::size_t index = 0;
  for (const Shape& s : kShapes) {
    const Matrix<float> a = RandomMatrix(s.m, s.k, 1), b = RandomMatrix(s.n, s.k, 2),
                        c = RandomMatrix(s.m, s.n, 3);
    for (const int block : {0, 16, 32, 5}) {
      const bool accumulate = ++index % 2 == 0;
      const float alpha = index % 3 == 0 ? 1.0f : -0.7f;
      CheckAgainstReference(a, b, c, {.block = block, .alpha = alpha, .accumulate = accumulate},
                            {1});
    }
  }
}

TEST_CASE("Gemm gives the reference's bits for blocks around the depth of a tile",
          "[tensor][differential]") {
  const Matrix<float> a = RandomMatrix(9, 403, 4), b = RandomMatrix(70, 403, 5),
                      c = RandomMatrix(9, 70, 6);
  for (const int block : {1, 48, 100, 128, 129, 200, 402, 403, 404, 5000}) {
    CheckAgainstReference(a, b, c, {.block = block, .alpha = 1.5f, .accumulate = block % 2 == 0},
                          {1});
  }
}

TEST_CASE("Gemm gives the same bits on any number of threads", "[tensor][differential]") {
  const Shape s = GENERATE(Shape{130, 96, 100}, Shape{50, 300, 80}, Shape{31, 64, 700});
  const int block = GENERATE(0, 16);
  CheckAgainstReference(RandomMatrix(s.m, s.k, 7), RandomMatrix(s.n, s.k, 8),
                        RandomMatrix(s.m, s.n, 9),
                        {.block = block, .alpha = 0.3f, .accumulate = true}, {1, 2, 3});
}

TEST_CASE("Gemm called by threads of a parallel loop gives the same bits", "[tensor]") {
  const Matrix<float> a = RandomMatrix(64, 32, 10), b = RandomMatrix(48, 32, 11);
  Matrix<float> expected(64, 48);
  reference::Gemm(a.View(), b.View(), {}, expected.View());
  const int threads_before = Threads();
  SetThreads(3);
  std::vector<Matrix<float>> got(12, Matrix<float>(64, 48));
  ParallelFor(got.size(), [&](std::size_t i) { Gemm(a.View(), b.View(), {}, got[i].View()); });
  SetThreads(threads_before);
  for (const Matrix<float>& c : got) CHECK(CountDifferences(c.values, expected.values) == 0);
}

TEST_CASE("NaN and infinity reach just the elements that they belong to",
          "[tensor][differential]") {
  Matrix<float> a = RandomMatrix(14, 40, 12), b = RandomMatrix(37, 40, 13),
                c = RandomMatrix(14, 37, 14);
  a(3, 17) = kNan, a(5, 39) = kInfinity, a(8, 0) = -kInfinity;
  b(20, 39) = 0.0f;  // infinity * 0
  b(30, 2) = -kInfinity, c(13, 36) = kNan;
  CheckAgainstReference(a, b, c, {.block = 16, .accumulate = true}, {1});
  CheckAgainstReference(a, b, c, {.alpha = kInfinity}, {1});
  Matrix<float> got = c;
  Gemm(a.View(), b.View(), {.accumulate = true}, got.View());
  for (std::size_t m = 0; m < 14; ++m) {
    for (std::size_t n = 0; n < 37; ++n) {
      const bool nan = m == 3 || (m == 5 && n == 20) || (m == 13 && n == 36) ||
                       (m == 5 && n == 30 && std::isnan(kInfinity * a(5, 2)));
      const bool infinite = m == 5 || m == 8 || n == 30;
      if (nan) CHECK(std::isnan(got(m, n)));
      if (!nan && !infinite) CHECK(std::isfinite(got(m, n)));
    }
  }
}

TEST_CASE("Gemm keeps c's old value out of the result unless it accumulates", "[tensor]") {
  const Matrix<float> a = RandomMatrix(7, 20, 15), b = RandomMatrix(40, 20, 16);
  Matrix<float> c(7, 40, kNan), expected(7, 40);
  reference::Gemm(a.View(), b.View(), {}, expected.View());
  Gemm(a.View(), b.View(), {}, c.View());
  CHECK(CountDifferences(c.values, expected.values) == 0);
  Matrix<float> empty_sum(7, 40, kNan);
  Gemm(MatrixView<const float>(nullptr, 7, 0), MatrixView<const float>(nullptr, 40, 0), {},
       empty_sum.View());
  CHECK(CountDifferences(empty_sum.values, Matrix<float>(7, 40).values) == 0);
}

TEST_CASE("Each product and sum is fused: one rounding a step, in ascending k", "[tensor]") {
  const float x = 1.0f + 0x1p-12f;
  Matrix<float> a(1, 3), b(1, 3), c(1, 1);
  a.values = {-1.0f, x, 0x1p-25f};
  b.values = {1.0f + 0x1p-11f, x, 1.0f};
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    Gemm(a.View(), b.View(), {}, c.View());
    CHECK(c(0, 0) == 0x1p-24f + 0x1p-25f);
  }
  PinSimdTarget("best");
}

TEST_CASE("Underflow to -0 keeps its sign in one block and loses it in a sum of blocks",
          "[tensor][differential]") {
  Matrix<float> a(7, 32, -0x1p-100f), b(70, 32, 0x1p-100f), c(7, 70);
  Gemm(a.View(), b.View(), {}, c.View());
  CHECK(Bits(c(0, 0)) == 0x80000000u);
  Gemm(a.View(), b.View(), {.block = 16}, c.View());
  CHECK(Bits(c(0, 0)) == 0u);
  CheckAgainstReference(a, b, c, {.block = 16}, {1});
  CheckAgainstReference(a, b, c, {.block = 32}, {1});
}

TEST_CASE("Gemm refuses operands that do not fit together", "[tensor]") {
  const Matrix<float> a(4, 8), b(6, 8), other(6, 7);
  Matrix<float> c(4, 6), wide(4, 7);
  CHECK_THROWS_AS(Gemm(a.View(), other.View(), {}, c.View()), std::logic_error);
  CHECK_THROWS_AS(Gemm(a.View(), b.View(), {}, wide.View()), std::logic_error);
  CHECK_THROWS_AS(Gemm(a.View(), b.View(), {.block = -1}, c.View()), std::logic_error);
  const MatrixView<const float> no_unit_stride(a.values.data(), 2, 2, 4, 2);
  CHECK_THROWS_AS(Gemm(no_unit_stride, no_unit_stride, {}, c.View().Block(0, 0, 2, 2)),
                  std::logic_error);
}

// ---- Block-scaled FP4 operands -----------------------------------------------------------------
// Integers only: an E2M1 value is (half units) / 2, an E4M3 value is significand * 2^exponent.

constexpr std::array<int, 16> kHalves = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct Scale {
  int significand, exponent;
};

// All finite non-negative E4M3 codes (0 to 0x7E; OCP 8-bit floating point, bias 7).
Scale DecodeE4M3(std::uint32_t code) {
  const int field = static_cast<int>(code >> 3), fraction = static_cast<int>(code & 7);
  return field == 0 ? Scale{fraction, -9} : Scale{8 + fraction, field - 10};
}

struct CodedMatrix {
  std::size_t block;
  Matrix<int> halves;
  Matrix<Scale> scales;  // one per `block` columns

  CodedMatrix(std::size_t rows, std::size_t cols, std::size_t block, std::uint32_t tensor)
      : block(block), halves(rows, cols), scales(rows, cols / block) {
    const RandomStream stream{.seed = 12, .tensor = tensor};
    for (std::size_t i = 0; i < halves.values.size(); ++i) {
      halves.values[i] = kHalves[stream.Bits32(i) & 15];
    }
    for (std::size_t i = 0; i < scales.values.size(); ++i) {
      scales.values[i] = DecodeE4M3((stream.Bits32(i) >> 8) % 127);
    }
  }

  Matrix<float> Dequantized() const {
    Matrix<float> x(halves.rows, halves.cols);
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t k = 0; k < x.cols; ++k) {
        const Scale s = scales(r, k / block);
        x(r, k) = std::ldexp(static_cast<float>(halves(r, k) * s.significand), s.exponent - 1);
      }
    }
    return x;
  }
};

// Transformer Engine's reference order (quantization_nvfp4.py, qgemm): for each block
// y = fl(y + (sx * sw) * dot); sx * sw * dot is exact: 4 + 4 + 12 bits at most.
float BlockScaledProduct(const CodedMatrix& x, const CodedMatrix& w, std::size_t m, std::size_t n) {
  float y = 0.0f;
  for (std::size_t j = 0; j < x.scales.cols; ++j) {
    int dot = 0;
    for (std::size_t k = j * x.block; k < (j + 1) * x.block; ++k) {
      dot += x.halves(m, k) * w.halves(n, k);
    }
    const Scale sx = x.scales(m, j), sw = w.scales(n, j);
    const int exact = dot * sx.significand * sw.significand;
    REQUIRE(static_cast<float>(exact) == static_cast<double>(exact));
    y = y + std::ldexp(static_cast<float>(exact), sx.exponent + sw.exponent - 2);
  }
  return y;
}

TEST_CASE("With FP4 operands Gemm is the block-scaled product in Transformer Engine's order",
          "[tensor][oracle]") {
  const std::size_t block = GENERATE(16, 32);
  constexpr std::size_t kRows = 41, kCols = 75, kDepth = 352;
  const CodedMatrix x(kRows, kDepth, block, 1), w(kCols, kDepth, block, 2);
  const Matrix<float> a = x.Dequantized(), b = w.Dequantized();
  Matrix<float> expected(kRows, kCols);
  for (std::size_t m = 0; m < kRows; ++m) {
    for (std::size_t n = 0; n < kCols; ++n) expected(m, n) = BlockScaledProduct(x, w, m, n);
  }
  for (const std::string& target : SimdTargets()) {
    INFO(target);
    PinSimdTarget(target);
    Matrix<float> c(kRows, kCols);
    Gemm(a.View(), b.View(), {.block = static_cast<int>(block)}, c.View());
    CHECK(CountDifferences(c.values, expected.values) == 0);
  }
  PinSimdTarget("best");
  Matrix<float> one_chain(kRows, kCols);
  Gemm(a.View(), b.View(), {}, one_chain.View());
  CHECK(CountDifferences(one_chain.values, expected.values) > 0);  // the block order does matter
}

}  // namespace
}  // namespace fp4lab
