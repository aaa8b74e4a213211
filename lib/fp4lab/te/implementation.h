// The ways to serve a call of TeQuantize, as a table of the row type of
// fp4lab/quantize/implementation.h: vector kernels, and the reference.
#pragma once

#include <span>

#include "fp4lab/quantize/implementation.h"
#include "fp4lab/te/quantize.h"

namespace fp4lab {

// A call that CheckTeQuantization accepts. The arguments must outlive the request.
struct TeRequest {
  const TeMatrix& x;
  const TeQuantization& call;
};

// tiles, reference: from the fastest to the definition, which can make every request.
std::span<const Implementation<TeRequest>> TeImplementations();

}  // namespace fp4lab
