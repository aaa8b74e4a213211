#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>

#include "fp4lab/judge/cases/case_builder.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::vector<std::uint32_t> AllBits(const std::vector<Case>& cases) {
  std::vector<std::uint32_t> bits;
  for (const Case& c : cases) {
    for (const float x : c.x.values) bits.push_back(std::bit_cast<std::uint32_t>(x));
    bits.insert(bits.end(), c.random.begin(), c.random.end());
  }
  return bits;
}

const Case& Find(const std::vector<Case>& cases, std::string_view name) {
  const auto at =
      std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.name == name; });
  REQUIRE(at != cases.end());
  return *at;
}

TEST_CASE("Every dialect has cases of every family that applies, with names of their own",
          "[judge]") {
  for (const Dialect& dialect : Dialects()) {
    CAPTURE(dialect.name);
    const std::vector<Case> cases = MakeCases(dialect);
    std::set<std::string> names;
    std::set<std::string_view> families;
    for (const Case& c : cases) {
      CAPTURE(c.name);
      CHECK(names.insert(c.name).second);
      families.insert(c.family);
      CHECK(c.x.values.size() == c.x.rows * c.x.cols);
      CHECK(!c.x.values.empty());
      CHECK(c.is_bf16 == std::all_of(c.x.values.begin(), c.x.values.end(), IsBf16));
      CHECK(c.random.size() == (IsStochastic(dialect) ? c.x.values.size() : 0));
    }
    for (const CaseFamily& family : CaseFamilies()) {
      CAPTURE(family.name);
      CHECK(families.count(family.name) == (family.applies(dialect) ? 1 : 0));
    }
  }
}

TEST_CASE("Cases are the same every time, and others for another seed", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  CHECK(AllBits(MakeCases(dialect)) == AllBits(MakeCases(dialect)));
  CHECK(AllBits(MakeCases(dialect)) != AllBits(MakeCases(dialect, {.seed = 2})));
}

TEST_CASE("The thorough level holds more elements than the quick one", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  CHECK(AllBits(MakeCases(dialect, {.level = CaseLevel::kThorough})).size() >
        2 * AllBits(MakeCases(dialect)).size());
}

TEST_CASE("Families are chosen by name, and BF16 cases alone on request", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  for (const Case& c : MakeCases(dialect, {.families = {"signs", "tails"}})) {
    CHECK((c.family == "signs" || c.family == "tails"));
  }
  const std::vector<Case> bf16 = MakeCases(dialect, {.bf16_only = true});
  CHECK(bf16.size() > 50);
  std::set<std::string_view> families;
  for (const Case& c : bf16) {
    CHECK(c.is_bf16);
    families.insert(c.family);
  }
  for (const char* family : {"element-ties", "scale-ties", "scale-hazards", "factor-hazards",
                             "underflowed-scales", "tiny-amax", "nan-inf", "saturation"}) {
    CAPTURE(family);
    CHECK(families.count(family) == 1);
  }
  CHECK(ErrorOf([&] {
          MakeCases(dialect, {.families = {"tyes"}});
        }).find("family tyes: is not known; one of: element-ties") == 0);
}

// This test and the following ones check by the dialect's formulas that the cases of a family are
// what its name promises.
TEST_CASE("Elements of element-ties land on ties and on both sides of them", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  const std::vector<Case> cases = MakeCases(dialect, {.families = {"element-ties"}});
  for (const char* name : {"element-ties/bf16", "element-ties/fp32"}) {
    const Case& c = Find(cases, name);
    const Quantized q = QuantizeAs(dialect, c.x.View());
    std::set<std::pair<float, int>> seen;  // midpoint, side
    for (std::size_t i = 0; i < c.x.values.size(); ++i) {
      const float scale = Decode(FormatId::kE4M3, q.scales[i / 16]);  // S = 1 here
      const double v = std::fabs(static_cast<double>(c.x.values[i])) / scale;
      for (const float m : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) {
        if (std::fabs(v / m - 1.0) < 0x1p-6) seen.insert({m, v == m ? 0 : v > m ? 1 : -1});
      }
    }
    CHECK(seen.size() == 7 * 3);
  }
}

TEST_CASE("Block amaxes of scale-ties reach every scale from both sides", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  for (const Case& c : MakeCases(dialect, {.families = {"scale-ties"}})) {
    CAPTURE(c.name);
    const Quantized q = QuantizeAs(dialect, c.x.View());
    const std::set<std::uint8_t> bytes(q.scales.begin(), q.scales.end());
    CHECK(bytes.size() == 127);  // 0 ... 0x7E
  }
}

TEST_CASE("No two places of positions have the same word of codes", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  std::vector<std::string> words(32 * 64);
  for (const Case& c : MakeCases(dialect, {.families = {"positions"}})) {
    if (c.name.find("bit-") == std::string::npos) continue;
    const Quantized q = QuantizeAs(dialect, c.x.View());
    REQUIRE(q.codes.size() == words.size());
    for (std::size_t i = 0; i < words.size(); ++i) words[i] += static_cast<char>(q.codes[i]);
  }
  CHECK(std::set<std::string>(words.begin(), words.end()).size() == words.size());
}

TEST_CASE("No two blocks of distinct-scales have the same pair of scales", "[judge]") {
  for (const char* name : {"nvfp4.te", "nvfp4.te.2d", "mxfp4.floor"}) {
    CAPTURE(name);
    const Dialect& dialect = *FindDialect(name);
    const std::vector<Case> cases = MakeCases(dialect, {.families = {"distinct-scales"}});
    REQUIRE(cases.size() == 2);
    const Quantized low = QuantizeAs(dialect, cases[0].x.View());
    const Quantized high = QuantizeAs(dialect, cases[1].x.View());
    std::set<std::pair<int, int>> pairs;
    for (std::size_t i = 0; i < low.scales.size(); ++i)
      pairs.insert({low.scales[i], high.scales[i]});
    CHECK(pairs.size() == low.scales.size());
  }
}

TEST_CASE("Exact values never move, whatever the random bits", "[judge]") {
  for (const Dialect& dialect : Dialects()) {
    if (!IsStochastic(dialect)) continue;
    CAPTURE(dialect.name);
    for (const Case& c : MakeCases(dialect, {.families = {"exact-values"}})) {
      std::vector<std::uint16_t> zeros(c.random.size(), 0);
      CHECK(
          std::all_of(c.random.begin(), c.random.end(), [](std::uint16_t r) { return r >= 0xFF; }));
      CHECK(QuantizeAs(dialect, c.x.View(), {.random = c.random}) ==
            QuantizeAs(dialect, c.x.View(), {.random = zeros}));
    }
  }
}

}  // namespace
}  // namespace fp4lab
