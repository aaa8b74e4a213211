// Operands in the form that the kernels of TensorCoreGemm read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/aligned.h"
#include "fp4lab/tensor/mma_operand.h"
#include "fp4lab/tensor/tensor_core.h"

namespace fp4lab {

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

// Rows of an operand in bundles of `width`: item i of row r lies at
// (r / width * items + i) * width + r % width. a has width 1, b kMmaPanel.
inline constexpr std::size_t kMmaPanel = 32;

struct Bundles {
  std::size_t rows, width;
  std::size_t Bundle(std::size_t row) const { return row / width; }
  std::size_t At(std::size_t row, std::size_t items, std::size_t item) const {
    return (row / width * items + item) * width + row % width;
  }
  std::size_t Size(std::size_t items) const { return (rows + width - 1) / width * width * items; }
};

// kChain, kFp8InFp16, kScaledChain: K in steps of `step` elements (zeros fill the last).
// An element is values * 2^shift of its step, its raw exponent exponents + shift.
struct ChainSide {
  Bundles bundles;
  std::size_t step, steps;
  AlignedVector<float> values = {};            // steps * step items a row; at most 2 - 2^-10
  AlignedVector<std::int16_t> exponents = {};  // as values; at most 0, kZeroExponent for a zero
  AlignedVector<std::int32_t> shifts = {};     // steps items a row; a block scale is part of it
  // The lowest one bit of a step's values, as an exponent relative to shift.
  AlignedVector<std::int32_t> lows = {};
  std::vector<std::uint8_t> is_slow = {};  // by row: not for the kernel
};
inline constexpr std::int16_t kZeroExponent = -8000;
inline constexpr int kMostExponentsApart = 40;

// kScaledGroups: K in steps of 64 elements, groups of 16. Elements are integers, so that a group's
// dot product is one: a's as bytes 12 + 2 * element (as in tensor/fp4_gemm.h), b's as signed bytes
// 2 * element, whose sums start where a's 12 counts for nothing.
enum class GroupRole : std::uint8_t { kA, kB };

struct GroupSide {
  Bundles bundles;
  std::size_t steps;
  // Quads of k: byte k % 4 of item k / 4 of a row.
  AlignedVector<std::uint8_t> codes = {};
  AlignedVector<std::int32_t> starts = {};  // b: -12 * the sum of the group's codes: 4 items a step
  AlignedVector<double> factors = {};       // scale / 2: 4
  AlignedVector<double> powers = {};  // 2^(raw exponent of the scale), 0 for the scale zero: 4
  AlignedVector<std::uint64_t> masks = {};  // bit k: element k is not zero: 4
  // Of a step's scales that are not zero: the largest raw exponent and the exponent of the lowest
  // bit that an element times its scale can have; -kNoGroup and kNoGroup if there are none.
  AlignedVector<std::int32_t> highs = {}, lows = {};
  std::vector<std::uint8_t> is_slow = {};
};
inline constexpr std::size_t kMmaGroup = 16, kGroupsAStep = 4;
inline constexpr std::int32_t kNoGroup = 100000;

// Whether kernels exist for these operands; the operands fit the model.
bool HasKernel(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b);

ChainSide PackChain(const TensorCoreModel& model, const MmaOperand& x, std::size_t width);
// The width is 1 for a, kMmaPanel for b.
GroupSide PackGroups(const MmaOperand& x, GroupRole role);

}  // namespace fp4lab
