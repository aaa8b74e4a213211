// The dialects of the tuned kernels. Each tuned kernel is written for one formula; block/ has
// kernels for all of these dialects, cuda/ and gpu/ for some of them.
#pragma once

#include <string_view>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// Why the tuned kernels do not compute the dialect, or nothing if they do, with the bytes of
// quantize/quantize.h: the formulas of DialectUnder in blocks of (1 to 128) x (8 to 128, a multiple
// of 8), NVFP4's only with E2M1 elements; rounding to nearest even, toward zero, or stochastically
// with 16 or 32 random bits. The lists of implementations ask (quantize/implementation.h,
// cuda/quantize/implementation.h); their callers ask the lists.
std::string_view WhyNotTuned(const Dialect& dialect);

}  // namespace fp4lab
