#include "fp4lab/train/schedule.h"

#include <cmath>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

ScheduleConfig Read(const Json& json) { return ReadScheduleConfig(json, "s.json"); }

TEST_CASE("WSD warms up by steps, stays, and decays over the last share", "[train]") {
  const ScheduleConfig s = Read({{"learning_rate", 1.0}, {"warmup_steps", 4}});
  const double expected[20] = {0.25, 0.5, 0.75, 1, 1, 1, 1, 1,    1,   1,
                               1,    1,   1,    1, 1, 1, 1, 0.75, 0.5, 0.25};
  for (int step = 0; step < 20; ++step) {
    CAPTURE(step);
    CHECK(LearningRate(s, step, 20) == Catch::Approx(expected[step]).epsilon(1e-15));
  }
  CHECK(DecaySteps(s, 20) == 4);
}

TEST_CASE("The trunk of a WSD schedule does not depend on the run's length", "[train]") {
  const ScheduleConfig s = Read({{"learning_rate", 5e-3}, {"warmup_steps", 25}});
  for (std::int64_t step = 0; step < 400; ++step) {
    CHECK(LearningRate(s, step, 500) == LearningRate(s, step, 4000));
  }
}

TEST_CASE("The sqrt decay falls as 1 - sqrt and ends at the final ratio", "[train]") {
  const ScheduleConfig s = Read({{"learning_rate", 2.0},
                                 {"warmup_steps", 0},
                                 {"decay_shape", "sqrt"},
                                 {"final_ratio", 0.1},
                                 {"decay_fraction", 0.4}});
  CHECK(LearningRate(s, 6, 10) == 2.0);
  CHECK(LearningRate(s, 7, 10) == Catch::Approx(2.0 * (0.1 + 0.9 * 0.5)).epsilon(1e-15));
  CHECK(LearningRate(s, 9, 10) ==
        Catch::Approx(2.0 * (0.1 + 0.9 * (1 - std::sqrt(0.75)))).epsilon(1e-15));
}

TEST_CASE("Cosine and constant schedules", "[train]") {
  const ScheduleConfig cosine =
      Read({{"kind", "cosine"}, {"learning_rate", 1.0}, {"warmup_steps", 2}, {"final_ratio", 0.2}});
  CHECK(LearningRate(cosine, 0, 10) == 0.5);
  CHECK(LearningRate(cosine, 2, 10) == 1.0);
  CHECK(LearningRate(cosine, 6, 10) == Catch::Approx(0.6).epsilon(1e-12));
  CHECK(LearningRate(cosine, 9, 10) > 0.2);
  const ScheduleConfig constant =
      Read({{"kind", "constant"}, {"learning_rate", 3.0}, {"warmup_steps", 3}});
  CHECK(LearningRate(constant, 1, 10) == 2.0);
  CHECK(LearningRate(constant, 9, 10) == 3.0);
  CHECK(DecaySteps(constant, 10) == 0);
}

TEST_CASE("A run shorter than its warm-up takes the smaller of both rates", "[train]") {
  const ScheduleConfig s = Read({{"learning_rate", 1.0}, {"warmup_steps", 10}});
  CHECK(LearningRate(s, 4, 5) == Catch::Approx(0.5));
  CHECK(LearningRate(s, 0, 1) == Catch::Approx(0.1));
}

TEST_CASE("Schedules read back from their JSON, and bad ones are refused", "[train]") {
  const ScheduleConfig s = Read({{"kind", "cosine"}, {"learning_rate", 0.002}});
  CHECK(Read(ToJson(s)) == s);
  CHECK_THROWS_WITH(Read({{"kind", "linear"}}),
                    Catch::Matchers::ContainsSubstring("s.json#/kind: must be"));
  CHECK_THROWS_WITH(Read({{"learning_rate", 0}}), Catch::Matchers::ContainsSubstring(
                                                      "s.json#/learning_rate: must be a positive"));
  CHECK_THROWS_WITH(Read({{"decay_fraction", 1.5}}),
                    Catch::Matchers::ContainsSubstring("s.json#/decay_fraction"));
  CHECK_THROWS_WITH(Read({{"warmup", 3}}), Catch::Matchers::ContainsSubstring("unknown key"));
}

}  // namespace
}  // namespace fp4lab
