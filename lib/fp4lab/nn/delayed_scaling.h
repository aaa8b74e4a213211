// Delayed scaling: an operand is quantized with the amax of earlier steps, so that no pass over the
// tensor has to come first. Elements beyond that amax saturate.
//
// Source: Transformer Engine, common/recipe/__init__.py (DelayedScaling) and
// common/recipe/delayed_scaling.cu, with margin 0. constexpr and free of macros: host and device
// share it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fp4lab {

struct DelayedScaling {
  std::uint16_t length = 0;  // amax_history_len: steps that count, the present one included; 0: off
  bool most_recent = false;  // amax_compute_algo: the last step's amax, not the history's maximum

  friend constexpr bool operator==(const DelayedScaling&, const DelayedScaling&) = default;
};

// The history of one operand, all 0 at first: numbers[0] is the amax that the operand is quantized
// with (0 stands for a scale of 1), numbers[1] the largest amax of this step so far, numbers[2] to
// numbers[length] the amaxes of the steps before, the latest first.
constexpr std::size_t AmaxHistoryFloats(int length) { return 1 + static_cast<std::size_t>(length); }

// The amax for the next step: the history's if it is positive and finite, else `now`, the present
// one.
constexpr float NextAmax(const DelayedScaling& scaling, float now, float newest, float largest) {
  const float amax = scaling.most_recent ? newest : largest;
  return amax > 0.0f && amax <= 0x1.fffffep+127f ? amax : now;
}

// Ends a step: sets the amax for the next step and moves the history on by one.
constexpr void AdvanceAmaxHistory(const DelayedScaling& scaling, float* numbers) {
  if (scaling.length == 0) return;
  float largest = 0.0f;
  for (std::size_t i = 1; i <= scaling.length; ++i) {
    if (numbers[i] > largest) largest = numbers[i];
  }
  numbers[0] = NextAmax(scaling, numbers[0], numbers[1], largest);
  for (std::size_t i = scaling.length; i > 1; --i) numbers[i] = numbers[i - 1];
  numbers[1] = 0.0f;
}

// The histories of a linear's operands, in the order of LinearOperand (linear_recipe.h), `stride`
// floats each.
struct AmaxHistories {
  float* numbers = nullptr;
  std::size_t stride = 0;
  bool records = false;  // the call is part of a step; else activations record no amax

  constexpr float* Of(std::size_t operand) const { return numbers + operand * stride; }
};

}  // namespace fp4lab
