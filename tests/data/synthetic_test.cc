#include "fp4lab/data/synthetic.h"

#include <cmath>

#include "fp4lab/base/hash.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

// The digests come from an independent Python implementation of the rule in synthetic.h.
TEST_CASE("A seed gives the same synthetic text on every machine", "[data][golden]") {
  CHECK(Sha256(SyntheticSource(1).Text(100'000)) ==
        "d557761293cbb18c6973212bf86d0a23dcd04754e6c5491603be4c952dc52976");
  CHECK(Sha256(SyntheticSource(2).Text(100'000)) ==
        "64fe9049289d59117d9d3a1b5836bb0e67a818eeb803c864858b2956ae6707f4");
}

TEST_CASE("A shorter synthetic text is the start of a longer one", "[data]") {
  const SyntheticSource source(7);
  const std::string text = source.Text(5000);
  CHECK(source.Text(5000) == text);
  CHECK(source.Text(1234) == text.substr(0, 1234));
  CHECK(SyntheticSource(8).Text(5000) != text);
}

TEST_CASE("The weights of every context add up to one and none is zero", "[data]") {
  const SyntheticSource source(3);
  int bad = 0;
  for (std::uint32_t c = 0; c < SyntheticSource::kContexts; ++c) {
    std::uint32_t sum = 0;
    for (std::uint32_t s = 0; s < SyntheticSource::kSymbols; ++s) {
      sum += source.Weight(c, s);
      bad += source.Weight(c, s) == 0;
    }
    bad += sum != 65536;
  }
  CHECK(bad == 0);
}

// The sample mean of -ln p over n symbols of a chain that mixes at once has a standard error near
// s / sqrt(n), s about 1 nat: 5 s for n = 400,000 is 0.008.
TEST_CASE("A sample's cross-entropy is the entropy rate", "[data]") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const SyntheticSource source(seed);
    const double rate = source.EntropyRate();
    CHECK(rate > 1.0);
    CHECK(rate < std::log(16.0));
    CHECK(std::abs(source.CrossEntropy(source.Text(400'000)) - rate) < 0.008);
    const double wrong_source = SyntheticSource(seed + 10).CrossEntropy(source.Text(400'000));
    CHECK(wrong_source > rate + 0.5);
  }
}

TEST_CASE("A character outside the alphabet is refused", "[data]") {
  CHECK(ErrorOf([] { SyntheticSource(1).CrossEntropy("abc Z"); }) ==
        "synthetic text: character 4 is not in the alphabet");
}

}  // namespace
}  // namespace fp4lab
