// Sends a few bytes from the first process to all others over TCP, which begins a data-parallel
// group.
#pragma once

#include <cstddef>
#include <span>

#include "fp4lab/train/world.h"

namespace fp4lab::gpu {

// Rank 0 sends `bytes` to the world.size - 1 other processes, which overwrite their `bytes`. Throws
// Error if the other processes, or rank 0, do not appear within `seconds`.
void ShareBytes(const World& world, std::span<std::byte> bytes, double seconds);

}  // namespace fp4lab::gpu
