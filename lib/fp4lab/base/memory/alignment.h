// Where in memory something begins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fp4lab {

// Whether `place` is a multiple of `bytes`; nullptr is. A GPU loads and stores up to 16 bytes at
// once, at such places only.
inline bool IsAligned(const void* place, std::size_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(place) % bytes == 0;
}

}  // namespace fp4lab
