// Reductions of floats in one fixed order, whatever the SIMD width: the plain definition.
// Kernels use reduce-inl.h, which gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>

namespace fp4lab {

// Every reduction runs in 16 virtual lanes: element i belongs to lane i % 16, and a lane takes its
// elements in ascending order. Then lane i (i < w) takes in lane i + w, for w = 8, 4, 2, 1.
inline constexpr std::size_t kReductionLanes = 16;

// Combine(lane, x) for each element; every lane starts with `start`.
template <class Combine>
constexpr float ReduceInOrder(std::span<const float> x, float start, Combine combine) {
  std::array<float, kReductionLanes> lanes;
  lanes.fill(start);
  for (std::size_t i = 0; i < x.size(); ++i) {
    lanes[i % kReductionLanes] = combine(lanes[i % kReductionLanes], x[i]);
  }
  for (std::size_t width = kReductionLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] = combine(lanes[i], lanes[i + width]);
  }
  return lanes[0];
}

// Sum; +0 for no elements. Every + rounds to nearest even.
constexpr float SumInOrder(std::span<const float> x) {
  return ReduceInOrder(x, 0.0f, [](float lane, float v) { return lane + v; });
}

// Maximum; -infinity for no elements. NaN is never greater than anything, so it is passed over.
constexpr float MaxInOrder(std::span<const float> x) {
  return ReduceInOrder(x, -std::numeric_limits<float>::infinity(),
                       [](float lane, float v) { return v > lane ? v : lane; });
}

}  // namespace fp4lab
