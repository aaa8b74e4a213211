#include "fp4lab/judge/cases/hazards.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {
namespace {

constexpr std::size_t kTile = 32;  // holds blocks of every dialect whole
constexpr int kSteps = 3;          // floats to either side of a boundary

float StepsFrom(float x, int steps) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(steps));
}

// Whether of(dialect) differs between the dialects.
template <class Of>
bool AnyDiffers(std::span<const Dialect> dialects, Of of) {
  return std::any_of(dialects.begin(), dialects.end(),
                     [&](const Dialect& d) { return of(d) != of(dialects[0]); });
}

// The byte of a block's scale, or the bits of its number.
std::uint32_t ScaleFor(const Dialect& d, float amax, float b) {
  const float t = ScaleBefore(d, b, TensorScaleOf(d, amax));
  const bool numbers = d.scale_encoding == ScaleEncoding::kBinary32;
  return numbers ? std::bit_cast<std::uint32_t>(t) : ScaleByteOf(d, b, t);
}

void AddIfHazard(std::span<const Dialect> dialects, float amax, float boundary,
                 std::vector<float>* hazards) {
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float b = StepsFrom(boundary, step);
    if (!(b > 0.0f && b <= amax)) continue;
    if (AnyDiffers(dialects, [&](const Dialect& d) { return ScaleFor(d, amax, b); })) {
      hazards->push_back(b);
    }
  }
}

// Block maxima at which the scale bytes differ: around the boundaries of E4M3 under each dialect's
// the tensor scale, and around the fractions at which E8M0 rules step up.
std::vector<float> ScaleHazards(std::span<const Dialect> dialects, float amax) {
  std::vector<float> hazards;
  for (const Dialect& d : dialects) {
    if (d.scale != FormatId::kE4M3 || d.block_rows == 0) continue;
    const float q = MaxFinite(d.element), encode = TensorScaleOf(d, amax).encode;
    for (std::uint32_t code = 1; code < 0x7E; ++code) {
      const float tie = 0.5f * (Decode(d.scale, code - 1) + Decode(d.scale, code));
      AddIfHazard(dialects, amax, tie * q / encode, &hazards);
    }
  }
  for (const float fraction : {1.0f, 1.25f, 1.5f, 1.75f, 1.875f, 1.9375f}) {
    const float top =
        fraction * std::bit_cast<float>(std::bit_cast<std::uint32_t>(amax) & 0x7F800000u);
    for (const float scale : {1.0f, 0.5f, 0x1p-4f, 0x1p-7f}) {
      AddIfHazard(dialects, amax, top * scale, &hazards);
    }
  }
  std::sort(hazards.begin(), hazards.end());
  hazards.erase(std::unique(hazards.begin(), hazards.end()), hazards.end());
  return hazards;
}

// Elements of a block with amax b on or beside boundaries of the codes: those for which the
// dialects' codes differ, or all of them if there are none; then b itself.
std::vector<float> ElementHazards(std::span<const Dialect> dialects, float amax, float b) {
  std::vector<float> hazards, others;
  for (const Dialect& d : dialects) {
    const TensorScale tensor = TensorScaleOf(d, amax);
    const BlockNumbers n = NumbersFrom(d, b, ScaleBefore(d, b, tensor), tensor);
    const Format& f = FormatOf(d.element);
    for (std::uint32_t code = 0; code < std::min(MaxFiniteCode(f), 40u); ++code) {
      const float tie = 0.5f * (Decode(f, code) + Decode(f, code + 1));
      const float x0 = HasDivisor(d.factor) ? tie * n.factor : tie / n.factor;
      for (int step = -kSteps; step <= kSteps; ++step) {
        const float x = StepsFrom(x0, step);
        if (!(x > 0.0f && x <= b)) continue;
        const bool differ = AnyDiffers(dialects, [&](const Dialect& other) {
          const TensorScale l = TensorScaleOf(other, amax);
          const BlockNumbers m = NumbersFrom(other, b, ScaleBefore(other, b, l), l);
          return QuantizedElement(other, m, l, x, 0);
        });
        (differ ? hazards : others).push_back(x);
      }
    }
  }
  if (hazards.empty()) hazards = std::move(others);
  hazards.push_back(b);
  return hazards;
}

}  // namespace

Matrix<float> HazardInput(std::span<const Dialect> dialects, float amax) {
  const IeeeArithmetic ieee;
  constexpr std::size_t kMostTiles = 24;
  std::vector<float> maxima = {amax};
  const std::vector<float> hazards = ScaleHazards(dialects, amax);
  const std::size_t count = std::min(hazards.size(), kMostTiles);
  for (std::size_t k = 0; k < count; ++k) maxima.push_back(hazards[k * hazards.size() / count]);
  Matrix<float> x(kTile * maxima.size(), kTile);
  for (std::size_t tile = 0; tile < maxima.size(); ++tile) {
    const std::vector<float> elements = ElementHazards(dialects, amax, maxima[tile]);
    for (std::size_t i = 0; i < kTile * kTile; ++i) {
      // A maximum in every 16 elements along rows and columns.
      const bool is_maximum = (i / kTile + i % kTile) % 16 == 0;
      const float value = is_maximum ? maxima[tile] : elements[i % elements.size()];
      x.values[tile * kTile * kTile + i] = i % 3 == 1 ? -value : value;
    }
  }
  return x;
}

Matrix<float> SpecialInput(float special) {
  const IeeeArithmetic ieee;
  constexpr std::size_t kKinds = 8;
  Matrix<float> x(kTile * kKinds, kTile);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::size_t kind = i / (kTile * kTile), place = i % (kTile * kTile);
    const float ordinary = (1.0f + static_cast<float>(place * 37 % 128) / 128.0f);
    float value = ordinary;
    if (kind == 1) value = 0.0f;
    if (kind == 2) value = std::ldexp(ordinary, -16 - static_cast<int>(place / kTile % 8));
    if (kind == 3) value = std::bit_cast<float>(static_cast<std::uint32_t>(place * 7919));
    if (kind == 4 && place % 3 == 0) value = 0.0f;
    if (kind == 5) value = std::ldexp(ordinary, -8 - static_cast<int>(place / kTile % 12));
    if (special != 0.0f && kind == 6 && place % 97 == 0) value = special;
    if (kind == 7) value = std::ldexp(ordinary, -100);
    x.values[i] = place % 2 == 1 ? -value : value;
  }
  return x;
}

}  // namespace fp4lab
