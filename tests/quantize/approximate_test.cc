// IsAllowed accepts answers within the error of rcp.approx.ftz.f32 and refuses all others.
#include "fp4lab/dialect/approximate.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

const Dialect& Row(std::string_view name) {
  const Dialect* row = FindDialect(name);
  REQUIRE(row != nullptr);
  return *row;
}

// A simulated device whose reciprocals have the largest allowed error: each call returns, at
// random, the lower end, the upper end or the rounded reciprocal.
struct Device {
  RandomStream random;
  std::uint64_t calls = 0;

  float Rcp(float a) {
    const FloatInterval all = RcpApprox(a);
    const std::uint32_t choice = random.Block(calls++)[0] % 3;
    return choice == 0 ? all.lower : choice == 1 ? all.upper : RcpFtz(a);
  }
};

// FlashInfer's and CUTLASS's kernels on that device.
Quantized Run(const Dialect& d, MatrixView<const float> x, Device device) {
  Quantized q = QuantizeAs(d, x);
  const TensorScale tensor = TensorScaleOf(d, q.amax.at(0));
  const bool flashinfer = d.factor == Factor::kApproximate;
  const float sixth = device.Rcp(6.0f);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t block = 0; block < q.scale_cols; ++block) {
      const std::size_t first = block * 16, end = std::min(first + 16, x.cols);
      float b = 0;
      for (std::size_t c = first; c < end; ++c) b = std::max(b, Magnitude(x(r, c)));
      const float t = flashinfer ? tensor.encode * (b * sixth) : b * (tensor.encode * sixth);
      const auto byte = static_cast<std::uint8_t>(Encode(FormatId::kE4M3, t));
      const float s = Decode(FormatId::kE4M3, byte);
      float e = 0;
      if (flashinfer) {
        if (b != 0) e = device.Rcp(s * device.Rcp(tensor.encode));
      } else {
        e = ClampToMaxOrNan(tensor.encode * device.Rcp(s));
      }
      q.scales[r * q.scale_cols + block] = byte;
      for (std::size_t c = first; c < end; ++c) {
        q.codes[r * x.cols + c] = static_cast<std::uint8_t>(Encode(FormatId::kE2M1, x(r, c) * e));
      }
    }
  }
  return q;
}

// Inputs on which the last bit of a reciprocal shows: BF16, and multiples of one value.
Matrix<float> Input(Kind kind, std::uint64_t seed) {
  Matrix<float> x = TestMatrix(kind, 24, 200, seed);
  for (float& value : x.values) value = RoundToBf16(value);
  return x;
}

TEST_CASE("An approximate kernel is allowed whatever its reciprocals do within their error",
          "[quantize]") {
  std::size_t differ = 0;
  for (const std::string name : {"nvfp4.flashinfer", "nvfp4.cutlass.epilogue"}) {
    const Dialect& d = Row(name);
    for (const Kind kind : {Kind::kNormal, Kind::kTies, Kind::kAnyFloat}) {
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(name, static_cast<int>(kind), seed);
        const Matrix<float> x = Input(kind, seed);
        const Quantized member = QuantizeAs(d, x.View());
        const Quantized theirs =
            Run(d, x.View(), {.random = {.seed = seed, .step = 0, .tensor = 0}});
        CHECK(IsAllowed(d, x.View(), member).ok);
        const Allowed allowed = IsAllowed(d, x.View(), theirs);
        CHECK(allowed.ok);
        CHECK(allowed.scales_outside == 0);
        CHECK(allowed.codes_outside == 0);
        differ += theirs != member;
      }
    }
  }
  CHECK(differ > 30);  // else the simulated device has tested nothing
}

TEST_CASE("The reference's answer is allowed at every magnitude, subnormals included",
          "[quantize]") {
  for (const Dialect& d : Dialects()) {
    if (!IsApproximate(d) || IsStochastic(d)) continue;
    Matrix<float> x(2, 32);
    const RandomStream random{.seed = 3};
    for (int exponent = -149; exponent < 128; exponent += 3) {
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        const float share = 0x1p-32f * static_cast<float>(random.Block(i)[0]);
        x.values[i] = std::ldexp(share, exponent - static_cast<int>(i % 8));
      }
      CAPTURE(d.name, exponent);
      CHECK(IsAllowed(d, x.View(), QuantizeAs(d, x.View())).ok);
    }
  }
  // .ftz flushes 1/S, so that e is FLT_MAX: x*e is above the tie of 0 and 0.5.
  const Dialect& d = Row("nvfp4.te.use-fast-math");
  Matrix<float> x(1, 2);
  x.values = {1.8734444e-38f, 7.3468537e-40f};
  Quantized q = QuantizeAs(d, x.View());
  CHECK(q.codes == std::vector<std::uint8_t>{7, 1});
  q.codes[1] = 0;  // by the exact reciprocal, one step below
  CHECK_FALSE(IsAllowed(d, x.View(), q).ok);
}

TEST_CASE("A wrong kernel is outside of the allowed set", "[quantize]") {
  const Dialect& d = Row("nvfp4.flashinfer");
  const Matrix<float> x = Input(Kind::kNormal, 3);
  const Quantized right = QuantizeAs(d, x.View());

  Quantized shifted = right;
  shifted.codes[5] ^= 1;
  const Allowed one = IsAllowed(d, x.View(), shifted);
  CHECK_FALSE(one.ok);
  CHECK(one.codes_outside == 1);
  CHECK(one.scales_outside == 0);
  CHECK((one.first_row == 0 && one.first_col == 0));

  Quantized scale = right;
  scale.scales[13 + 2] += 2;  // row 1, the third of its 13 blocks
  const Allowed two = IsAllowed(d, x.View(), scale);
  CHECK_FALSE(two.ok);
  CHECK(two.scales_outside == 1);
  CHECK((two.first_row == 1 && two.first_col == 32));

  CHECK_FALSE(IsAllowed(d, x.View(), QuantizeAs(Row("nvfp4.te.fast-math"), x.View())).ok);
  CHECK_FALSE(IsAllowed(d, x.View(), QuantizeAs(Row("nvfp4.torchao.single-level"), x.View())).ok);
  Matrix<float> ties(4, 16);  // multiples of 1/8 under a factor of 4
  for (std::size_t i = 0; i < ties.values.size(); ++i) {
    ties.values[i] = 0.125f * static_cast<float>(static_cast<int>(i % 16) - 3);
  }
  CHECK(IsAllowed(d, ties.View(), QuantizeAs(Row("nvfp4.te"), ties.View())).ok);
  // A factor one step larger lifts every tie: a kernel that rounds ties up lies within the set.
  Dialect other = Row("nvfp4.te");
  other.rounding = ElementRounding::kTiesAway;
  CHECK(IsAllowed(d, ties.View(), QuantizeAs(other, ties.View())).ok);
  other.rounding = ElementRounding::kTowardZero;
  CHECK_FALSE(IsAllowed(d, ties.View(), QuantizeAs(other, ties.View())).ok);
}

TEST_CASE("The elements of a block must agree on one factor", "[quantize]") {
  const Dialect& d = Row("nvfp4.flashinfer");
  // The two ends of the factor interval give different codes for some elements. A block in which
  // one element needs the upper end and another the lower end is refused.
  bool found = false;
  for (std::uint64_t seed = 1; seed <= 40 && !found; ++seed) {
    Matrix<float> x = Input(Kind::kTies, seed);
    const Quantized q = QuantizeAs(d, x.View());
    const TensorScale tensor = TensorScaleOf(d, q.amax[0]);
    for (std::size_t r = 0; r < x.rows && !found; ++r) {
      const float s = ScaleValueOf(d, q.scales[r * q.scale_cols]);
      float b = 0;
      for (std::size_t c = 0; c < 16; ++c) b = std::max(b, Magnitude(x(r, c)));
      const FloatInterval e = FactorInterval(d, b, s, q.scales[r * q.scale_cols], tensor);
      Quantized low = q, high = q, mixed = q;
      std::size_t moved = 0;
      for (std::size_t c = 0; c < 16; ++c) {
        const std::size_t at = r * x.cols + c;
        low.codes[at] = static_cast<std::uint8_t>(Encode(FormatId::kE2M1, x(r, c) * e.lower));
        high.codes[at] = static_cast<std::uint8_t>(Encode(FormatId::kE2M1, x(r, c) * e.upper));
        if (low.codes[at] != high.codes[at]) ++moved;
        mixed.codes[at] = moved % 2 == 1 ? high.codes[at] : low.codes[at];
      }
      if (moved < 2 || mixed == low || mixed == high) continue;
      found = true;
      CHECK(IsAllowed(d, x.View(), low).ok);
      CHECK(IsAllowed(d, x.View(), high).ok);
      CHECK_FALSE(IsAllowed(d, x.View(), mixed).ok);
    }
  }
  CHECK(found);
}

TEST_CASE("For a dialect with one answer IsAllowed is equality", "[quantize]") {
  const Dialect& te = Row("nvfp4.te");
  const Matrix<float> x = Input(Kind::kTies, 5);
  Quantized q = QuantizeAs(te, x.View());
  CHECK(IsAllowed(te, x.View(), q).ok);
  q.codes[201] ^= 8;
  q.scales[14] += 1;
  const Allowed allowed = IsAllowed(te, x.View(), q);
  CHECK(allowed.codes_outside == 1);
  CHECK(allowed.scales_outside == 1);
  CHECK((allowed.first_row == 1 && allowed.first_col == 0));
}

}  // namespace
}  // namespace fp4lab
