#include "fp4lab/study/run/sitting.h"

#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

// A run of `total` steps that counts the calls of the loop.
struct Counted {
  int total = 0, stops_after = 1000, save_every = 1000;
  int steps = 0, shown = 0;
  std::vector<int> saved = {};  // the steps at which it was saved
  double seconds = 0.0;

  void Run() {
    Sit({.done = [this] { return steps == total; },
         .advance = [this] { ++steps; },
         .advanced =
             [this](double took) {
               ++shown;
               seconds += took;
             },
         .stops = [this] { return steps >= stops_after; },
         .saves = [this](double) { return steps % save_every == 0; },
         .save = [this] { saved.push_back(steps); }});
  }
};

TEST_CASE("A sitting goes to the end of the run and leaves it saved", "[study]") {
  Counted run{.total = 5};
  run.Run();
  CHECK(run.steps == 5);
  CHECK(run.shown == 5);
  CHECK(run.seconds >= 0.0);
  CHECK(run.saved == std::vector<int>{5});
  Counted often{.total = 5, .save_every = 2};
  often.Run();
  CHECK(often.saved == std::vector<int>{2, 4, 5});
  Counted even{.total = 4, .save_every = 2};
  even.Run();
  CHECK(even.saved == std::vector<int>{2, 4});  // the last step is saved once
}

TEST_CASE("A sitting that is asked to stop ends after that step, saved", "[study]") {
  Counted run{.total = 5, .stops_after = 3};
  run.Run();
  CHECK(run.steps == 3);
  CHECK(run.saved == std::vector<int>{3});
  run.stops_after = 1000;
  run.Run();
  CHECK(run.saved == std::vector<int>{3, 5});
}

TEST_CASE("A run that is done is only saved", "[study]") {
  Counted run{.total = 0};
  run.Run();
  CHECK(run.shown == 0);
  CHECK(run.saved == std::vector<int>{0});
}

TEST_CASE("An exception of a step leaves the last save of a sitting as it is", "[study]") {
  int steps = 0;
  std::vector<int> saved;
  const auto sit = [&] {
    Sit({.done = [] { return false; },
         .advance =
             [&] {
               if (++steps == 4) throw std::runtime_error("broken");
             },
         .advanced = [](double) {},
         .stops = [] { return false; },
         .saves = [&](double) { return steps == 2; },
         .save = [&] { saved.push_back(steps); }});
  };
  CHECK_THROWS_AS(sit(), std::runtime_error);
  CHECK(saved == std::vector<int>{2});
}

}  // namespace
}  // namespace fp4lab::study
