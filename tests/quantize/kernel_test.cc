// Every implementation gives the bytes of the scalar definition on every SIMD target, in every
// dialect that it computes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/quantize/implementation.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"

namespace fp4lab {
namespace {

struct Shape {
  std::size_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 31}, {17, 64}, {33, 80}, {5, 1100}};

bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

bool SameBytes(const Quantized& got, const Quantized& want) {
  return got.codes == want.codes && got.scales == want.scales &&
         got.scale_rows == want.scale_rows && got.scale_cols == want.scale_cols &&
         SameFloats(got.amax, want.amax);
}

// The implementations that make codes in the dialect with these options.
std::vector<Implementation<QuantizeRequest>> RowsFor(const Dialect& d, const DialectOptions& o) {
  std::vector<Implementation<QuantizeRequest>> rows;
  const Matrix<float> x(1, 1);
  std::uint8_t code = 0;
  for (const auto& row : QuantizeImplementations()) {
    if (row.why_not({d, x.View(), o, {.codes = &code}}).empty()) rows.push_back(row);
  }
  return rows;
}

// Checks x, and a transposed view of a copy of x with a larger stride, against the definition.
void CheckDialect(const Dialect& d, const Matrix<float>& x, const DialectOptions& options) {
  const Quantized want = reference::QuantizeAs(d, x.View(), options);
  CHECK(SameBytes(QuantizeAs(d, x.View(), options), want));
  const std::vector<Implementation<QuantizeRequest>> rows = RowsFor(d, options);
  for (const auto& row : rows) {
    CAPTURE(row.name);
    CHECK(SameBytes(QuantizeBy(row, d, x.View(), options), want));
  }
  Matrix<float> turned(x.cols, x.rows + 3, -1.0f);
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.cols; ++j) turned(j, i) = x(i, j);
  }
  const MatrixView<const float> view =
      std::as_const(turned).View().Block(0, 0, x.cols, x.rows).Transposed();
  for (const auto& row : rows) {
    CAPTURE(row.name);
    CHECK(SameBytes(QuantizeBy(row, d, view, options), want));
  }
}

// Checks QuantizeAs on every SIMD target of the machine, and leaves the last one pinned.
void CheckOnTargets(const Dialect& d, const Matrix<float>& x) {
  const Quantized want = reference::QuantizeAs(d, x.View());
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    CAPTURE(target);
    CHECK(SameBytes(QuantizeAs(d, x.View()), want));
  }
}

void CheckDialects(const std::vector<Dialect>& dialects, const std::vector<Kind>& kinds) {
  for (const Kind kind : kinds) {
    for (const Shape& shape : kShapes) {
      const Matrix<float> x = TestMatrix(kind, shape.rows, shape.cols);
      std::vector<std::uint16_t> random(x.values.size());
      for (std::size_t i = 0; i < random.size(); ++i) {
        random[i] = static_cast<std::uint16_t>(RandomStream{.seed = 5}.Bits16(i));
      }
      for (const Dialect& d : dialects) {
        if (IsStochastic(d) && d.rounding == ElementRounding::kStochastic8) {
          for (std::uint16_t& bits : random) bits &= 0xFF;
        }
        CAPTURE(d.name, static_cast<int>(kind), shape.rows, shape.cols);
        CheckDialect(d, x, {.random = random});
        if (RandomBitsOf(d.rounding) >= 16) {
          CheckDialect(d, x, {.source = RandomSource{{.seed = 7, .step = 1, .tensor = 2}}});
        }
      }
    }
  }
}

TEST_CASE("Every dialect's kernels give the definition's bytes on every target",
          "[quantize][differential]") {
  const std::vector<Dialect> dialects(Dialects().begin(), Dialects().end());
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    INFO("target " << target);
    const bool best = target == SimdTargets().front();
    CheckDialects(dialects, best ? std::vector(std::begin(kKinds), std::end(kKinds))
                                 : std::vector{Kind::kTies, Kind::kAnyBits});
  }
  PinSimdTarget("best");
}

TEST_CASE("Every implementation takes any amax, also one that is not the tensor's",
          "[quantize][differential]") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Matrix<float> x = TestMatrix(Kind::kNormal, 9, 160),
                      any = TestMatrix(Kind::kAnyBits, 9, 160);
  std::size_t tuned = 0;
  for (const Dialect& d : Dialects()) {
    if (!HasTensorScale(d) || d.row_scaled || IsStochastic(d)) continue;
    const bool is_tuned = RowsFor(d, {}).front().name == "tuned";
    tuned += is_tuned;
    for (const std::string& target : SimdTargets()) {
      PinSimdTarget(target);
      for (const float amax :
           {0.0f, 0x1p-149f, 0x1p-130f, 1e-30f, 1e-3f, 0.3f, 1.0f, 5.0f, 448.0f, 1e10f, 0x1p120f,
            0x1.fffffep127f, kInf, -1.0f, -0.0f, std::numeric_limits<float>::quiet_NaN()}) {
        if (std::signbit(amax) && !is_tuned) continue;  // no tensor has such an amax
        CAPTURE(d.name, target, amax);
        CheckDialect(d, x, {.amax = {amax}});
        CheckDialect(d, any, {.amax = {amax}});
      }
    }
  }
  CHECK(tuned >= 4);  // NVFP4 in rows and in squares, FP8 with one scale
  PinSimdTarget("best");
}

TEST_CASE("The table's last row is the definition, which makes codes in every dialect",
          "[quantize]") {
  CHECK(QuantizeImplementations().back().name == "reference");
  for (const Dialect& d : Dialects()) {
    CAPTURE(d.name);
    CHECK(RowsFor(d, {}).back().name == "reference");
    CHECK(RowsFor(d, {}).size() == (WhyNotTuned(d).empty() && !IsStochastic(d) ? 3 : 2));
  }
}

// Blocks of 16 whose amaxes have every exponent from `first` to `last`, with fractions beside
// thresholds of scale rules (1.25, 4/3, sqrt 2, 1.5, 1 + 1/sqrt 2, 1.75, 1.875) and random ones.
Matrix<float> ScaleSweep(std::uint32_t first, std::uint32_t last) {
  std::vector<std::uint32_t> fractions;
  for (const std::uint32_t f : {0x000000u, 0x200000u, 0x2AAAABu, 0x3504F3u, 0x400000u, 0x5A8279u,
                                0x600000u, 0x700000u, 0x7FFFFFu}) {
    for (const std::uint32_t step : {0u, 1u, 2u, 3u}) {
      fractions.push_back(std::min(f + step, 0x7FFFFFu));
      fractions.push_back(f - std::min(f, step));
    }
  }
  const RandomStream random{.seed = 3};
  for (std::uint64_t i = 0; i < 24; ++i) fractions.push_back(random.Bits32(i) >> 9);
  constexpr std::size_t kCols = 512;
  const std::size_t blocks = (last - first + 1) * fractions.size();
  Matrix<float> x((blocks * 16 + kCols - 1) / kCols, kCols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::size_t block = i / 16 % blocks;
    const auto exponent = first + static_cast<std::uint32_t>(block / fractions.size());
    const float largest =
        std::bit_cast<float>(exponent << 23 | fractions[block % fractions.size()]);
    const float share = static_cast<float>(random.Bits8(i)) / 128.0f - 1.0f;
    x.values[i] = i % 16 == block % 16 ? largest : largest * share;
  }
  return x;
}

TEST_CASE("Scales of every exponent, beside the thresholds of their rules, are the definition's",
          "[quantize][differential]") {
  const Matrix<float> all = ScaleSweep(0, 254), moderate = ScaleSweep(112, 136);
  for (const Dialect& d : Dialects()) {
    if (IsStochastic(d)) continue;
    CAPTURE(d.name);
    // A tensor scale covers some binades only.
    const Matrix<float>& x = HasTensorScale(d) && !d.row_scaled ? moderate : all;
    CheckOnTargets(d, x);
  }
  PinSimdTarget("best");
}

// Rows of blocks of 16 whose largest element is the format's, times `unit`. The others are its
// decision points times `unit` with 0 to 2 floats added or taken off or up to 3,000 added, zeros,
// and numbers from `least` to `unit`.
Matrix<float> BesideDecisionPoints(FormatId element, float unit, float least) {
  constexpr std::size_t kCols = 160;
  Matrix<float> x(24, kCols);
  const RandomStream random{.seed = 11};
  const std::uint32_t last = MaxFiniteCode(FormatOf(element));
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const PhiloxBlock bits = random.Block(i);
    const std::uint32_t code = bits[0] % last;
    const float point = 0.5f * (Decode(element, code) + Decode(element, code + 1)) * unit;
    std::uint32_t u = std::bit_cast<std::uint32_t>(point) + bits[1] % 5 - 2;
    if (bits[2] % 4 == 0) {
      const std::uint32_t lowest = std::bit_cast<std::uint32_t>(least);
      u = lowest + bits[3] % (std::bit_cast<std::uint32_t>(unit) - lowest);
    }
    if (bits[2] % 16 == 1) u = 0;
    if (bits[2] % 16 == 2) u = std::bit_cast<std::uint32_t>(point) + bits[3] % 3000;
    if (i % 16 == 3) u = std::bit_cast<std::uint32_t>(MaxFinite(element) * unit);
    x.values[i] = std::bit_cast<float>(u | (bits[1] & 0x80000000u));
  }
  return x;
}

TEST_CASE("Elements beside decision points, and far below the largest, have the definition's codes",
          "[quantize][differential]") {
  std::vector<Dialect> dialects;
  for (const Dialect& d : Dialects()) {
    if (IsStochastic(d)) continue;
    dialects.push_back(d);
    dialects.push_back(d);
    dialects.back().keeps_negative_zero = !d.keeps_negative_zero;
  }
  for (const int exponent : {-90, -40, -9, 0, 3, 37, 48, 58, 80}) {
    // Kernels leave the smallest numbers to the definition, each in an own way.
    for (const float least : {0x1p-149f, 0x1p-126f, 0x1p-99f}) {
      for (const Dialect& d : dialects) {
        CAPTURE(d.name, d.keeps_negative_zero, exponent, least);
        const Matrix<float> x = BesideDecisionPoints(d.element, std::ldexp(1.0f, exponent), least);
        CheckOnTargets(d, x);
      }
    }
  }
  PinSimdTarget("best");
}

TEST_CASE("Elements and blocks that no row of the table has are quantized as defined",
          "[quantize][differential]") {
  std::vector<Dialect> dialects;
  for (const FormatId element : {FormatId::kE0M3, FormatId::kE2M1, FormatId::kE2M3, FormatId::kE3M2,
                                 FormatId::kE4M3, FormatId::kE5M2}) {
    for (const auto& [rows, cols] : {std::pair{1, 8}, {1, 24}, {1, 32}, {1, 128}, {8, 8}, {3, 5}}) {
      for (const ElementRounding rounding :
           {ElementRounding::kNearestEven, ElementRounding::kNearestEvenOpen,
            ElementRounding::kTiesAway, ElementRounding::kTiesToZero, ElementRounding::kHalfAdded,
            ElementRounding::kHalfAddedEven, ElementRounding::kBf16First, ElementRounding::kClosest,
            ElementRounding::kClosestScaled, ElementRounding::kTowardZero,
            ElementRounding::kStochastic16, ElementRounding::kStochastic8}) {
        Dialect d = *FindDialect("nvfp4.te");
        d.element = element;
        d.block_rows = rows;
        d.block_cols = cols;
        d.rounding = rounding;
        d.keeps_negative_zero = cols != 24;
        d.never_negative_zero = cols == 128;
        dialects.push_back(d);
        d.scale = FormatId::kE5M2;
        d.adaptive = IsStochastic(d) ? Adaptive::kMse : Adaptive::kAbsMax;
        dialects.push_back(d);
      }
    }
  }
  CheckDialects(dialects, {Kind::kNormal, Kind::kAnyBits});
}

TEST_CASE("Quantizing as a dialect does not depend on the number of threads",
          "[quantize][differential]") {
  const std::size_t cols = GENERATE(700, 704);  // 704: rows of whole blocks
  const Matrix<float> x = TestMatrix(Kind::kNormal, 300, cols);
  const int threads = Threads();
  for (const char* name : {"nvfp4.te", "nvfp4.te.row-scaled", "nvfp4.te.4over6.mse.448",
                           "nvfp4.te.4over6.mse.448.2d", "mxfp8_e4m3.torchao.rceil"}) {
    SetThreads(1);
    const Quantized want = reference::QuantizeAs(*FindDialect(name), x.View());
    for (const int n : {1, 2, 3}) {
      SetThreads(n);
      CAPTURE(name, n, cols);
      CHECK(SameBytes(QuantizeAs(*FindDialect(name), x.View()), want));
    }
  }
  SetThreads(threads);
}

}  // namespace
}  // namespace fp4lab
