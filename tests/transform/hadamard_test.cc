#include "fp4lab/transform/hadamard.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/formats/format.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/least_targets.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

std::vector<std::uint32_t> BitsOf(const Matrix<float>& m) {
  std::vector<std::uint32_t> bits;
  for (const float x : m.values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

// BF16 values by the spread of their exponents, by which the kernels choose a path for each group.
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

constexpr HadamardSigns kRandomSigns = RandomHadamardSigns({.seed = 7});

TEST_CASE("The Hadamard kernels give the reference's bits on every target, however wide the sums",
          "[transform][differential]") {
  const int threads = Threads();
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const int size : kHadamardSizes) {
    const HadamardTransform transform{size, kRandomSigns};
    for (const Spread spread : kSpreads) {
      for (const auto& [rows, groups] : {std::pair{1, 1}, {3, 5}, {17, 9}, {70, 16}}) {
        const Matrix<float> x = Bf16Matrix(spread, rows, groups * size);
        const Matrix<float> tall = Bf16Matrix(spread, groups * size, rows);
        Matrix<float> want(x.rows, x.cols), want_tall(tall.rows, tall.cols);
        reference::RandomHadamard(x.View(), transform, want.View());
        reference::RandomHadamard(tall.View().Transposed(), transform,
                                  want_tall.View().Transposed());
        for (const std::string& target : SimdTargets()) {
          PinSimdTarget(target);
          const bool vary = rows == 70 && target == SimdTargets().front();
          for (const int n : vary ? std::vector{1, 2, 3} : std::vector{1}) {
            SetThreads(n);
            INFO(size << " spread " << static_cast<int>(spread) << " " << rows << "x" << groups
                      << " " << target << " threads " << n);
            Matrix<float> y = x;  // in place
            RandomHadamard(std::as_const(y).View(), transform, y.View());
            CHECK(BitsOf(y) == BitsOf(want));
            Matrix<float> z(tall.rows, tall.cols);
            RandomHadamard(tall.View().Transposed(), transform, z.View().Transposed());
            CHECK(BitsOf(z) == BitsOf(want_tall));
            z = tall;
            RandomHadamard(std::as_const(z).View().Transposed(), transform, z.View().Transposed());
            CHECK(BitsOf(z) == BitsOf(want_tall));
          }
        }
      }
    }
  }
  SetThreads(threads);
  PinSimdTarget("best");
}

// Plain binary32 butterflies, as of a kernel that ignores the exponents.
float PlainOutput(const float* x, const HadamardTransform& transform, int j) {
  const int size = transform.size;
  std::vector<float> y(static_cast<std::size_t>(size));
  for (int k = 0; k < size; ++k) y[k] = transform.signs.Negates(k) ? -x[k] : x[k];
  for (int stride = size / 2; stride > 0; stride /= 2) {
    for (int k = 0; k < size; ++k) {
      if ((k & stride) != 0) continue;
      const float a = y[k], b = y[k + stride];
      y[k] = a + b;
      y[k + stride] = a - b;
    }
  }
  return RoundToBf16(HadamardFactor(size) * y[j]);
}

// Groups whose output 0 is the worst case: the large terms add up to a tie of BF16, and pairs of
// small terms, `span` binades below, cancel but for their last bits, which decide the tie. Sizes
// from 4 on.
Matrix<float> TieGroups(int span, const HadamardTransform& transform, std::size_t rows) {
  const int size = transform.size, pairs = size >= 8 ? 2 : 1;
  const RandomStream stream{.seed = 6, .step = static_cast<std::uint32_t>(span)};
  Matrix<float> x(rows, static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < rows; ++r) {
    std::uint32_t counter = 0;
    const auto random = [&](std::uint32_t n) { return stream.Bits32(1000 * r + counter++) % n; };
    std::vector<float> terms;
    float sum = 0.0f;
    while (static_cast<int>(terms.size()) < size - 1 - 2 * pairs) {
      terms.push_back(1.0f + static_cast<float>(random(128)) * 0x1p-7f);
      sum += terms.back();
    }
    // Up to an odd multiple of half a unit of BF16: sums are in [size, 2 * size), those of 4 and 8
    // in [size / 2, size).
    const float half = static_cast<float>(size) * (size < 16 ? 0x1p-9f : 0x1p-8f);
    const float target = (2.0f * std::floor((sum + 1.5f) / (2.0f * half)) + 1.0f) * half;
    terms.push_back(target - sum);
    const float unit = std::ldexp(1.0f, -span - 7);
    for (int pair = 0; pair < pairs; ++pair) {
      const float m = static_cast<float>(132 + 2 * random(60));
      terms.push_back((m + static_cast<float>(random(4))) * unit);
      terms.push_back(-(m - static_cast<float>(random(4))) * unit);
    }
    for (std::size_t k = terms.size() - 1; k > 0; --k) {
      std::swap(terms[k], terms[random(static_cast<std::uint32_t>(k + 1))]);
    }
    for (std::size_t k = 0; k < terms.size(); ++k) {
      x(r, k) = transform.signs.Negates(static_cast<int>(k)) ? -terms[k] : terms[k];
    }
  }
  return x;
}

TEST_CASE("Sums of any width around BF16's ties are exact on every target",
          "[transform][differential]") {
  for (const int size : {4, 8, 16, 32, 64, 128}) {
    const HadamardTransform transform{size, kRandomSigns};
    int plain_differs = 0;
    for (int span = 6; span <= 48; ++span) {
      const Matrix<float> x = TieGroups(span, transform, 256);
      Matrix<float> want(x.rows, x.cols), tall(x.cols, x.rows), y(x.rows, x.cols);
      reference::RandomHadamard(x.View(), transform, want.View());
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) tall(c, r) = x(r, c);
        plain_differs += PlainOutput(&x(r, 0), transform, 0) != want(r, 0);
      }
      for (const std::string& target : SimdTargets()) {
        PinSimdTarget(target);
        INFO(size << " span " << span << " " << target);
        RandomHadamard(x.View(), transform, y.View());
        CHECK(BitsOf(y) == BitsOf(want));
        Matrix<float> z = tall;
        RandomHadamard(std::as_const(z).View().Transposed(), transform, z.View().Transposed());
        bool same = true;
        for (std::size_t r = 0; r < x.rows; ++r) {
          for (std::size_t c = 0; c < x.cols; ++c) same &= z(c, r) == want(r, c);
        }
        CHECK(same);
      }
    }
    // Plain binary32 sums fail on these cases. (Sums of the other sizes are scaled after their
    // rounding to binary32, which moves them off the ties.)
    if (HasExactHadamardFactor(size)) CHECK(plain_differs > 20);
  }
  PinSimdTarget("best");
}

// An independent implementation: the dense matrix in integers, with 2^-40 as the unit of all terms.
float DenseOutput(const float* x, const HadamardTransform& transform, int j) {
  const int size = transform.size;
  std::int64_t sum = 0;
  for (int k = 0; k < size; ++k) {
    int sign =
        (transform.signs.words[static_cast<std::size_t>(k / 32)] >> k % 32 & 1u) != 0 ? -1 : 1;
    for (int bit = 0; bit < 7; ++bit) {
      if ((j >> bit & 1) != 0 && (k >> bit & 1) != 0) sign = -sign;
    }
    sum += sign * static_cast<std::int64_t>(std::ldexp(static_cast<double>(x[k]), 40));
  }
  // sum has at most 48 significant bits: exact as a double.
  const double exact = std::ldexp(static_cast<double>(sum), -40), root = std::sqrt(size);
  const float y = root == std::floor(root)
                      ? static_cast<float>(exact / root)
                      : static_cast<float>(exact) * static_cast<float>(1.0 / root);
  const std::uint32_t u = std::bit_cast<std::uint32_t>(y);
  const std::uint32_t lost = u & 0xFFFFu, kept = u >> 16;
  const bool up = lost > 0x8000u || (lost == 0x8000u && kept % 2 == 1);
  return std::bit_cast<float>((kept + (up ? 1 : 0)) << 16);
}

TEST_CASE("The reference is the dense matrix of signs, summed exactly", "[transform]") {
  for (const int size : kHadamardSizes) {
    for (const Spread spread : {Spread::kNarrow, Spread::kTwoSums}) {
      const Matrix<float> x = Bf16Matrix(spread, 60, size);
      for (const HadamardSigns& signs :
           {TeHadamardSigns(), NoHadamardSigns(), MaskHadamardSigns(1), kRandomSigns}) {
        const HadamardTransform transform{size, signs};
        Matrix<float> y(x.rows, x.cols), want(x.rows, x.cols);
        reference::RandomHadamard(x.View(), transform, y.View());
        for (std::size_t r = 0; r < x.rows; ++r) {
          for (int j = 0; j < size; ++j) want(r, j) = DenseOutput(&x(r, 0), transform, j);
        }
        CHECK(BitsOf(y) == BitsOf(want));
      }
    }
  }
}

TEST_CASE("A wide sum is rounded once, with every lost bit counted", "[transform]") {
  // 1 + 2^-8 is a tie of BF16 (scaled by 1/4). A term of 2^-120 would break it upwards, but the
  // rounding to fp32 loses this term first, as the definition says, so the tie goes to even.
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

TEST_CASE("A tie of binary32 is broken by a term however far below, on every target",
          "[transform][differential]") {
  for (const int size : {4, 16, 64}) {
    const auto n = static_cast<std::size_t>(size);
    for (int far = 25; far <= 130; ++far) {
      for (const float sign : {-1.0f, 0.0f, 1.0f}) {
        Matrix<float> x(1, n), want(1, n), y(1, n);
        x(0, 0) = 1.0f;
        x(0, n - 1) = 0x1p-8f;  // with it, a tie of BF16
        x(0, 1) = sign * std::ldexp(1.0f, -far);
        x(0, 2) = 0x1p-24f;  // and one of binary32
        RandomHadamard(x.View(), {size, NoHadamardSigns()}, y.View());
        CHECK(y(0, 0) == HadamardFactor(size) * (sign > 0.0f ? 1.0f + 0x1p-7f : 1.0f));
        for (const HadamardSigns& signs : {NoHadamardSigns(), kRandomSigns}) {
          reference::RandomHadamard(x.View(), {size, signs}, want.View());
          for (const std::string& target : SimdTargets()) {
            PinSimdTarget(target);
            INFO(size << " far " << far << " " << target);
            RandomHadamard(x.View(), {size, signs}, y.View());
            CHECK(BitsOf(y) == BitsOf(want));
          }
          PinSimdTarget("best");
        }
      }
    }
  }
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
  constexpr std::size_t kDepth = 256;
  for (const int size : kHadamardSizes) {
    for (const HadamardSigns& signs : {TeHadamardSigns(), kRandomSigns}) {
      const HadamardTransform transform{size, signs};
      const Matrix<float> a = Bf16Matrix(Spread::kNarrow, 8, kDepth),
                          b = Bf16Matrix(Spread::kNarrow, 9, kDepth);
      Matrix<float> ta(8, kDepth), tb(9, kDepth);
      RandomHadamard(a.View(), transform, ta.View());
      RandomHadamard(b.View(), transform, tb.View());
      for (std::size_t i = 0; i < 8; ++i) {
        for (std::size_t j = 0; j < 9; ++j) {
          double plain = 0.0, turned = 0.0, size_of_terms = 0.0;
          for (std::size_t k = 0; k < kDepth; ++k) {
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
}

TEST_CASE("TeHadamardSigns repeats TE's 16 signs; RandomHadamardSigns takes a stream's bits",
          "[transform]") {
  constexpr std::string_view kTe = "+++-+------+-+--";
  for (int k = 0; k < kMaxHadamardSize; ++k) {
    const auto i = static_cast<std::size_t>(k);
    CHECK(TeHadamardSigns().Negates(k) == (kTe[i % 16] == '-'));
    CHECK_FALSE(NoHadamardSigns().Negates(k));
    CHECK(MaskHadamardSigns(kTeSignMask16).Negates(k) == (k < 16 && kTe[i % 16] == '-'));
  }
  const RandomStream stream{.seed = 3, .step = 8, .tensor = 21};
  const HadamardSigns signs = RandomHadamardSigns(stream);
  int negative = 0;
  for (int k = 0; k < kMaxHadamardSize; ++k) {
    const auto i = static_cast<std::uint64_t>(k);
    CHECK(signs.Negates(k) == ((stream.Bits32(i / 32) >> i % 32 & 1u) != 0));
    negative += signs.Negates(k) ? 1 : 0;
  }
  CHECK(negative > 40);
  CHECK(negative < 88);
  CHECK(signs == RandomHadamardSigns({.seed = 3, .step = 8, .tensor = 21}));
  CHECK_FALSE(signs == RandomHadamardSigns({.seed = 4, .step = 8, .tensor = 21}));
  CHECK_FALSE(signs == RandomHadamardSigns({.seed = 3, .step = 9, .tensor = 21}));
  CHECK_FALSE(signs == RandomHadamardSigns({.seed = 3, .step = 8, .tensor = 22}));
  for (const int size : kHadamardSizes) {  // row k of the unit matrix has output 0 from s_k alone
    const auto n = static_cast<std::size_t>(size);
    Matrix<float> unit(n, n), rows(n, n);
    for (std::size_t k = 0; k < n; ++k) unit(k, k) = 1.0f;
    RandomHadamard(unit.View(), {size, signs}, rows.View());
    for (std::size_t k = 0; k < n; ++k) {
      const float magnitude = RoundToBf16(HadamardFactor(size));
      CHECK(rows(k, 0) == (signs.Negates(static_cast<int>(k)) ? -magnitude : magnitude));
    }
  }
}

TEST_CASE("Signs beyond the size are not looked at, and a mask is signs of 16 or 32",
          "[transform]") {
  const Matrix<float> x = Bf16Matrix(Spread::kNarrow, 5, 128);
  for (const int size : kHadamardSizes) {
    HadamardSigns signs = kRandomSigns;
    Matrix<float> want(5, 128), y(5, 128);
    RandomHadamard(x.View(), {size, signs}, want.View());
    for (int k = size; k < kMaxHadamardSize; ++k) {
      signs.words[static_cast<std::size_t>(k / 32)] ^= 1u << k % 32;
    }
    RandomHadamard(x.View(), {size, signs}, y.View());
    CHECK(BitsOf(y) == BitsOf(want));
    if (size != 16 && size != 32) continue;
    RandomHadamard(x.View(), size, signs.words[0], y.View());
    CHECK(BitsOf(y) == BitsOf(want));
    reference::RandomHadamard(x.View(), size, signs.words[0], y.View());
    CHECK(BitsOf(y) == BitsOf(want));
  }
}

TEST_CASE(
    "NaN makes its group NaN, and infinities of both signs do; one infinity is in all outputs",
    "[transform]") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const int size : kHadamardSizes) {
    const auto n = static_cast<std::size_t>(size);
    const HadamardTransform transform{size, NoHadamardSigns()};
    Matrix<float> x(4, n, -0.0f);
    x(0, n - 1) = -std::numeric_limits<float>::quiet_NaN();
    x(1, 0) = -kInf;
    x(2, 0) = x(2, n - 1) = kInf;
    for (const std::string& target : SimdTargets()) {
      PinSimdTarget(target);
      INFO(size << " " << target);
      Matrix<float> y(4, n), turned(n, 4);
      RandomHadamard(x.View(), transform, y.View());
      for (std::size_t j = 0; j < n; ++j) {
        CHECK(std::bit_cast<std::uint32_t>(y(0, j)) == 0x7FC00000);
        CHECK(y(1, j) == -kInf);
        const bool differ = std::popcount(j & (n - 1)) % 2 != 0;  // inf - inf
        CHECK((differ ? std::bit_cast<std::uint32_t>(y(2, j)) == 0x7FC00000 : y(2, j) == kInf));
        CHECK(std::bit_cast<std::uint32_t>(y(3, j)) == 0);  // zeros of any sign: +0
      }
      RandomHadamard(x.View(), transform, turned.View().Transposed());
      bool same = true;
      for (std::size_t i = 0; i < y.values.size(); ++i) {
        same &= std::bit_cast<std::uint32_t>(y.values[i]) ==
                std::bit_cast<std::uint32_t>(turned(i % n, i / n));
      }
      CHECK(same);
    }
  }
  PinSimdTarget("best");
}

TEST_CASE("Hadamard sizes that do not exist and shapes that do not fit are refused",
          "[transform]") {
  Matrix<float> x(2, 24), y(2, 24), z(3, 24), wide(2, 768);
  CHECK_THROWS_AS(RandomHadamard(x.View(), 16, 0, y.View()), std::logic_error);
  CHECK_THROWS_AS(RandomHadamard(x.View(), 8, 0, y.View()), std::logic_error);
  CHECK_THROWS_AS(RandomHadamard(x.View(), 16, 0, z.View()), std::logic_error);
  CHECK_NOTHROW(RandomHadamard(x.View(), {8, {}}, y.View()));
  CHECK_THROWS_AS(RandomHadamard(x.View(), {8, {}}, z.View()), std::logic_error);
  CHECK_THROWS_AS(RandomHadamard(x.View(), {64, {}}, y.View()), std::logic_error);
  for (const int size : {-16, 0, 1, 3, 12, 24, 48, 256}) {
    INFO(size);
    const HadamardTransform transform{size, {}};
    CHECK_THROWS_AS(RandomHadamard(wide.View(), transform, wide.View()), std::logic_error);
    CHECK_THROWS_AS(reference::RandomHadamard(wide.View(), transform, wide.View()),
                    std::logic_error);
  }
}

}  // namespace
}  // namespace fp4lab
