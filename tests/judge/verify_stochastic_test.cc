#include "fp4lab/judge/verify/verify_stochastic.h"

#include <string>

#include "fp4lab/base/random.h"
#include "fp4lab/dialect/noise/added_noise.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

// Runs of fp4lab's own kernel; `seed_of` gives the seed of a run's random bits.
template <class SeedOf>
std::vector<StoredMatrix> Runs(const Dialect& dialect, const Matrix<float>& x, int count,
                               const SeedOf& seed_of) {
  const std::uint16_t mask = dialect.rounding == ElementRounding::kStochastic8 ? 0xFF : 0xFFFF;
  std::vector<StoredMatrix> runs;
  for (int run = 0; run < count; ++run) {
    const RandomStream stream{.seed = seed_of(run)};
    std::vector<std::uint16_t> random(x.values.size());
    for (std::size_t i = 0; i < random.size(); ++i) {
      random[i] = static_cast<std::uint16_t>(stream.Bits16(i) & mask);
    }
    runs.push_back(Store(dialect, QuantizeAs(dialect, x.View(), {.random = random}), {}));
  }
  return runs;
}

TEST_CASE("A stochastic kernel is accepted by its outputs alone; wrong ones are refused",
          "[judge]") {
  const Matrix<float> x = NormalMatrix(1, 64, 128);
  for (const char* name : {"nvfp4.te.stochastic", "nvfp4.te.stochastic.software"}) {
    CAPTURE(name);
    const Dialect& dialect = *FindDialect(name);
    const auto judge = [&](const std::vector<StoredMatrix>& runs) {
      return VerifyStatistically(dialect, x.View(), runs, "runs");
    };
    const std::vector<StoredMatrix> right =
        Runs(dialect, x, 6, [](int run) { return static_cast<std::uint64_t>(run) + 10; });
    const StatisticalVerdict accepted = judge(right);
    CHECK(accepted.Accepted());
    CHECK_THAT(StatisticalText(dialect, accepted),
               Catch::Matchers::ContainsSubstring("\npower   99 of 100 kernels with probabilities "
                                                  "off by "));
    const Json power = StatisticalJson(dialect, accepted)["power"];
    CHECK((power["random_bits"] >= 2 && power["random_bits"] <= 6));
    CHECK((power["bias"] > 0.0 && power["bias"] < 0.1));

    const StatisticalVerdict shared = judge(Runs(dialect, x, 6, [](int) { return 10u; }));
    CHECK(shared.rounding.answer == StochasticAnswer::kRefused);
    CHECK_THAT(StatisticalText(dialect, shared), Catch::Matchers::ContainsSubstring("refused\n"));

    std::vector<StoredMatrix> zeros = right;
    for (StoredMatrix& run : zeros) run.codes.assign(run.codes.size(), 0);
    CHECK(judge(zeros).rounding.answer == StochasticAnswer::kRefused);

    Dialect truncating = dialect;
    truncating.rounding = ElementRounding::kTowardZero;
    const Quantized truncated = QuantizeAs(truncating, x.View());
    CHECK(judge(std::vector<StoredMatrix>(6, Store(dialect, truncated, {}))).rounding.answer ==
          StochasticAnswer::kRefused);

    std::vector<StoredMatrix> scale = right;
    scale[3].scales[7] ^= 1;
    const StatisticalVerdict other_scale = judge(scale);
    CHECK_FALSE(other_scale.Accepted());
    CHECK(other_scale.exact.scales.different == 1);
    CHECK(StatisticalJson(dialect, other_scale)["accepted"] == false);
  }
}

TEST_CASE("A dialect that rounds to nearest is referred to its stochastic sibling", "[judge]") {
  CHECK(StochasticSibling(*FindDialect("nvfp4.te"))->name == "nvfp4.te.stochastic");
  CHECK(StochasticSibling(*FindDialect("nvfp4.modelopt"))->name == "nvfp4.te.stochastic");
  for (const Dialect& d : Dialects()) {
    CAPTURE(d.name);
    const Dialect* sibling = StochasticSibling(d);
    const auto is_random = [](const Dialect& row) {
      return IsStochastic(row) || FindAddedNoise(row.name) != nullptr;
    };
    if (sibling != nullptr) CHECK((is_random(*sibling) && sibling->element == d.element));
    if (is_random(d)) {
      CHECK_NOTHROW(RequireStochastic(d, "dialect"));
      continue;
    }
    CHECK_THAT(ErrorOf([&] { RequireStochastic(d, "dialect"); }),
               Catch::Matchers::ContainsSubstring(
                   sibling != nullptr ? "give the dialect " + std::string(sibling->name)
                                      : "no dialect of this format rounds stochastically"));
  }
}

}  // namespace
}  // namespace fp4lab
