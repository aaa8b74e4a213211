#include "fp4lab/formats/format.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/formats/ptx_stochastic.h"
#include "fp4lab/formats/tf32.h"
#include "tests/support/catch.h"
#include "tests/support/format_cases.h"

namespace fp4lab {
namespace {

constexpr std::array kRoundings = {Rounding::kNearestEven, Rounding::kTowardZero,
                                   Rounding::kTowardPositive, Rounding::kStochastic};
constexpr std::array kOverflows = {Overflow::kSaturate, Overflow::kSpecial};
constexpr std::array<std::uint32_t, 7> kFields = {0, 1, 0x1234, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF};

// The number of inputs for which Encode and the oracle differ; reports the first five.
std::size_t Differences(const NamedFormat& f, const std::vector<float>& inputs, Rounding rounding,
                        std::uint32_t random16, Overflow overflow) {
  const oracle::Grid grid(f.format);
  std::size_t differences = 0;
  for (const float x : inputs) {
    const std::uint32_t code = Encode(f.format, x, rounding, random16, overflow);
    const std::uint32_t expected = grid.Round(x, rounding, random16, overflow);
    if (code == expected || ++differences > 5) continue;
    UNSCOPED_INFO(f.name << " of bits " << std::hex << std::bit_cast<std::uint32_t>(x) << ": got "
                         << code << ", the oracle says " << expected << " (rounding "
                         << static_cast<int>(rounding) << ", field " << random16 << ")");
  }
  return differences;
}

void CheckAgainstOracle(const NamedFormat& f, const std::vector<float>& inputs) {
  for (const Rounding rounding : kRoundings) {
    for (const Overflow overflow : kOverflows) {
      for (const std::uint32_t random16 : kFields) {
        CHECK(Differences(f, inputs, rounding, random16, overflow) == 0);
        if (rounding != Rounding::kStochastic) break;
      }
    }
  }
}

TEST_CASE("Range, Inf and NaN codes of each format are those of the standards", "[formats]") {
  struct Facts {
    double max, min_normal, min_subnormal;
    std::uint32_t max_code;
    std::set<std::uint32_t> inf, nan;  // both signs; formats of at most 8 bits
  };
  const std::map<std::string, Facts> all = {
      {"e2m1", {6, 1, 0.5, 0x7, {}, {}}},
      {"e2m3", {7.5, 1, 0.125, 0x1F, {}, {}}},
      {"e3m2", {28, 0x1p-2, 0x1p-4, 0x1F, {}, {}}},
      {"e4m3", {448, 0x1p-6, 0x1p-9, 0x7E, {}, {0x7F, 0xFF}}},
      {"e5m2", {57344, 0x1p-14, 0x1p-16, 0x7B, {0x7C, 0xFC}, {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}}},
      {"e8m0", {0x1p127, 0x1p-127, 0, 0xFE, {}, {0xFF}}},
      {"ue4m3", {448, 0x1p-6, 0x1p-9, 0x7E, {}, {0x7F}}},
      {"ue5m3", {114688, 0x1p-14, 0x1p-17, 0xFE, {}, {0xFF}}},
      {"fp16", {65504, 0x1p-14, 0x1p-24, 0x7BFF, {}, {}}},
      {"bf16", {0x1.FEp127, 0x1p-126, 0x1p-133, 0x7F7F, {}, {}}},
      {"tf32", {0x1.FFCp127, 0x1p-126, 0x1p-136, 0x3FBFF, {}, {}}},
      {"e0m3", {0.875, INFINITY, 0.125, 0x7, {}, {}}},
      {"e3m4",
       {15.5, 0x1p-2, 0x1p-6, 0x6F, {0x70, 0xF0}, {0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78,
                                                   0x79, 0x7A, 0x7B, 0x7C, 0x7D, 0x7E, 0x7F, 0xF1,
                                                   0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9,
                                                   0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF}}}};
  REQUIRE(all.size() == kFormats.size());
  for (const NamedFormat& f : kFormats) {
    INFO(f.name);
    const Facts& facts = all.at(std::string(f.short_name));
    CHECK(MaxFiniteCode(f.format) == facts.max_code);
    CHECK(MaxFinite(f.id) == facts.max);
    double min_normal = INFINITY, min_subnormal = INFINITY;
    for (std::uint32_t code = 0; code < 1u << f.format.bits; ++code) {
      const oracle::Kind kind = oracle::Classify(f.format, code);
      const double value = std::fabs(oracle::Value(f.format, code));
      if (kind == oracle::Kind::kNormal) min_normal = std::fmin(min_normal, value);
      if (kind == oracle::Kind::kSubnormal) min_subnormal = std::fmin(min_subnormal, value);
      if (f.format.bits > 8) continue;
      CHECK(IsInf(f.format, code) == (facts.inf.count(code) == 1));
      CHECK(IsNan(f.format, code) == (facts.nan.count(code) == 1));
    }
    CHECK(min_normal == facts.min_normal);
    CHECK((facts.min_subnormal == 0 ? std::isinf(min_subnormal)
                                    : min_subnormal == facts.min_subnormal));
  }
}

TEST_CASE("Every code of every format decodes to the oracle's value and encodes back",
          "[formats]") {
  for (const NamedFormat& f : kFormats) {
    std::size_t wrong_class = 0, wrong_value = 0, wrong_code = 0;
    for (std::uint32_t code = 0; code < 1u << f.format.bits; ++code) {
      const oracle::Kind kind = oracle::Classify(f.format, code);
      const float value = Decode(f.format, code);
      wrong_class += IsNan(f.format, code) != (kind == oracle::Kind::kNan);
      wrong_class += IsInf(f.format, code) != (kind == oracle::Kind::kInf);
      if (kind == oracle::Kind::kNan) {
        const std::uint32_t sign = code & SignBit(f.format) ? 0x80000000u : 0u;
        wrong_value += std::bit_cast<std::uint32_t>(value) != (sign | 0x7FC00000u);
        wrong_code += Encode(f.format, value) != NanCode(f.format);
        continue;
      }
      const double expected = oracle::Value(f.format, code);
      wrong_value += value != expected || std::signbit(value) != std::signbit(expected);
      for (const Rounding rounding : kRoundings) {
        wrong_code += Encode(f.format, value, rounding, 0xFFFF, Overflow::kSpecial) != code;
      }
    }
    INFO(f.name);
    CHECK(wrong_class == 0);
    CHECK(wrong_value == 0);
    CHECK(wrong_code == 0);
  }
}

TEST_CASE("Encode agrees with the oracle for all BF16 inputs, formats and roundings", "[formats]") {
  const std::vector<float> inputs = AllBf16();
  for (const NamedFormat& f : kFormats) CheckAgainstOracle(f, inputs);
}

TEST_CASE("Encode agrees with the oracle around every rounding boundary", "[formats]") {
  for (const NamedFormat& f : kFormats) CheckAgainstOracle(f, BoundaryInputs(f.format));
}

TEST_CASE("Stochastic rounding goes up for exactly as many fields as the fraction says",
          "[formats][property]") {
  // 2.75 lies 3/4 of the way from 2 to 3; 0.3 lies 0.6 of the way from 0 to 0.5.
  std::size_t up_275 = 0, up_03 = 0;
  for (std::uint32_t random16 = 0; random16 < 0x10000; ++random16) {
    up_275 += Decode(FormatId::kE2M1,
                     Encode(FormatId::kE2M1, 2.75f, Rounding::kStochastic, random16)) == 3.0f;
    up_03 += Decode(FormatId::kE2M1,
                    Encode(FormatId::kE2M1, 0.3f, Rounding::kStochastic, random16)) == 0.5f;
  }
  CHECK(up_275 == 0xC000);
  CHECK(up_03 == 39321);  // floor(0.6 * 65536)
}

TEST_CASE("Values between E8M0's least code and the next follow ml_dtypes and cvt.ue8m0",
          "[formats]") {
  const auto code = [](std::uint32_t bits, Rounding rounding, Overflow overflow) {
    return Encode(FormatId::kE8M0, std::bit_cast<float>(bits), rounding, 0, overflow);
  };
  for (const Overflow overflow : kOverflows) {
    CHECK(code(0x00400000, Rounding::kNearestEven, overflow) == 0);
    CHECK(code(0x00400001, Rounding::kNearestEven, overflow) == 1);
    CHECK(code(0x00400000, Rounding::kTowardPositive, overflow) == 0);
    CHECK(code(0x007FFFFF, Rounding::kTowardPositive, overflow) == 1);
    CHECK(code(0x007FFFFF, Rounding::kTowardZero, overflow) == 0);
    CHECK(code(0x7FC00000, Rounding::kTowardPositive, overflow) == 0xFF);
  }
  CHECK(code(0x7F7FFFFF, Rounding::kTowardPositive, Overflow::kSaturate) == 0xFE);
  CHECK(code(0x7F7FFFFF, Rounding::kTowardPositive, Overflow::kSpecial) == 0xFF);
  CHECK(code(0x7F800000, Rounding::kTowardZero, Overflow::kSaturate) == 0xFE);
  CHECK(code(0x7F800000, Rounding::kTowardZero, Overflow::kSpecial) == 0xFF);
}

TEST_CASE("UE4M3 and UE5M3 take the magnitude, and UE4M3's bit 7 means nothing", "[formats]") {
  for (const Rounding rounding : kRoundings) {
    for (const FormatId id : {FormatId::kUE4M3, FormatId::kUE5M3}) {
      for (const float x : {0.0f, 0.3f, 17.3f, 1e6f, INFINITY, NAN}) {
        for (const Overflow overflow : kOverflows) {
          CHECK(Encode(id, -x, rounding, 0x8000, overflow) ==
                Encode(id, x, rounding, 0x8000, overflow));
        }
      }
    }
  }
  for (std::uint32_t code = 0; code < 0x7F; ++code) {
    CHECK(Decode(FormatId::kUE4M3, code) == Decode(FormatId::kE4M3, code));
    CHECK(Decode(FormatId::kUE4M3, code | 0x80) == Decode(FormatId::kE4M3, code));
  }
  CHECK(std::isnan(Decode(FormatId::kUE4M3, 0xFF)));
  CHECK(Encode(FormatId::kUE4M3, 1e6f) == 0x7E);
  CHECK(Encode(FormatId::kUE5M3, 1e6f) == 0xFE);
  CHECK(Encode(FormatId::kUE5M3, 1e6f, Rounding::kNearestEven, 0, Overflow::kSpecial) == 0xFF);
}

TEST_CASE("TF32 converts as cvt.rn, cvt.rz and cvt.rna do, NaN and overflow included",
          "[formats]") {
  const auto container = [](std::uint32_t bits, Rounding rounding, Overflow overflow) {
    return Tf32Container(
        Encode(FormatId::kTF32, std::bit_cast<float>(bits), rounding, 0, overflow));
  };
  const auto rn = [&](std::uint32_t bits) {
    return container(bits, Rounding::kNearestEven, Overflow::kSpecial);
  };
  const auto rna = [](std::uint32_t bits) {
    return Tf32Container(Tf32NearestAway(std::bit_cast<float>(bits)));
  };
  CHECK(rn(0x3F801000) == 0x3F800000);  // a tie
  CHECK(rn(0x3F803000) == 0x3F804000);
  CHECK(rna(0x3F801000) == 0x3F802000);
  CHECK(rna(0xBF801000) == 0xBF802000);
  CHECK(rna(0x3F800FFF) == 0x3F800000);
  CHECK(container(0x3F803FFF, Rounding::kTowardZero, Overflow::kSpecial) == 0x3F802000);
  CHECK(rn(0x00001001) == 0x00002000);  // subnormals are rounded, not flushed
  CHECK(rn(0x7F7FF000) == 0x7F800000);
  CHECK(rna(0x7F7FF000) == 0x7F800000);
  CHECK(container(0x7F7FF000, Rounding::kNearestEven, Overflow::kSaturate) == 0x7F7FE000);
  for (const std::uint32_t nan : {0x7F800001u, 0xFF800001u, 0x7FC00000u, 0xFFFFFFFFu}) {
    CHECK(rn(nan) == 0x7FFFE000);
    CHECK(container(nan, Rounding::kTowardZero, Overflow::kSpecial) == 0x7FFFE000);
  }
  CHECK(rna(0x7F800001) == 0x7F800000);  // cvt.rna makes this NaN an Inf
  CHECK(rna(0x7FC00000) == 0x7FC00000);
  CHECK(rna(0x7FFFF000) == 0x7FFFE000);
  CHECK(rna(0xFFFFFFFF) == 0xFFFFE000);
  CHECK(Tf32Container(Tf32Operand(std::bit_cast<float>(0x7F800001u))) == 0x7F800000);
  CHECK(Tf32Container(Tf32Operand(-1.0001f)) == 0xBF800000);
}

TEST_CASE("Directed roundings overflow to Inf only away from zero", "[formats]") {
  const auto code = [](float x, Rounding rounding) {
    return Encode(FormatId::kFP16, x, rounding, 0, Overflow::kSpecial);
  };
  CHECK(code(1e6f, Rounding::kTowardZero) == 0x7BFF);
  CHECK(code(-1e6f, Rounding::kTowardZero) == 0xFBFF);
  CHECK(code(-1e6f, Rounding::kTowardPositive) == 0xFBFF);
  CHECK(code(1e6f, Rounding::kTowardPositive) == 0x7C00);
  CHECK(code(INFINITY, Rounding::kTowardZero) == 0x7C00);
}

TEST_CASE("The random fields of cvt.rs lie as measured on B200", "[formats]") {
  using Fields4 = std::array<std::uint32_t, 4>;
  using Fields2 = std::array<std::uint32_t, 2>;
  STATIC_REQUIRE(CvtRsByteFields(0x12345678) == Fields4{0x5678, 0x1E6A, 0x1234, 0x2C48});
  STATIC_REQUIRE(CvtRsNibbleFields(0x12345678) == Fields4{0x3478, 0x1E2C, 0x1256, 0x6A48});
  STATIC_REQUIRE(CvtRsBf16Fields(0x12345678) == Fields2{0x5678, 0x1234});
  STATIC_REQUIRE(CvtRsFp16Fields(0xFFFFFFFF) == Fields2{0xFFF8, 0xFFF8});
}

TEST_CASE("Stochastic rounding to BF16 is the sum of the bits and the field, cut off",
          "[formats][property]") {
  std::size_t wrong = 0;
  for (const float x : BoundaryInputs(FormatOf(FormatId::kBF16))) {
    if (!std::isfinite(x)) continue;
    for (const std::uint32_t random16 : kFields) {
      const std::uint32_t expected = (std::bit_cast<std::uint32_t>(x) + random16) >> 16;
      wrong += Encode(FormatId::kBF16, x, Rounding::kStochastic, random16, Overflow::kSpecial) !=
               expected;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Formats are found by both of their names", "[formats]") {
  for (const NamedFormat& f : kFormats) {
    CHECK(FindFormat(f.name) == f.id);
    CHECK(FindFormat(f.short_name) == f.id);
  }
  CHECK_FALSE(FindFormat("e6m1").has_value());
}

}  // namespace
}  // namespace fp4lab
