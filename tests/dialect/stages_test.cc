// The table of dialects is consistent, and single formulas agree with an independent statement.
#include "fp4lab/dialect/stages.h"

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "fp4lab/base/random.h"
#include "fp4lab/dialect/describe.h"
#include "fp4lab/quantize/behaviours.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float FloatFrom(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST_CASE("Every dialect has a name of its own, a version, a source and a line for each stage",
          "[dialect]") {
  std::set<std::string_view> names;
  for (const Dialect& d : Dialects()) {
    CAPTURE(d.name);
    CHECK(names.insert(d.name).second);
    CHECK(FindDialect(d.name) == &d);
    // A version names a code base, a standard or a compiler, and the commit or release of the
    // formula.
    CHECK(d.version.size() > 10);
    CHECK(d.version.find_first_of("0123456789") != std::string_view::npos);
    CHECK(d.version.find(' ') != std::string_view::npos);
    CHECK(d.source.size() > 10);
    CHECK(d.source.find("snapshot") == std::string_view::npos);
    CHECK(Describe(d).size() >= 4);
    for (const DialectLine& line : Describe(d)) CHECK_FALSE(line.text.empty());
    CHECK((d.block_rows == 0) == (d.block_scale == BlockScale::kOneBlock));
    CHECK((d.scale == FormatId::kE8M0) ==
          (d.scale_encoding == ScaleEncoding::kExponent || d.block_rows == 0));
    CHECK((d.factor == Factor::kSearch) == (d.rounding == ElementRounding::kClosest));
  }
  CHECK(names.size() >= 80);
  CHECK(FindDialect("te") == FindDialect("nvfp4.te"));
  CHECK(FindDialect("nvfp4.nothing") == nullptr);
}

TEST_CASE("Every dialect dequantizes with an error 12 dB or more below the input", "[dialect]") {
  const RandomStream stream{.seed = 7, .step = 0, .tensor = 0};
  Matrix<float> x(64, 96);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const PhiloxBlock bits = stream.Block(i);
    x.values[i] = static_cast<float>(static_cast<std::int32_t>(bits[0])) * 0x1p-28f;
  }
  const std::vector<std::uint16_t> random(x.values.size(), 0x80);
  for (const Dialect& d : Dialects()) {
    CAPTURE(d.name);
    const Quantized q = QuantizeAs(d, x.View(), {.random = random});
    const Matrix<float> y = DequantizeAs(d, q);
    double error = 0, power = 0;
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      error += std::pow(static_cast<double>(y.values[i]) - x.values[i], 2);
      power += std::pow(static_cast<double>(x.values[i]), 2);
    }
    CHECK(error < 0.06 * power);  // 12 dB; truncating dialects are the worst
  }
}

TEST_CASE("FloorLog2 and CeilLog2 agree with a correctly rounded binary32 log2", "[dialect]") {
  // Rounding std::log2 of a double to binary32 is correct: the double is within a few ulps, and no
  // binary32 boundary is that close (floats next to a power of two are 2^-24 from it, logarithms
  // 2^-30 and more).
  const auto log2_float = [](float a) {
    return static_cast<float>(std::log2(static_cast<double>(a)));
  };
  int wrong = 0;
  for (int k = -126; k <= 127; ++k) {
    const std::uint32_t power = static_cast<std::uint32_t>(k + 127) << 23;
    for (int step = -70; step <= 70; ++step) {
      const float a = FloatFrom(power + static_cast<std::uint32_t>(step));
      if (a < kFloatMin) continue;
      wrong += FloorLog2(a) != static_cast<int>(std::floor(log2_float(a)));
      wrong += CeilLog2(a) != static_cast<int>(std::ceil(log2_float(a)));
    }
  }
  CHECK(wrong == 0);
  for (std::uint32_t bits = 1; bits < 0x800000u; bits = bits * 3 + 1) {
    CHECK(FloorLog2(FloatFrom(bits)) == static_cast<int>(std::floor(log2_float(FloatFrom(bits)))));
    CHECK(CeilLog2(FloatFrom(bits)) == static_cast<int>(std::ceil(log2_float(FloatFrom(bits)))));
  }
  // The rounding hazard: log2 of the float below 8 rounds to 3, log2 of the float below 4 stays
  // below 2.
  CHECK(FloorLog2(std::nextafter(8.0f, 0.0f)) == 3);
  CHECK(FloorLog2(std::nextafter(4.0f, 0.0f)) == 1);
}

TEST_CASE("ExactCeilLog2 is the least k with a <= 2^k", "[dialect]") {
  int wrong = 0;
  for (std::uint32_t bits = 1; bits < 0x7F800000u; bits += bits < 64 ? 1 : 65521) {
    for (const float a : {FloatFrom(bits), FloatFrom(bits & 0x7F800000u),
                          FloatFrom((bits & 0x7F800000u) + 1), FloatFrom(bits | 0x7FFFFFu)}) {
      if (a == 0) continue;
      const int k = ExactCeilLog2(a);
      const double double_a = a;
      wrong += std::ldexp(1.0, k) < double_a || std::ldexp(1.0, k - 1) >= double_a;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("ggml's scale encoder rounds half up and knows nothing above 240 but 448", "[dialect]") {
  CHECK(GgmlScaleByte(1.0f) == 0x38);
  CHECK(GgmlScaleByte(1.0625f) == 0x39);  // a tie: up, where RNE goes to 0x38
  CHECK(Encode(FormatId::kE4M3, 1.0625f) == 0x38);
  CHECK(GgmlScaleByte(240.0f) == 0x77);
  CHECK(GgmlScaleByte(247.9f) == 0x77);
  CHECK(GgmlScaleByte(248.0f) == 0x7E);
  CHECK(GgmlScaleByte(256.0f) == 0x7E);
  CHECK(GgmlScaleByte(kInf) == 0x7E);
  CHECK(GgmlScaleByte(0x1p-10f) == 1);  // a tie: up
  CHECK(GgmlScaleByte(0x1.fp-11f) == 0);
  CHECK(GgmlScaleByte(7.6f * 0x1p-9f) == 7);  // not 8: the first normal number is missed
  CHECK((GgmlScaleByte(0.0f) == 0 && GgmlScaleByte(kNan) == 0 && GgmlScaleByte(-1.0f) == 0));
}

TEST_CASE("EncodeTiesAway and EncodeHalfAdded differ only in the float below the first midpoint",
          "[dialect]") {
  for (const FormatId element : {FormatId::kE2M1, FormatId::kE2M3, FormatId::kE3M2}) {
    const Format& f = FormatOf(element);
    for (std::uint32_t code = 0; code < MaxFiniteCode(f); ++code) {
      const float middle = 0.5f * (Decode(f, code) + Decode(f, code + 1));
      const float below = std::nextafter(middle, 0.0f);
      CAPTURE(static_cast<int>(element), code);
      CHECK(EncodeTiesAway(element, middle) == code + 1);
      CHECK(EncodeTiesAway(element, -middle) == (SignBit(f) | (code + 1)));
      CHECK(EncodeTiesAway(element, below) == code);
      CHECK(EncodeHalfAdded(element, middle) == code + 1);
      CHECK(EncodeHalfAdded(element, below) == (code == 0 ? 1u : code));
    }
    CHECK(EncodeTiesAway(element, kInf) == MaxFiniteCode(f));
    CHECK(EncodeTiesAway(element, kNan) == NanCode(f));
  }
}

TEST_CASE("Tensor scales for amax 0, Inf and NaN are the documented ones", "[dialect]") {
  const auto encode = [](std::string_view name, float amax) {
    return TensorScaleOf(*FindDialect(name), amax).encode;
  };
  for (const char* name : {"nvfp4.te", "nvfp4.te.rht-fused", "nvfp4.te.partial"}) {
    CAPTURE(name);
    CHECK(encode(name, 0.0f) == 1.0f);
    CHECK(encode(name, 1e-36f) == kFloatMax);
    CHECK(encode(name, 2688.0f) == 1.0f);
  }
  CHECK(encode("nvfp4.te.reference", 0.0f) == kFloatMax);
  CHECK(encode("nvfp4.te.jax", 0.0f) == kFloatMax);
  CHECK(encode("nvfp4.te", kInf) == 1.0f);
  CHECK(encode("nvfp4.te.reference", kInf) == 1.0f);
  CHECK(encode("nvfp4.te.rht-fused", kInf) == 0.0f);
  CHECK(encode("nvfp4.te.partial", kInf) == 0.0f);
  CHECK(encode("nvfp4.te.rht-columns", kInf) == 1.0f);
  CHECK(std::isnan(encode("nvfp4.te.rht-columns", kNan)));
  CHECK(encode("nvfp4.te", kNan) == kFloatMax);
  CHECK(encode("nvfp4.te.rht-fused", kNan) == 1.0f);
  CHECK(encode("nvfp4.te.partial", kNan) == 1.0f);
  CHECK(std::isnan(encode("nvfp4.te.reference", kNan)));
  // S = FLT_MAX has the subnormal decode scale 2^-128.
  CHECK(std::bit_cast<std::uint32_t>(TensorScaleOf(*FindDialect("te"), 1e-36f).decode) ==
        0x00200000u);
}

TEST_CASE("Dialects treat special inputs as their sources do", "[dialect]") {
  const auto of = [](std::string_view name, std::string_view input) {
    for (const Behaviour& b : Behaviours(*FindDialect(name))) {
      if (b.input == input) return b;
    }
    FAIL(input);
    return Behaviour{};
  };
  CHECK(of("te", "-0 among ordinary elements").code == 8);
  CHECK(of("nvfp4.te.reference", "-0 among ordinary elements").code == 0);
  CHECK(of("nvfp4.te.reference", "a negative element that rounds to 0").code == 8);
  CHECK(of("ggml", "a negative element that rounds to 0").code == 0);
  CHECK(of("te", "a block of 2^-30 of the tensor's amax").scale == 0);
  CHECK(of("te", "a block of 2^-30 of the tensor's amax").code == 7);
  CHECK(of("nvfp4.te.cpp-test", "a block of 2^-30 of the tensor's amax").code == 0);
  CHECK(of("torchao", "a block of 2^-30 of the tensor's amax").scale == 0);
  CHECK(of("nvfp4.torchao.inference", "a block of 2^-30 of the tensor's amax").scale == 0x08);
  CHECK(of("modelopt", "a block of 2^-30 of the tensor's amax").scale == 0x01);
  CHECK(of("modelopt", "a block of zeros").scale == 0x38);
  CHECK(of("modelopt", "a tensor of zeros").scale == 0x7F);
  CHECK(of("compressed-tensors", "a block of zeros").scale == 0x20);
  CHECK(of("quartet2", "a block of zeros").scale == 0x38);
  CHECK(of("universal", "a block of zeros").scale == 0);
  CHECK(of("universal", "a block of 2^-30 of the tensor's amax").scale == 1);
  CHECK(of("te", "a NaN element").code == 7);
  CHECK(of("te", "a NaN element").neighbour != 7);
  CHECK(of("nvfp4.te.rht-fused", "a NaN element").scale == 0x7F);
  CHECK(of("nvfp4.te.rht-fused", "a NaN element").neighbour == 7);
  CHECK(of("nvfp4.te.rht-fused", "a NaN element").other_scale != 0x7F);
  CHECK(of("nvfp4.te.reference", "a NaN element").other_scale == 0xFF);
  CHECK(of("nvfp4.te.reference", "a NaN element").neighbour == 0);
  CHECK(of("te", "an Inf element").scale == 0x7E);
  CHECK(of("nvfp4.te.rht-fused", "an Inf element").other_scale == 0);
  CHECK(of("nvfp4.te.rht-fused", "an Inf element").code == 7);
  CHECK(of("nvfp4.te.partial", "an Inf element").scale == 0x7E);
  CHECK(of("nvfp4.te.partial", "an Inf element").other_scale == 0);
  CHECK(of("mxfp4.rceil", "an Inf element").scale == 0xFE);
  CHECK(of("mxfp4.torchao.rceil", "an Inf element").scale == 0xFF);
}

}  // namespace
}  // namespace fp4lab
