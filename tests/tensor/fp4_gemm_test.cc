#include "fp4lab/tensor/fp4_gemm.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd/simd.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr std::array<std::uint8_t, 15> kCodes = {0,  4,  6,  8,  9,  10, 11, 12,
                                                 13, 14, 15, 16, 18, 20, 24};

// E4M3 values (OCP 8-bit floating point), subnormal ones and +0 included, or powers of two.
enum class Scales { kE4M3, kPowers, kExtremePowers };

float RandomScale(Scales kind, std::uint32_t random) {
  switch (kind) {
    case Scales::kE4M3: {
      const int field = static_cast<int>(random >> 3 & 15), fraction = static_cast<int>(random & 7);
      return field == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                        : std::ldexp(static_cast<float>(8 + fraction), field - 10);
    }
    case Scales::kPowers:
      return std::ldexp(1.0f, static_cast<int>(random % 12) - 6);
    case Scales::kExtremePowers:
      return std::ldexp(1.0f, (random & 1) != 0 ? 58 - static_cast<int>(random >> 1 & 1)
                                                : -60 + static_cast<int>(random >> 1 & 1));
  }
  return 0;
}

// A matrix stored by rows or by columns, with a gap of 3 after each.
template <class T>
struct Stored {
  std::vector<T> memory;
  MatrixView<T> view;

  Stored(std::size_t rows, std::size_t cols, bool by_columns, T fill)
      : memory((by_columns ? cols : rows) * ((by_columns ? rows : cols) + 3), fill) {
    const std::size_t stride = (by_columns ? rows : cols) + 3;
    view = by_columns ? MatrixView<T>(memory.data(), rows, cols, 1, stride)
                      : MatrixView<T>(memory.data(), rows, cols, stride, 1);
  }
};

struct TestOperand {
  Stored<std::uint8_t> codes;
  Stored<float> scales, values;
  std::size_t block_rows;

  TestOperand(std::size_t rows, std::size_t cols, std::size_t block_rows, std::size_t block,
              bool by_columns, Scales kind, std::uint32_t tensor)
      : codes(rows, cols, by_columns, 255),
        scales((rows + block_rows - 1) / block_rows, (cols + block - 1) / block, by_columns,
               std::nanf("")),
        values(rows, cols, by_columns, std::nanf("")),
        block_rows(block_rows) {
    const RandomStream stream{.seed = 5, .tensor = tensor};
    for (std::size_t r = 0; r < scales.view.rows; ++r) {
      for (std::size_t k = 0; k < scales.view.cols; ++k) {
        scales.view(r, k) = RandomScale(kind, stream.Bits32(r * scales.view.cols + k) >> 5);
      }
    }
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t k = 0; k < cols; ++k) {
        const std::uint32_t random = stream.Bits32(r * cols + k);
        // Some rows hold only the largest codes: the largest sums that a block can have.
        codes.view(r, k) = r % 7 == 6 ? (r % 2 == 0 ? 24 : 0) : kCodes[random % kCodes.size()];
        values.view(r, k) = 0.5f * static_cast<float>(codes.view(r, k) - 12) *
                            scales.view(r / block_rows, k / block);
      }
    }
  }
  Fp4Operand View() const { return {codes.view, scales.view, block_rows}; }
};

Stored<float> RandomOutput(std::size_t rows, std::size_t cols, bool by_columns) {
  Stored<float> c(rows, cols, by_columns, -77.0f);
  const RandomStream stream{.seed = 6};
  for (std::size_t i = 0; i < c.view.size(); ++i) {
    c.view(i / cols, i % cols) = static_cast<float>(UniformOpen(stream.Bits32(i)) - 0.5);
  }
  return c;
}

std::size_t CountDifferences(const std::vector<float>& x, const std::vector<float>& y) {
  REQUIRE(x.size() == y.size());
  std::size_t differences = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    differences += std::bit_cast<std::uint32_t>(x[i]) != std::bit_cast<std::uint32_t>(y[i]);
  }
  return differences;
}

struct Case {
  std::size_t m, n, k;
  int block;
  std::size_t a_block_rows, b_block_rows;
  Scales scales;
  GemmOptions options;
  std::vector<int> threads;
};

// Checks on every SIMD target that Fp4Gemm gives the bits of Gemm's definition on the elements'
// values and writes nothing between c's rows.
void CheckLayouts(const Case& c, bool a_by_columns, bool b_by_columns, bool c_by_columns) {
  const auto block = static_cast<std::size_t>(c.block);
  const TestOperand a(c.m, c.k, c.a_block_rows, block, a_by_columns, c.scales, 1);
  const TestOperand b(c.n, c.k, c.b_block_rows, block, b_by_columns, c.scales, 2);
  Stored<float> expected = RandomOutput(c.m, c.n, c_by_columns);
  reference::Gemm(a.values.view, b.values.view, c.options, expected.view);
  Stored<float> integers = RandomOutput(c.m, c.n, c_by_columns);
  reference::Fp4Gemm(a.View(), b.View(), c.options, integers.view);
  CHECK(CountDifferences(integers.memory, expected.memory) == 0);
  for (const std::string& target : SimdTargets()) {
    for (const int threads : c.threads) {
      PinSimdTarget(target);
      SetThreads(threads);
      Stored<float> got = RandomOutput(c.m, c.n, c_by_columns);
      Fp4Gemm(a.View(), b.View(), c.options, got.view);
      INFO(target << ", " << threads << " threads, by columns: a " << a_by_columns << " b "
                  << b_by_columns << " c " << c_by_columns);
      CHECK(CountDifferences(got.memory, expected.memory) == 0);
    }
  }
}

void Check(Case c) {
  c.options.block = c.block;
  INFO("M N K " << c.m << " " << c.n << " " << c.k << ", block " << c.block << ", block rows "
                << c.a_block_rows << " " << c.b_block_rows << ", alpha " << c.options.alpha
                << ", accumulate " << c.options.accumulate);
  const int threads_before = Threads();
  for (int layouts = 0; layouts < 8; ++layouts) {
    CheckLayouts(c, (layouts & 1) != 0, (layouts & 2) != 0, (layouts & 4) != 0);
  }
  PinSimdTarget("best");
  SetThreads(threads_before);
}

struct Shape {
  std::size_t m, n, k;
};

constexpr Shape kShapes[] = {{0, 5, 3},     {5, 0, 3},     {7, 65, 0},    {1, 1, 1},
                             {2, 17, 3},    {3, 15, 16},   {4, 16, 33},   {5, 31, 48},
                             {6, 32, 17},   {7, 33, 64},   {11, 48, 127}, {12, 63, 128},
                             {13, 64, 129}, {14, 80, 63},  {23, 7, 257},  {8, 129, 260},
                             {15, 49, 80},  {259, 34, 40}, {19, 259, 20}, {265, 70, 150}};

TEST_CASE("Fp4Gemm gives the bits of Gemm on the elements' values at every tile border",
          "[tensor][differential]") {
  std::size_t index = 0;
  for (const Shape& s : kShapes) {
    for (const int block : {16, 32}) {
      ++index;
      Check({.m = s.m,
             .n = s.n,
             .k = s.k,
             .block = block,
             .a_block_rows = index % 5 == 0 ? 16u : 1u,
             .b_block_rows = index % 3 == 0 ? 1u : static_cast<std::size_t>(block),
             .scales = index % 4 == 0 ? Scales::kPowers : Scales::kE4M3,
             .options = {.alpha = index % 2 == 0 ? -0.7f : 1.0f, .accumulate = index % 3 == 1},
             .threads = {1}});
    }
  }
}

TEST_CASE("Fp4Gemm gives the same bits over many steps of k and many columns",
          "[tensor][differential]") {
  const Shape s = GENERATE(Shape{13, 70, 2051}, Shape{9, 530, 300}, Shape{300, 20, 600});
  const int block = GENERATE(16, 32);
  Check({s.m, s.n, s.k, block, 1, 1, Scales::kE4M3, {.alpha = 0.3f}, {1}});
}

// Products of more than 2^21 multiply-adds use threads; a c of more than 258 x 256 is cut into
// tiles.
TEST_CASE("Fp4Gemm gives the same bits on any number of threads", "[tensor][differential]") {
  const Shape s = GENERATE(Shape{130, 96, 180}, Shape{51, 70, 640}, Shape{262, 300, 48});
  const int block = GENERATE(16, 32);
  const auto rows = static_cast<std::size_t>(block);
  Check({s.m, s.n, s.k, block, 1, rows, Scales::kE4M3, {.accumulate = true}, {2, 3}});
  Check({s.m, s.n, s.k, block, rows, 1, Scales::kE4M3, {}, {3}});
}

TEST_CASE("Fp4Gemm is exact to the ends of the range of scales", "[tensor][differential]") {
  const int block = GENERATE(16, 32);
  Check({20, 40, 96, block, 1, 1, Scales::kExtremePowers, {}, {1}});
}

TEST_CASE("Fp4Gemm called by threads of a parallel loop gives the same bits", "[tensor]") {
  const TestOperand a(64, 48, 1, 16, false, Scales::kE4M3, 1);
  const TestOperand b(48, 48, 16, 16, false, Scales::kE4M3, 2);
  Matrix<float> expected(64, 48);
  reference::Fp4Gemm(a.View(), b.View(), {.block = 16}, expected.View());
  const int threads_before = Threads();
  SetThreads(3);
  std::vector<Matrix<float>> got(12, Matrix<float>(64, 48));
  ParallelFor(got.size(),
              [&](std::size_t i) { Fp4Gemm(a.View(), b.View(), {.block = 16}, got[i].View()); });
  SetThreads(threads_before);
  for (const Matrix<float>& c : got) CHECK(CountDifferences(c.values, expected.values) == 0);
}

TEST_CASE("Fp4Gemm refuses operands that do not fit together", "[tensor]") {
  const TestOperand a(4, 32, 1, 16, false, Scales::kE4M3, 1);
  const TestOperand b(20, 32, 16, 16, false, Scales::kE4M3, 2);
  Matrix<float> c(4, 20), wide(4, 21);
  const Fp4Operand good_a = a.View(), good_b = b.View();
  CHECK_NOTHROW(Fp4Gemm(good_a, good_b, {.block = 16}, c.View()));
  CHECK_THROWS_AS(Fp4Gemm(good_a, good_b, {.block = 32}, c.View()), std::logic_error);
  CHECK_THROWS_AS(Fp4Gemm(good_a, good_b, {.block = 0}, c.View()), std::logic_error);
  CHECK_THROWS_AS(Fp4Gemm(good_a, good_b, {.block = 16}, wide.View()), std::logic_error);
  Fp4Operand bad = good_b;
  bad.block_rows = 1;
  CHECK_THROWS_AS(Fp4Gemm(good_a, bad, {.block = 16}, c.View()), std::logic_error);
  bad = good_b;
  bad.codes = bad.codes.Block(0, 0, 20, 31);
  CHECK_THROWS_AS(Fp4Gemm(good_a, bad, {.block = 16}, c.View()), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
