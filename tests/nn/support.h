// Inputs for the tests of nn, and the check that a kernel gives the same bits everywhere.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd/simd.h"
#include "tests/support/catch.h"

namespace fp4lab {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr double kRoundoff = 0x1p-24;  // of binary32

// Standard normal values, different for each seed.
inline Doubles RandomValues(std::size_t count, std::uint64_t seed) {
  const RandomStream stream{.seed = seed};
  Doubles values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(UniformOpen(stream.Bits32(2 * i))));
    const double angle = 2 * std::numbers::pi * UniformOpen(stream.Bits32(2 * i + 1));
    values[i] = radius * std::cos(angle);
  }
  return values;
}

inline Floats RandomFloats(std::size_t count, std::uint64_t seed) {
  const Doubles values = RandomValues(count, seed);
  return Floats(values.begin(), values.end());
}

inline Doubles ToDouble(const Floats& x) { return Doubles(x.begin(), x.end()); }

template <class T>
MatrixView<T> AsMatrix(std::vector<T>& x, std::size_t rows) {
  return {x.data(), rows, x.size() / rows};
}
template <class T>
MatrixView<const T> AsMatrix(const std::vector<T>& x, std::size_t rows) {
  return {x.data(), rows, x.size() / rows};
}

inline void Append(Floats& to, const Floats& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Runs `run`, which returns every output, on each SIMD target and with 1, 2 and 3 threads, and
// checks that all give the same bits. Returns them.
template <class Run>
Floats SameEverywhere(Run run) {
  const int threads_before = Threads();
  const Floats expected = run();
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    for (const int threads : {1, 2, 3}) {
      SetThreads(threads);
      const Floats got = run();
      CAPTURE(target, threads);
      REQUIRE(got.size() == expected.size());
      std::size_t differences = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        differences +=
            std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i]);
      }
      CHECK(differences == 0);
    }
  }
  SetThreads(threads_before);
  PinSimdTarget("best");
  return expected;
}

// |got - exact| <= units * 2^-24 * (|exact| + the largest |exact|).
inline void CheckClose(std::span<const float> got, std::span<const double> exact, double units) {
  REQUIRE(got.size() == exact.size());
  double largest = 0, worst = 0;
  for (const double e : exact) largest = std::max(largest, std::abs(e));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(double{got[i]} - exact[i]);
    const double share = error / ((std::abs(exact[i]) + largest) * kRoundoff);
    worst = std::isnan(share) && error != 0 ? kInfinity : std::max(worst, error == 0 ? 0 : share);
  }
  CAPTURE(worst);
  CHECK(worst <= units);
}

inline bool AllNaN(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isnan(v); });
}
inline bool AllFinite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace fp4lab
