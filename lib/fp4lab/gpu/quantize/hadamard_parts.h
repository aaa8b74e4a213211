// Bounds for the kernels of Hadamard transforms (hadamard_chunks.cuh): tensor cores and additions
// in binary32 sum `size` BF16 numbers with signs, in parts by magnitude. Tests check the bounds
// with the models of tensor cores (tensor/tensor_core.h).
#pragma once

#include <cstdint>

#include "fp4lab/transform/hadamard_transform.h"

namespace fp4lab::gpu {

// Sums of numbers of so many binades are exact: the numbers are multiples of 2^-24 of the largest
// possible sum.
constexpr std::uint32_t BinadesOfPart(int size) {
  return 17 - static_cast<std::uint32_t>(HadamardStages(size));
}

// Where the numbers of the last of `parts` parts have any binades, sums err by less than 2^(h - n),
// n the result, if the largest of all numbers is at least 2^h and below 2^(h + 1).
//
// Numbers of the last part are below 2^e, e = h + 1 - (parts - 1) BinadesOfPart. A product
// m16n8k16 errs by less than 2^(e - 17): it cuts 34 numbers, at most, below 2^(e - 24), and itself
// twice below 2^(e - 20). The 2^(g - 4) products of 2^g numbers and the rounding of at most three
// stages of their sums come to less than 2^(e + g - 20).
constexpr std::uint32_t BinadesAboveError(int size, std::uint32_t parts) {
  return 19 + (parts - 1) * BinadesOfPart(size) - static_cast<std::uint32_t>(HadamardStages(size));
}

}  // namespace fp4lab::gpu
