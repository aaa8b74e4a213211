#include "fp4lab/formats/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "tests/support/catch.h"
#include "tests/support/format_cases.h"
#include "tests/support/least_targets.h"

namespace fp4lab {
namespace {

// Runs body(target) with every SIMD target pinned in turn.
template <class Body>
void OnEveryTarget(Body&& body) {
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    body(target);
  }
  PinSimdTarget("best");
}

std::vector<float> Inputs(const Format& format) {
  std::vector<float> inputs = AllBf16();
  const std::vector<float> boundaries = BoundaryInputs(format);
  inputs.insert(inputs.end(), boundaries.begin(), boundaries.end());
  return inputs;
}

template <class Code>
std::vector<Code> Expected(const NamedFormat& f, const std::vector<float>& x,
                           const EncodeOptions& options) {
  std::vector<Code> codes(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t random16 = options.rounding == Rounding::kStochastic
                                       ? options.random.Bits16(options.first_element + i)
                                       : 0u;
    codes[i] =
        static_cast<Code>(Encode(f.format, x[i], options.rounding, random16, options.overflow));
  }
  return codes;
}

template <class Code>
void CheckEncode(const NamedFormat& f, const std::vector<float>& x, const EncodeOptions& options) {
  const std::vector<Code> expected = Expected<Code>(f, x, options);
  OnEveryTarget([&](const std::string& target) {
    std::vector<Code> codes(x.size());
    Encode(f.id, x, codes, options);
    const auto [got, want] = std::mismatch(codes.begin(), codes.end(), expected.begin());
    if (got == codes.end()) return;
    const auto i = static_cast<std::size_t>(got - codes.begin());
    INFO(f.name << " on " << target << ", rounding " << static_cast<int>(options.rounding)
                << ", element " << i << ", bits " << std::hex << std::bit_cast<std::uint32_t>(x[i])
                << ": got " << +*got << ", expected " << +*want);
    CHECK(false);
  });
}

TEST_CASE("Encode's kernels give the scalar codes on every SIMD target",
          "[formats][differential]") {
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const NamedFormat& f : kFormats) {
    const std::vector<float> inputs = Inputs(f.format);
    for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTowardZero,
                                    Rounding::kTowardPositive, Rounding::kStochastic}) {
      for (const Overflow overflow : {Overflow::kSaturate, Overflow::kSpecial}) {
        const EncodeOptions options{.rounding = rounding,
                                    .overflow = overflow,
                                    .random = {.seed = 42, .step = 3, .tensor = 9},
                                    .first_element = 5};
        if (f.format.bits <= 8) CheckEncode<std::uint8_t>(f, inputs, options);
        if (f.format.bits > 8 && f.format.bits <= 16)
          CheckEncode<std::uint16_t>(f, inputs, options);
        if (f.format.bits > 16) CheckEncode<std::uint32_t>(f, inputs, options);
        if (rounding != Rounding::kStochastic) continue;  // codes in wider integers
        if (f.format.bits <= 8) CheckEncode<std::uint16_t>(f, inputs, options);
        if (f.format.bits <= 16) CheckEncode<std::uint32_t>(f, inputs, options);
      }
    }
  }
}

// The number of codes that a kernel decodes to other bits than the scalar Decode: all codes of a
// format, and codes with bits set above the format's.
template <class Code>
std::size_t WrongValues(const NamedFormat& f) {
  const std::uint32_t all = (1u << f.format.bits) - 1;
  std::vector<Code> codes(std::min<std::size_t>(std::size_t{1} << (8 * sizeof(Code)), 1 << 20));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<Code>(i);
  std::vector<float> values(codes.size());
  Decode(f.id, codes, values);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += std::bit_cast<std::uint32_t>(values[i]) !=
             std::bit_cast<std::uint32_t>(Decode(f.id, static_cast<std::uint32_t>(i) & all));
  }
  return wrong;
}

TEST_CASE("Decode's kernels give the scalar values on every SIMD target",
          "[formats][differential]") {
  for (const NamedFormat& f : kFormats) {
    OnEveryTarget([&](const std::string& target) {
      INFO(f.name << " on " << target);
      if (f.format.bits <= 8) CHECK(WrongValues<std::uint8_t>(f) == 0);
      if (f.format.bits <= 16) CHECK(WrongValues<std::uint16_t>(f) == 0);
      CHECK(WrongValues<std::uint32_t>(f) == 0);
    });
  }
}

TEST_CASE("RoundToBf16's kernel gives the scalar bits on every SIMD target, in place too",
          "[formats][differential]") {
  const std::vector<float> inputs = Inputs(FormatOf(FormatId::kBF16));
  std::vector<std::uint32_t> expected;
  std::size_t wrong = 0;
  for (const float x : inputs) {
    const FormatId bf16 = FormatId::kBF16;
    const float defined =
        Decode(bf16, Encode(bf16, x, Rounding::kNearestEven, 0, Overflow::kSpecial));
    expected.push_back(std::bit_cast<std::uint32_t>(defined));
    wrong += std::bit_cast<std::uint32_t>(RoundToBf16(x)) != expected.back();
  }
  CHECK(wrong == 0);
  OnEveryTarget([&](const std::string& target) {
    std::vector<float> out = inputs;
    RoundToBf16(out, out);
    INFO(target);
    CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
  });
  CHECK(std::bit_cast<std::uint32_t>(RoundToBf16(NAN)) == 0x7FC00000u);
  CHECK(std::bit_cast<std::uint32_t>(RoundToBf16(std::bit_cast<float>(0xFF800001u))) ==
        0x7FC00000u);
  CHECK(RoundToBf16(3.4e38f) == INFINITY);
  CHECK(RoundToBf16(-0x1.FEFFFEp127f) == -0x1.FEp127f);
}

TEST_CASE("Every length and offset of a span gives the same codes", "[formats]") {
  const std::vector<float> inputs = BoundaryInputs(FormatOf(FormatId::kE4M3));
  const EncodeOptions all{.rounding = Rounding::kStochastic, .random = {.seed = 7}};
  std::vector<std::uint8_t> expected(inputs.size());
  Encode(FormatId::kE4M3, inputs, expected, all);
  OnEveryTarget([&](const std::string& target) {
    for (std::size_t begin = 0; begin < 20; ++begin) {
      for (std::size_t size = 0; size < 50; ++size) {
        EncodeOptions options = all;
        options.first_element = begin;
        std::vector<std::uint8_t> codes(size + 1, 0xEE);
        Encode(FormatId::kE4M3, std::span(inputs).subspan(begin, size),
               std::span(codes).first(size), options);
        INFO(target << ", " << size << " from " << begin);
        CHECK(codes[size] == 0xEE);
        CHECK(std::equal(codes.begin(), codes.end() - 1,
                         expected.begin() + static_cast<std::ptrdiff_t>(begin)));
      }
    }
  });
}

TEST_CASE("The codes do not depend on the number of threads", "[formats]") {
  std::vector<float> inputs;
  while (inputs.size() < 300000) {
    inputs.push_back(std::sin(static_cast<float>(inputs.size())) * 8.0f);
  }
  const EncodeOptions options{.rounding = Rounding::kStochastic, .random = {.seed = 1}};
  const int threads = Threads();
  std::vector<std::vector<std::uint8_t>> results;
  for (const int n : {1, 2, 3}) {
    SetThreads(n);
    std::vector<std::uint8_t> codes(inputs.size());
    Encode(FormatId::kE2M1, inputs, codes, options);
    results.push_back(codes);
  }
  SetThreads(threads);
  CHECK((results[0] == Expected<std::uint8_t>(Named(FormatId::kE2M1), inputs, options)));
  CHECK((results[1] == results[0]));
  CHECK((results[2] == results[0]));
}

TEST_CASE("Spans of unequal length and too narrow codes are refused", "[formats]") {
  std::vector<float> x(4);
  std::vector<std::uint8_t> codes(4), few(3);
  std::vector<std::uint16_t> codes16(4);
  CHECK_THROWS_AS(Encode(FormatId::kE4M3, x, few), std::logic_error);
  CHECK_THROWS_AS(Encode(FormatId::kBF16, x, codes), std::logic_error);
  CHECK_THROWS_AS(Encode(FormatId::kTF32, x, codes16), std::logic_error);
  CHECK_THROWS_AS(Decode(FormatId::kE4M3, few, x), std::logic_error);
  CHECK_THROWS_AS(RoundToBf16(x, std::span(x).first(3)), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
