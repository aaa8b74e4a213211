// Stochastic roundings that add noise to v and then round to nearest: the codes that v can get, and
// their probabilities. They reach codes beyond the two neighbours of v.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fp4lab/dialect/element_roundings.h"

namespace fp4lab {

// The magnitudes of the codes of E2M1 that one value can get. The sign of the code is the value's.
struct NoisyCodes {
  std::array<double, 8> probability = {};  // by magnitude code; their sum is 1
  std::array<bool, 8> reached = {};        // with the rounding errors of the addition
};

// A value of v + noise rounds to `code` from `begin` on, up to the begin of the next one.
struct NoisySegment {
  double begin;
  std::uint8_t code;
};
// EncodeComfyCentre on [0, kComfyLargest): both 2 and 6 stand in two places.
inline constexpr std::array kComfySegments = {
    NoisySegment{0.0, 0},  NoisySegment{0.25, 1},
    NoisySegment{0.75, 2}, NoisySegment{1.25, 3},
    NoisySegment{1.75, 2}, NoisySegment{static_cast<double>(kComfyThresholds[1]), 4},
    NoisySegment{2.5, 5},  NoisySegment{3.5, 6},
    NoisySegment{5.0, 7},  NoisySegment{7.0, 6},
    NoisySegment{9.0, 7}};
inline constexpr double kComfyLargest = 11.0;

// Half of the width of the noise of ComfyUI's stochastic_float_to_fp4_e2m1:
// (u - 1/2) * 2^(e - 2) * 1.25 with e = floor(fl(fl(log2 |v|) + 1)) from 0 to 3, u in [0, 1).
constexpr double ComfyNoise(float v) {
  const float a = Magnitude(v);
  // The largest float below 4 rounds up to it.
  const double width = a >= 0x1.fffffep1f ? 2.0 : a >= 2.0f ? 1.0 : a >= 1.0f ? 0.5 : 0.25;
  return 0.625 * width;
}

constexpr NoisyCodes ComfyCodes(float v) {
  NoisyCodes codes;
  const double a = v == v ? static_cast<double>(Magnitude(v)) : 0.0;
  const double noise = ComfyNoise(v);
  if (!(a + noise < kComfyLargest)) {  // beyond the range that scales leave
    const std::uint32_t code = EncodeComfyCentre(v) & 7u;
    codes.probability[code] = 1.0;
    codes.reached[code] = true;
    return codes;
  }
  constexpr double kSlack = 0x1p-21;  // of the roundings of noise and sum, below 16
  const auto overlap = [](double low, double high, double begin, double end) {
    const double from = low > begin ? low : begin, to = high < end ? high : end;
    return to - from;
  };
  for (std::size_t i = 0; i < kComfySegments.size(); ++i) {
    const auto [begin, code] = kComfySegments[i];
    const double end =
        i + 1 < kComfySegments.size() ? kComfySegments[i + 1].begin : kComfyLargest + 1;
    // |v + noise|: what falls below 0 is folded.
    for (const double part : {overlap(a - noise, a + noise, begin, end),
                              overlap(-(a + noise), -(a - noise), begin, end)}) {
      if (part > 0) codes.probability[code] += part / (2 * noise);
      if (part > -kSlack) codes.reached[code] = true;
    }
  }
  return codes;
}

// A row of the table of dialects whose rounding is what noise of 0 gives.
struct AddedNoise {
  std::string_view dialect;
  std::string_view name;  // in texts
  std::string_view text;  // the formula
  NoisyCodes (*codes)(float v);
};
inline constexpr std::array kAddedNoises = {
    AddedNoise{"nvfp4.comfyui.stochastic-centre", "ComfyUI's stochastic rounding",
               "v + (u - 1/2) * 1.25 * 2^(e - 2), e = floor(log2|v| + 1) from 0 to 3", ComfyCodes},
};
// The noise of a row of the table; nullptr: it adds none.
constexpr const AddedNoise* FindAddedNoise(std::string_view dialect) {
  for (const AddedNoise& row : kAddedNoises) {
    if (row.dialect == dialect) return &row;
  }
  return nullptr;
}

}  // namespace fp4lab
