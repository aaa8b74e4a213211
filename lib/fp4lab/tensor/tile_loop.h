// What the GEMMs share in cutting a product into pieces and running them.
#pragma once

#include <cstddef>

#include "fp4lab/base/parallel.h"

namespace fp4lab {

constexpr std::size_t DivideUp(std::size_t x, std::size_t y) { return (x + y - 1) / y; }

// body(i) for i < count: over the threads, or one after the other in this one.
template <class Body>
void ForEachPiece(bool parallel, std::size_t count, const Body& body) {
  if (parallel) return ParallelFor(count, body);
  for (std::size_t i = 0; i < count; ++i) body(i);
}

}  // namespace fp4lab
