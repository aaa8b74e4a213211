// A few bytes from the first process to all others, over TCP: how a data-parallel group begins.
#pragma once

#include <cstddef>
#include <span>

#include "fp4lab/train/world.h"

namespace fp4lab::gpu {

// Rank 0 serves `bytes` to world.size - 1 others, which overwrite theirs. Error after `seconds`
// without the others, or without rank 0.
void ShareBytes(const World& world, std::span<std::byte> bytes, double seconds);

}  // namespace fp4lab::gpu
