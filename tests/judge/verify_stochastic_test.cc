#include "fp4lab/judge/verify/verify_stochastic.h"

#include <string>

#include "fp4lab/base/random.h"
#include "tests/support/catch.h"
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
    CHECK(judge(right).Accepted());

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

}  // namespace
}  // namespace fp4lab
