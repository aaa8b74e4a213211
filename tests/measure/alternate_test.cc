#include "fp4lab/measure/alternate.h"

#include <string>
#include <vector>

#include "fp4lab/measure/summary.h"
#include "tests/support/catch.h"

namespace fp4lab::measure {
namespace {

// A simulated machine: time passes only during work, which takes its stated seconds at speed 1.
struct FakeMachine {
  double now = 0;
  double speed = 1;
  std::string log;  // one letter for each call

  Work Doing(char name, double seconds) {
    return [this, name, seconds] {
      now += seconds / speed;
      log += name;
    };
  }
  AlternateOptions Options() {
    AlternateOptions options;
    options.clock = options.budget = [this] { return now; };
    return options;
  }
};

TEST_CASE("Alternate interleaves the works and rotates which starts a round", "[measure]") {
  FakeMachine machine;
  AlternateOptions options = machine.Options();
  options.slice_seconds = 0;  // one call a timing
  options.least_rounds = options.most_rounds = 3;
  const auto times = Alternate({machine.Doing('a', 1), machine.Doing('b', 2)}, options);
  CHECK(machine.log ==
        "aabb"
        "ab"
        "ba"
        "ab");  // warm-up and count first
  CHECK(times == std::vector<std::vector<double>>{{1, 1, 1}, {2, 2, 2}});
}

TEST_CASE("Short work is called until a timing takes a slice, and times are of one call",
          "[measure]") {
  FakeMachine machine;
  AlternateOptions options = machine.Options();
  options.slice_seconds = 1;
  options.least_rounds = options.most_rounds = 2;
  const double quarter = 0.25;
  const auto times = Alternate({machine.Doing('a', quarter)}, options);
  CHECK(times == std::vector<std::vector<double>>{{quarter, quarter}});
  // once, then 1 + 2 + 4 calls to see how many fill a slice, then two timings of four
  CHECK(machine.log.size() == 1 + 7 + 2 * 4);
}

TEST_CASE("Rounds end with the budget, but not before the least number of them", "[measure]") {
  FakeMachine machine;
  AlternateOptions options = machine.Options();
  options.slice_seconds = 0;
  options.least_rounds = 2;
  options.most_rounds = 100;
  options.budget_seconds = 0;
  CHECK(Alternate({machine.Doing('a', 1)}, options)[0].size() == 2);
  options.budget_seconds = 10;
  CHECK(Alternate({machine.Doing('a', 1)}, options)[0].size() == 10);
  options.most_rounds = 4;
  CHECK(Alternate({machine.Doing('a', 1)}, options)[0].size() == 4);
}

TEST_CASE("A machine that slows down changes times, not the ratio of works in turn", "[measure]") {
  FakeMachine machine;
  AlternateOptions options = machine.Options();
  options.slice_seconds = 0;
  options.least_rounds = options.most_rounds = 50;
  const Work half = machine.Doing('a', 1), whole = machine.Doing('b', 2);
  const Work slower = [&] {
    half();
    machine.speed *= 0.98;
  };
  const auto times = Alternate({slower, whole}, options);
  CHECK(times[0].back() > 2 * times[0].front());
  CHECK(RatioOf(times[1], times[0]).median == Catch::Approx(2).epsilon(0.03));
}

TEST_CASE("A stopped measurement ends before its next timing", "[measure]") {
  FakeMachine machine;
  std::atomic<bool> stop{false};
  AlternateOptions options = machine.Options();
  options.stop = &stop;
  options.slice_seconds = 0;
  int calls = 0;
  const Work stopping = [&] {
    machine.now += 1;
    stop = ++calls == 4;
  };
  CHECK_THROWS_AS(Alternate({stopping}, options), Stopped);
  CHECK(calls == 4);
}

TEST_CASE("Nothing to measure is a caller's bug", "[measure]") {
  CHECK_THROWS_AS(Alternate({}, {}), std::logic_error);
}

}  // namespace
}  // namespace fp4lab::measure
