// The random Hadamard transform as data: size, signs and factor.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "fp4lab/base/random.h"

namespace fp4lab {

inline constexpr std::array kHadamardSizes = {2, 4, 8, 16, 32, 64, 128};
inline constexpr int kMaxHadamardSize = 128;

// Transformer Engine's fixed sign vector + + + - + - - - - - - + - + - -, as a mask: bit i set
// means that element i of every group of 16 is negated (get_wgrad_sign_vector; also JAX).
inline constexpr std::uint32_t kTeSignMask16 = 0xD7E8;
// For groups of 32: the same vector twice.
inline constexpr std::uint32_t kTeSignMask32 = 0xD7E8D7E8;

// The signs of the elements of every group: bit k % 32 of words[k / 32] set means that element k is
// negated. Signs of elements beyond the size of the transform are ignored.
struct HadamardSigns {
  std::array<std::uint32_t, 4> words{};

  constexpr bool Negates(int k) const {
    return (words[static_cast<std::size_t>(k) / 32] >> (k % 32) & 1u) != 0;
  }
  friend constexpr bool operator==(const HadamardSigns&, const HadamardSigns&) = default;
};

constexpr HadamardSigns NoHadamardSigns() { return {}; }
// The signs of a mask, element 0 in the lowest bit; elements from 32 on are not negated.
constexpr HadamardSigns MaskHadamardSigns(std::uint32_t mask) { return {{mask, 0, 0, 0}}; }
// Transformer Engine's vector of 16 signs, repeated; groups shorter than 16 use its first signs.
constexpr HadamardSigns TeHadamardSigns() {
  return {{kTeSignMask32, kTeSignMask32, kTeSignMask32, kTeSignMask32}};
}
// Random signs, a bit an element: the 128 bits of stream.Block(0), lowest word first. For one
// vector, seeded once, use a stream of the same step and tensor in every call; for fresh signs in
// each step, put the step into the stream. The stream's tensor should be one that no rounding draws
// from.
constexpr HadamardSigns RandomHadamardSigns(const RandomStream& stream) {
  return {stream.Block(0)};
}

// The size of the groups, one of kHadamardSizes, and their signs. A caller may use size 0 for "no
// transform"; RandomHadamard refuses it.
struct HadamardTransform {
  int size = 0;
  HadamardSigns signs;

  friend constexpr bool operator==(const HadamardTransform&, const HadamardTransform&) = default;
};

// log2(size) for a size of kHadamardSizes.
constexpr int HadamardStages(int size) { return std::bit_width(static_cast<unsigned>(size)) - 1; }
// Whether size^(-1/2) is a power of two: sizes 4, 16 and 64.
constexpr bool HasExactHadamardFactor(int size) { return HadamardStages(size) % 2 == 0; }
// fl(size^(-1/2)) in binary32.
constexpr float HadamardFactor(int size) {
  const float power = 1.0f / static_cast<float>(1 << (HadamardStages(size) / 2));
  return HasExactHadamardFactor(size) ? power : 0x1.6a09e6p-1f * power;
}
inline constexpr float kInverseSqrt32 = HadamardFactor(32);
static_assert(kInverseSqrt32 == 0x1.6a09e6p-3f);

}  // namespace fp4lab
