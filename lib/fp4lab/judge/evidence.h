// How much of what a kernel wrote stands behind a cause, and whether a cause is forced by it.
#pragma once

#include <cstddef>
#include <span>

#include "fp4lab/judge/match.h"

namespace fp4lab {

// A cause is stated as the cause only where this many independent differences speak for each of its
// parts. An error that the table does not know, but that moves bytes in the same places four times
// out of five, agrees on 32 of them once in a thousand.
inline constexpr std::size_t kEnoughDifferences = 32;
// ... and where every other single cause fails on this many at least.
inline constexpr std::size_t kClearMargin = 4;
// What a stored number of level 2 is worth: with nothing else that differs, too little.
inline constexpr std::size_t kNumberWeight = 16;

// Independent differences between the bytes and those of a plan, counted up to `enough`. One scale
// counts once, with the codes that follow from it; a code under a right scale counts for itself;
// equal elements, and blocks of equal elements, count once; a stored number of level 2 counts
// kNumberWeight. With `last_place`, for bytes that an error in the last place explains as well, all
// blocks with one scale count once: they share the factor that such an error moves.
std::size_t IndependentDifferences(const KernelPlan& plan, ByteMatcher& matcher,
                                   std::size_t enough = kEnoughDifferences,
                                   bool last_place = false);

// How many blocks the plan leaves different, counted up to `enough`. Blocks of `first`, of the grid
// that the asked kernel has, are looked at before the others.
std::size_t BlocksLeft(const KernelPlan& plan, ByteMatcher& matcher, std::size_t enough,
                       std::span<const ByteMatcher::Block> first);

// Whether `whole` changes all that `part` changes in the plan `plain`, and in the same way.
bool Contains(const KernelPlan& whole, const KernelPlan& part, const KernelPlan& plain);

}  // namespace fp4lab
