// The random Hadamard transform (RHT) along the reduction axis of a GEMM.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "fp4lab/base/matrix.h"
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
// negated. Those from the size of the transform on are not looked at.
struct HadamardSigns {
  std::array<std::uint32_t, 4> words{};

  constexpr bool Negates(int k) const {
    return (words[static_cast<std::size_t>(k) / 32] >> (k % 32) & 1u) != 0;
  }
  friend constexpr bool operator==(const HadamardSigns&, const HadamardSigns&) = default;
};

constexpr HadamardSigns NoHadamardSigns() { return {}; }
// Those of a mask, element 0 its lowest bit; from element 32 on, none.
constexpr HadamardSigns MaskHadamardSigns(std::uint32_t mask) { return {{mask, 0, 0, 0}}; }
// Transformer Engine's vector of 16, again and again; groups below 16 have its first elements.
constexpr HadamardSigns TeHadamardSigns() {
  return {{kTeSignMask32, kTeSignMask32, kTeSignMask32, kTeSignMask32}};
}
// A bit an element: the 128 bits of stream.Block(0), its lowest word first. "One vector, seeded
// once" is a stream of one step and tensor for every call; "fresh each step" has the step in it.
// The stream's tensor should be one that no rounding draws from.
constexpr HadamardSigns RandomHadamardSigns(const RandomStream& stream) {
  return {stream.Block(0)};
}

// Groups of `size` elements, one of kHadamardSizes (a caller may mean "none" by 0; the functions
// refuse it), and their signs.
struct HadamardTransform {
  int size = 0;
  HadamardSigns signs;

  friend constexpr bool operator==(const HadamardTransform&, const HadamardTransform&) = default;
};

// log2(size) for a size of kHadamardSizes.
constexpr int HadamardStages(int size) { return std::bit_width(static_cast<unsigned>(size)) - 1; }
// 4, 16, 64: size^(-1/2) is a power of two.
constexpr bool HasExactHadamardFactor(int size) { return HadamardStages(size) % 2 == 0; }
// fl(size^(-1/2)) in binary32.
constexpr float HadamardFactor(int size) {
  const float power = 1.0f / static_cast<float>(1 << (HadamardStages(size) / 2));
  return HasExactHadamardFactor(size) ? power : 0x1.6a09e6p-1f * power;
}
inline constexpr float kInverseSqrt32 = HadamardFactor(32);
static_assert(kInverseSqrt32 == 0x1.6a09e6p-3f);

// For every group of n = `transform.size` consecutive elements of a row, cols a multiple of n:
//   y_j = bf16( fp32( n^(-1/2) * sum_k s_k * (-1)^popcount(j & k) * x_k ) )
// The sum is exact before the two roundings (RNE). x must hold BF16 values. For sizes 2, 8, 32 and
// 128 the factor is the binary32 number fl(1/sqrt(n)), multiplied (a rounding more) after the
// rounding of the sum to binary32. A sum of zero is +0. NaN and Inf propagate as in any sum, NaN as
// 0x7FC00000. out may be x.
// Columns: pass Transposed() views (fastest where x and out lie in memory the same way).
void RandomHadamard(MatrixView<const float> x, const HadamardTransform& transform,
                    MatrixView<float> out);

// The same by a mask of signs; size 16 or 32.
void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out);
// What the functions that take a mask make of it: Expects size 16 or 32.
HadamardTransform MaskTransform(int size, std::uint32_t sign_mask);

// The preconditions above, as Expects.
void CheckHadamard(MatrixView<const float> x, int size, MatrixView<const float> out);

namespace reference {
void RandomHadamard(MatrixView<const float> x, const HadamardTransform& transform,
                    MatrixView<float> out);
void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out);
}  // namespace reference

}  // namespace fp4lab
