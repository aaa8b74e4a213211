#include "fp4lab/base/ieee_arithmetic.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "tests/ieee/host_states.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

// Arithmetic whose result shows flushing, the direction of rounding, what becomes of a NaN's
// payload and, on Arm, the form of half precision; the compiler cannot know it.
struct Probe {
  float half_of_least, third, minus_third, subnormal;
  std::uint32_t payload;
  float half_precision;
  friend bool operator==(const Probe&, const Probe&) = default;
};
Probe Compute() {
  volatile float normal = std::numeric_limits<float>::min(), three = 3.0f, one = 1.0f,
                 minus = -1.0f, subnormal = std::numeric_limits<float>::denorm_min(),
                 nan = std::bit_cast<float>(0x7FC12345u), above_half_precision = 65536.0f;
#if defined(__aarch64__)
  const __fp16 half = static_cast<__fp16>(above_half_precision);
#else
  const float half = above_half_precision;
#endif
  return {normal * 0.5f,
          one / three,
          minus / three,
          subnormal * one,
          std::bit_cast<std::uint32_t>(nan + one),
          static_cast<float>(half)};
}

TEST_CASE("IeeeArithmetic sets the state of its thread, nests, and restores the one before",
          "[base]") {
  const FloatingPointState plain = ReadFloatingPointState();
  const Probe right = Compute();
  for (const host::NamedState& s : host::HostStates()) {
    CAPTURE(s.name);
    CHECK_FALSE(IsIeee(s.state));
    Probe inside, nested, after;
    FloatingPointState between, at_end;
    WriteFloatingPointState(s.state);
    {
      const IeeeArithmetic ieee;
      inside = Compute();
      {
        const IeeeArithmetic again;
        nested = Compute();
      }
      after = Compute();
      between = ReadFloatingPointState();
    }
    at_end = ReadFloatingPointState();
    WriteFloatingPointState(plain);
    CHECK(IsIeee(between));
    CHECK(inside == right);
    CHECK(nested == right);
    CHECK(after == right);
    CHECK(host::SameState(at_end, s.state));
  }
}

TEST_CASE("The states of hosts change arithmetic outside of IeeeArithmetic", "[base]") {
  const FloatingPointState plain = ReadFloatingPointState();
  const Probe right = Compute();
  for (const host::NamedState& s : host::HostStates()) {
    if (s.name == "exceptions signal") continue;
    WriteFloatingPointState(s.state);
    const Probe got = Compute();
    WriteFloatingPointState(plain);
    CAPTURE(s.name);
    CHECK_FALSE(got == right);
  }
}

TEST_CASE("IeeeArithmetic restores the state when an exception leaves its scope", "[base]") {
  const FloatingPointState plain = ReadFloatingPointState();
  for (const host::NamedState& s : host::HostStates()) {
    FloatingPointState at_end;
    WriteFloatingPointState(s.state);
    try {
      const IeeeArithmetic ieee;
      throw std::runtime_error("leaves");
    } catch (const std::runtime_error&) {
      at_end = ReadFloatingPointState();
    }
    WriteFloatingPointState(plain);
    CHECK(host::SameState(at_end, s.state));
  }
}

TEST_CASE("Every part of a parallel loop has IEEE arithmetic, whoever started its threads",
          "[base]") {
  const FloatingPointState plain = ReadFloatingPointState();
  const Probe right = Compute();
  const int before = Threads();
  for (const host::NamedState& s : host::HostStates()) {
    for (const int threads : {1, 2, 5}) {  // another number each time: the threads are new
      SetThreads(threads);
      std::vector<Probe> parts(200);
      WriteFloatingPointState(s.state);
      ParallelFor(parts.size(), [&parts](std::size_t i) { parts[i] = Compute(); });
      const FloatingPointState after = ReadFloatingPointState();
      WriteFloatingPointState(plain);
      CAPTURE(s.name, threads);
      CHECK(parts == std::vector<Probe>(200, right));
      CHECK(host::SameState(after, s.state));
    }
  }
  SetThreads(before);
}

}  // namespace
}  // namespace fp4lab
