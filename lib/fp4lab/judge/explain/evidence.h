// The evidence for a cause in a kernel's bytes.
#pragma once

#include <cstddef>
#include <span>

#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {

// explain states a cause as certain only if this many independent differences support each of its
// parts. An error that the table lacks, but that changes bytes in the same places four times out of
// five, agrees on 32 of them once in a thousand.
inline constexpr std::size_t kEnoughDifferences = 32;
// A cause is certain only if every other single cause leaves at least this many blocks different.
inline constexpr std::size_t kClearMargin = 4;
// The weight of a stored tensor scale in differences: alone it is not enough evidence.
inline constexpr std::size_t kNumberWeight = 16;

// The number of independent differences between the bytes and those of a plan, counted up to
// `enough`. A scale counts once, together with the codes that follow from it. A code under a right
// scale counts by itself. Equal elements, and blocks of equal elements, count once. A stored
// tensor scale counts kNumberWeight. With `last_place`, for bytes that an error in the last place
// explains as well, all blocks with one scale count once, because they share the factor that such
// an error changes.
std::size_t IndependentDifferences(const KernelPlan& plan, ByteMatcher& matcher,
                                   std::size_t enough = kEnoughDifferences,
                                   bool last_place = false);

// The number of blocks that the plan leaves different, or that it places beyond the bytes, counted
// up to `enough`. Blocks of `first`,
// indices into the grid of the asked kernel, are compared before the others.
std::size_t BlocksLeft(const KernelPlan& plan, ByteMatcher& matcher, std::size_t enough,
                       std::span<const ByteMatcher::Block> first);

// Whether `whole` makes all changes that `part` makes to the plan `plain`, to the same values.
bool Contains(const KernelPlan& whole, const KernelPlan& part, const KernelPlan& plain);

}  // namespace fp4lab
