#include "fp4lab/base/step_parts.h"

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

void Work(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST_CASE("Every part has a name of its own", "[base]") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kStepParts; ++i) {
    CHECK(names.insert(StepPartName(static_cast<StepPart>(i))).second);
  }
  CHECK(names.contains("quantization"));
  CHECK(names.contains("other"));
}

TEST_CASE("A clock gives each part the time of its innermost scopes", "[base]") {
  StepClock clock;
  Work(5);
  {
    const StepScope outer(StepPart::kQuantization);
    Work(10);
    {
      const StepScope inner(StepPart::kGemm);
      Work(20);
    }
    Work(10);
  }
  const StepScope again(StepPart::kGemm);
  Work(20);
  const StepTimes times = clock.Times();
  CHECK(times.Of(StepPart::kOther) >= 0.005);
  CHECK(times.Of(StepPart::kQuantization) >= 0.020);
  CHECK(times.Of(StepPart::kGemm) >= 0.040);
  CHECK(times.Of(StepPart::kOptimizer) == 0.0);
  CHECK(times.Of(StepPart::kQuantization) < times.Total());
  double shares = 0.0;
  for (std::size_t i = 0; i < kStepParts; ++i) shares += times.Share(static_cast<StepPart>(i));
  CHECK(shares == Catch::Approx(1.0));
  CHECK(StepTimes().Share(StepPart::kGemm) == 0.0);
}

TEST_CASE("Without a clock, and on other threads, scopes count for nothing", "[base]") {
  { const StepScope alone(StepPart::kGemm); }
  StepClock clock;
  std::thread other([] {
    const StepScope scope(StepPart::kAttention);
    Work(2);
  });
  other.join();
  CHECK(clock.Times().Of(StepPart::kAttention) == 0.0);
}

TEST_CASE("A clock within another one's life takes its place until it ends", "[base]") {
  StepClock outer;
  {
    StepClock inner;
    const StepScope scope(StepPart::kOptimizer);
    Work(2);
    CHECK(inner.Times().Of(StepPart::kOptimizer) >= 0.002);
  }
  CHECK(outer.Times().Of(StepPart::kOptimizer) == 0.0);
  {
    const StepScope scope(StepPart::kAttention);
    Work(2);
  }
  CHECK(outer.Times().Of(StepPart::kAttention) >= 0.002);
}

}  // namespace
}  // namespace fp4lab
