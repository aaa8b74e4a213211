// Quantizes a matrix directly to its stored bytes, without an intermediate array of one code a
// byte.
#pragma once

#include "fp4lab/base/matrix.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// The same as Store(dialect, QuantizeAs(dialect, x, options), layout), but by bands of rows, so
// that it needs only some MiB besides x and the result if the layout is not transposed. The same
// bytes for any number of threads.
StoredMatrix QuantizeStored(const Dialect& dialect, MatrixView<const float> x,
                            const DialectOptions& options, const StorageLayout& layout);

}  // namespace fp4lab
