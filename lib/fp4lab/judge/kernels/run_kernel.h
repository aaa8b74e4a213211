// The bytes that a kernel writes, wrong kernels included.
#pragma once

#include <span>

#include "fp4lab/base/matrix.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// Returns the bytes that a kernel with some deviations writes for x; deviations that do not apply
// change nothing. The bytes have the sizes of the kernel's own layout: bytes that a deviating
// layout writes beyond them are dropped, bytes that it leaves out are 0. Only an order of bytes
// that no layout has brings its own size. `value`: the value of the deviation that takes one, in
// place of the table's.
StoredMatrix RunKernel(const Kernel& kernel, MatrixView<const float> x,
                       std::span<const Deviation* const> deviations = {},
                       const DialectOptions& options = {}, const DeviationValue* value = nullptr);

}  // namespace fp4lab
