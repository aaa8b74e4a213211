#include "fp4lab/transform/hadamard.h"

#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd.h"
#include "fp4lab/formats/format.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

std::vector<std::uint32_t> BitsOf(const Matrix<float>& m) {
  std::vector<std::uint32_t> bits;
  for (const float x : m.values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

// BF16 values by their exponents: the kernels choose a path a group by how far these spread.
enum class Spread {
  kNarrow,     // within 8 binades: one sum
  kTwoSums,    // within 22 binades
  kWide,       // any finite exponent: the reference's wide sums
  kMostlyOne,  // narrow but for one element in fifty, which may have any exponent
  kSubnormal,  // BF16 subnormals, zeros of both signs
  kHuge,       // sums near the overflow
  kAnyBits     // with NaN and Inf
};
constexpr Spread kSpreads[] = {Spread::kNarrow,    Spread::kTwoSums,   Spread::kWide,
                               Spread::kMostlyOne, Spread::kSubnormal, Spread::kHuge,
                               Spread::kAnyBits};

std::uint32_t ExponentOf(Spread spread, std::uint32_t random, std::uint32_t choice) {
  switch (spread) {
    case Spread::kNarrow:
      return 120 + random % 8;
    case Spread::kTwoSums:
      return 100 + random % 22;
    case Spread::kWide:
      return random % 255;
    case Spread::kMostlyOne:
      return choice % 50 == 0 ? random % 255 : 120 + random % 4;
    case Spread::kSubnormal:
      return random % 2;
    case Spread::kHuge:
      return 246 + random % 9;
    case Spread::kAnyBits:
      return choice % 20 == 0 ? 255 : random % 256;
  }
  return 0;
}

Matrix<float> Bf16Matrix(Spread spread, std::size_t rows, std::size_t cols) {
  const RandomStream stream{.seed = 5, .step = 0, .tensor = static_cast<std::uint32_t>(spread)};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const PhiloxBlock r = stream.Block(i);
    const std::uint32_t sign_and_fraction = r[0] & 0x807F0000u;
    const bool zero = r[3] % 11 == 0;
    const std::uint32_t magnitude = ExponentOf(spread, r[1], r[2]) << 23 | (r[0] & 0x007F0000u);
    x.values[i] = std::bit_cast<float>((sign_and_fraction & 0x80000000u) | (zero ? 0 : magnitude));
  }
  return x;
}

TEST_CASE("The Hadamard kernels give the reference's bits on every target, however wide the sums",
          "[transform][differential]") {
  const int threads = Threads();
  for (const int size : {16, 32}) {
    for (const Spread spread : kSpreads) {
      for (const auto& [rows, groups] : {std::pair{1, 1}, {3, 5}, {17, 9}, {70, 16}}) {
        const Matrix<float> x = Bf16Matrix(spread, rows, groups * size);
        const Matrix<float> tall = Bf16Matrix(spread, groups * size, rows);
        Matrix<float> want(x.rows, x.cols), want_tall(tall.rows, tall.cols);
        reference::RandomHadamard(x.View(), size, kTeSignMask32, want.View());
        reference::RandomHadamard(tall.View().Transposed(), size, kTeSignMask32,
                                  want_tall.View().Transposed());
        for (const std::string& target : SimdTargets()) {
          PinSimdTarget(target);
          const bool vary = rows == 70 && target == SimdTargets().front();
          for (const int n : vary ? std::vector{1, 2, 3} : std::vector{1}) {
            SetThreads(n);
            INFO(size << " spread " << static_cast<int>(spread) << " " << rows << "x" << groups
                      << " " << target << " threads " << n);
            Matrix<float> y = x;  // in place
            RandomHadamard(std::as_const(y).View(), size, kTeSignMask32, y.View());
            CHECK(BitsOf(y) == BitsOf(want));
            Matrix<float> z(tall.rows, tall.cols);
            RandomHadamard(tall.View().Transposed(), size, kTeSignMask32, z.View().Transposed());
            CHECK(BitsOf(z) == BitsOf(want_tall));
            z = tall;
            RandomHadamard(std::as_const(z).View().Transposed(), size, kTeSignMask32,
                           z.View().Transposed());
            CHECK(BitsOf(z) == BitsOf(want_tall));
          }
        }
      }
    }
  }
  SetThreads(threads);
  PinSimdTarget("best");
}

// Plain binary32 butterflies: what a kernel without a look at the exponents would do.
float PlainOutput(const float* x, int size, std::uint32_t mask, int j) {
  std::vector<float> y(static_cast<std::size_t>(size));
  for (int k = 0; k < size; ++k) y[k] = (mask >> k & 1u) != 0 ? -x[k] : x[k];
  for (int stride = size / 2; stride > 0; stride /= 2) {
    for (int k = 0; k < size; ++k) {
      if ((k & stride) != 0) continue;
      const float a = y[k], b = y[k + stride];
      y[k] = a + b;
      y[k + stride] = a - b;
    }
  }
  return RoundToBf16(size == 16 ? 0.25f * y[j] : kInverseSqrt32 * y[j]);
}

// Groups whose output 0 is the worst case: the large terms add up to a tie of BF16, and pairs of
// small terms, `span` binades below, cancel but for their last bits, which decide the tie.
Matrix<float> TieGroups(int span, int size, std::size_t rows) {
  const RandomStream stream{.seed = 6, .step = static_cast<std::uint32_t>(span)};
  Matrix<float> x(rows, static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < rows; ++r) {
    std::uint32_t counter = 0;
    const auto random = [&](std::uint32_t n) { return stream.Bits32(1000 * r + counter++) % n; };
    std::vector<float> terms;
    float sum = 0.0f;
    while (static_cast<int>(terms.size()) < size - 5) {
      terms.push_back(1.0f + static_cast<float>(random(128)) * 0x1p-7f);
      sum += terms.back();
    }
    // Up to an odd multiple of half a unit of BF16 (sums are in [16, 32) or [32, 64)).
    const float half = size == 16 ? 0x1p-4f : 0x1p-3f;
    const float target = (2.0f * std::floor((sum + 1.5f) / (2.0f * half)) + 1.0f) * half;
    terms.push_back(target - sum);
    const float unit = std::ldexp(1.0f, -span - 7);
    for (int pair = 0; pair < 2; ++pair) {
      const float m = static_cast<float>(132 + 2 * random(60));
      terms.push_back((m + static_cast<float>(random(4))) * unit);
      terms.push_back(-(m - static_cast<float>(random(4))) * unit);
    }
    for (std::size_t k = terms.size() - 1; k > 0; --k) {
      std::swap(terms[k], terms[random(static_cast<std::uint32_t>(k + 1))]);
    }
    for (std::size_t k = 0; k < terms.size(); ++k) {
      x(r, k) = (kTeSignMask32 >> k & 1u) != 0 ? -terms[k] : terms[k];
    }
  }
  return x;
}

TEST_CASE("Sums of any width around BF16's ties are exact on every target",
          "[transform][differential]") {
  for (const int size : {16, 32}) {
    int plain_differs = 0;
    for (int span = 9; span <= 30; ++span) {
      const Matrix<float> x = TieGroups(span, size, 512);
      Matrix<float> want(x.rows, x.cols), tall(x.cols, x.rows), y(x.rows, x.cols);
      reference::RandomHadamard(x.View(), size, kTeSignMask32, want.View());
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) tall(c, r) = x(r, c);
        plain_differs += PlainOutput(&x(r, 0), size, kTeSignMask32, 0) != want(r, 0);
      }
      for (const std::string& target : SimdTargets()) {
        PinSimdTarget(target);
        INFO(size << " span " << span << " " << target);
        RandomHadamard(x.View(), size, kTeSignMask32, y.View());
        CHECK(BitsOf(y) == BitsOf(want));
        Matrix<float> z = tall;
        RandomHadamard(std::as_const(z).View().Transposed(), size, kTeSignMask32,
                       z.View().Transposed());
        bool same = true;
        for (std::size_t r = 0; r < x.rows; ++r) {
          for (std::size_t c = 0; c < x.cols; ++c) same &= z(c, r) == want(r, c);
        }
        CHECK(same);
      }
    }
    // The cases do need the care that the kernels take. (Size 32 is scaled after its rounding to
    // binary32, which moves the sums off the ties.)
    if (size == 16) CHECK(plain_differs > 50);
  }
  PinSimdTarget("best");
}

// An independent statement: the dense matrix in integers, with 2^-40 as the unit of all terms.
float DenseOutput(const float* x, int size, std::uint32_t mask, int j) {
  std::int64_t sum = 0;
  for (int k = 0; k < size; ++k) {
    int sign = (mask >> k & 1u) != 0 ? -1 : 1;
    for (int bit = 0; bit < 5; ++bit) {
      if ((j >> bit & 1) != 0 && (k >> bit & 1) != 0) sign = -sign;
    }
    sum += sign * static_cast<std::int64_t>(std::ldexp(static_cast<double>(x[k]), 40));
  }
  // sum has at most 48 significant bits: exact as a double.
  const double exact = std::ldexp(static_cast<double>(sum), -40);
  const float y = size == 16
                      ? static_cast<float>(0.25 * exact)
                      : static_cast<float>(exact) * static_cast<float>(1.0 / std::sqrt(32.0));
  const std::uint32_t u = std::bit_cast<std::uint32_t>(y);
  const std::uint32_t lost = u & 0xFFFFu, kept = u >> 16;
  const bool up = lost > 0x8000u || (lost == 0x8000u && kept % 2 == 1);
  return std::bit_cast<float>((kept + (up ? 1 : 0)) << 16);
}

TEST_CASE("The reference is the dense matrix of signs, summed exactly", "[transform]") {
  for (const int size : {16, 32}) {
    for (const Spread spread : {Spread::kNarrow, Spread::kTwoSums}) {
      const Matrix<float> x = Bf16Matrix(spread, 60, size);
      for (const std::uint32_t mask : {kTeSignMask16, kTeSignMask32, 0u, 0x00000001u}) {
        Matrix<float> y(x.rows, x.cols), want(x.rows, x.cols);
        reference::RandomHadamard(x.View(), size, mask, y.View());
        for (std::size_t r = 0; r < x.rows; ++r) {
          for (int j = 0; j < size; ++j) want(r, j) = DenseOutput(&x(r, 0), size, mask, j);
        }
        CHECK(BitsOf(y) == BitsOf(want));
      }
    }
  }
}

TEST_CASE("A wide sum is rounded once, with every lost bit counted", "[transform]") {
  // 1 + 2^-9 is a tie of BF16 (scaled by 1/4); a term of 2^-120 breaks it upwards, and in fp32 it
  // would be lost: fp32 rounds it away first, as the definition says, so the tie goes to even.
  Matrix<float> x(1, 16), y(1, 16);
  x(0, 0) = 1.0f;
  x(0, 1) = 0x1p-8f;
  x(0, 2) = 0x1p-120f;
  reference::RandomHadamard(x.View(), 16, 0, y.View());
  CHECK(y(0, 0) == 0.25f);
  // A tie of fp32, broken by the far term before the rounding to fp32: 1 + 2^-8 + 2^-24 + 2^-120
  // rounds to 1 + 2^-8 + 2^-23, and that to BF16's 1 + 2^-7.
  x(0, 3) = 0x1p-24f;
  reference::RandomHadamard(x.View(), 16, 0, y.View());
  CHECK(y(0, 0) == 0.25f * (1.0f + 0x1p-7f));
  x(0, 2) = 0.0f;  // without it fp32's tie goes to even, and BF16's too
  reference::RandomHadamard(x.View(), 16, 0, y.View());
  CHECK(y(0, 0) == 0.25f);
}

TEST_CASE("The transform's matrices are those of TE's reference", "[transform][golden]") {
  const NpzFile file = OpenGolden("te_gemm_misc.npz");
  for (const auto& [name, mask] :
       {std::pair{"hadamard_sign_f32", kTeSignMask16}, {"hadamard_nosign_f32", 0u}}) {
    const NpyArray golden = file.Read(name);
    const auto want = golden.As<std::uint32_t>();
    Matrix<float> unit(16, 16), rows(16, 16);
    for (std::size_t k = 0; k < 16; ++k) unit(k, k) = 1.0f;
    RandomHadamard(unit.View(), 16, mask, rows.View());  // row k: what x_k adds to each y_j
    for (std::size_t i = 0; i < 256; ++i) {
      CHECK(0.25f * std::bit_cast<float>(want[i]) == rows.values[i]);  // theirs is not scaled
    }
  }
}

TEST_CASE("Both operands transformed keep their product", "[transform][property]") {
  for (const int size : {16, 32}) {
    const Matrix<float> a = Bf16Matrix(Spread::kNarrow, 8, 64),
                        b = Bf16Matrix(Spread::kNarrow, 9, 64);
    Matrix<float> ta(8, 64), tb(9, 64);
    RandomHadamard(a.View(), size, kTeSignMask32, ta.View());
    RandomHadamard(b.View(), size, kTeSignMask32, tb.View());
    for (std::size_t i = 0; i < 8; ++i) {
      for (std::size_t j = 0; j < 9; ++j) {
        double plain = 0.0, turned = 0.0, size_of_terms = 0.0;
        for (std::size_t k = 0; k < 64; ++k) {
          plain += static_cast<double>(a(i, k)) * b(j, k);
          turned += static_cast<double>(ta(i, k)) * tb(j, k);
          size_of_terms += std::fabs(static_cast<double>(ta(i, k)) * tb(j, k));
        }
        // The outputs were rounded to BF16: half a unit in 2^8 on each operand.
        CHECK(std::fabs(plain - turned) <= size_of_terms * 0x1p-7);
      }
    }
  }
}

TEST_CASE("Shapes that no group fits are refused", "[transform]") {
  Matrix<float> x(2, 24), y(2, 24), z(3, 24);
  CHECK_THROWS_AS(RandomHadamard(x.View(), 16, 0, y.View()), std::logic_error);
  CHECK_THROWS_AS(RandomHadamard(x.View(), 8, 0, y.View()), std::logic_error);
  CHECK_THROWS_AS(RandomHadamard(x.View(), 16, 0, z.View()), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
