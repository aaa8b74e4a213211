// Operands packed for the kernels of TensorCoreGemm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/tensor/mma/mma_operand.h"
#include "fp4lab/tensor/tensor_core.h"

namespace fp4lab {

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

// The layout of packed operands: rows in bundles of `width`. Item i of row r lies at
//   (r / width * items + i) * width + r % width
// a has width 1, b has width kMmaPanel.
inline constexpr std::size_t kMmaPanel = 32;

struct Bundles {
  std::size_t rows, width;
  std::size_t At(std::size_t row, std::size_t items, std::size_t item) const {
    return (row / width * items + item) * width + row % width;
  }
  std::size_t Size(std::size_t items) const { return RoundUp(rows, width) * items; }
};

// An operand of kChain, kFp8InFp16 or kScaledChain: K in steps of `step` elements (zeros fill the
// last step). With the shift of its step, an element is values * 2^shift, and its raw exponent is
// exponents + shift.
struct ChainSide {
  Bundles bundles;
  std::size_t step, steps;
  AlignedVector<float> values = {};            // steps * step items a row; at most 2 - 2^-10
  AlignedVector<std::int16_t> exponents = {};  // of values; at most 0, kZeroExponent for a zero
  AlignedVector<std::int32_t> shifts = {};     // steps items a row; a block scale is part of it
  // The lowest one bit of a step's values, as an exponent relative to shift.
  AlignedVector<std::int32_t> lows = {};
  std::vector<std::uint8_t> is_slow = {};  // by row: 1 if the kernels cannot compute its outputs
};
inline constexpr std::int16_t kZeroExponent = -8000;
inline constexpr int kMostExponentsApart = 40;

// The role of an operand of kScaledGroups: K in steps of 64 elements, groups of 16. Elements are
// packed as integers, so that a group's dot product is an integer, too: elements of a as bytes
// 12 + 2 * element (as in tensor/fp4_gemm.h), elements of b as signed bytes 2 * element. The sums
// start at b's `starts`, which cancels a's offset of 12.
enum class GroupRole : std::uint8_t { kA, kB };

struct GroupSide {
  Bundles bundles;
  std::size_t steps;
  // Quads of k: byte k % 4 of item k / 4 of a row.
  AlignedVector<std::uint8_t> codes = {};
  AlignedVector<std::int32_t> starts = {};  // b: -12 * the sum of a group's codes; 4 items a step
  AlignedVector<double> factors = {};       // scale / 2; 4 items a step
  // 2^(raw exponent of the scale), 0 for the scale zero; 4 items a step.
  AlignedVector<double> powers = {};
  AlignedVector<std::uint64_t> masks = {};  // bit k: element k is not zero; 4 items a step
  // The largest raw exponent of a step's non-zero scales, and the exponent of the lowest bit that
  // an element times such a scale can have; -kNoGroup and kNoGroup if all scales are zero.
  AlignedVector<std::int32_t> highs = {}, lows = {};
  std::vector<std::uint8_t> is_slow = {};
};
inline constexpr std::size_t kMmaGroup = 16, kGroupsAStep = 4;
inline constexpr std::int32_t kNoGroup = 100000;

// Whether kernels exist for these operands, which must satisfy ExpectProduct.
bool HasKernel(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b);

// Packs an operand of kChain, kFp8InFp16 or kScaledChain in bundles of `width`.
ChainSide PackChain(const TensorCoreModel& model, const MmaOperand& x, std::size_t width);
// Packs an operand of kScaledGroups in bundles of width 1 for a, kMmaPanel for b.
GroupSide PackGroups(const MmaOperand& x, GroupRole role);

}  // namespace fp4lab
