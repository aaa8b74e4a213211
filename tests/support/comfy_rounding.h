// ComfyUI's stochastic rounding to E2M1, written from its formula without fp4lab's tables.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fp4lab {

// u in [0, 1); `width` is 1.25 in ComfyUI.
inline std::uint8_t ComfyStochasticCode(float v, float u, float width = 1.25f) {
  const auto exponent = [](float a, float offset) {
    return a == 0 ? 0.0f : std::clamp(std::floor(std::log2(a) + offset), 0.0f, 3.0f);
  };
  const float noise = (u - 0.5f) * std::exp2(exponent(std::fabs(v), 1.0f) - 2.0f) * width;
  const float a = std::fabs(v + noise);
  const float e = exponent(a, 1.1925f);
  const float fraction = e > 0 ? (a / std::exp2(e - 1.0f) - 1.0f) * 2.0f : a * 2.0f;
  const auto mantissa = static_cast<std::uint8_t>(std::nearbyint(fraction));
  return static_cast<std::uint8_t>((std::signbit(v) ? 8 : 0) | static_cast<int>(e) << 1 | mantissa);
}

}  // namespace fp4lab
