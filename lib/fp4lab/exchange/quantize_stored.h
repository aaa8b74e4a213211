// A matrix quantized into the bytes that are stored, without its codes one a byte in between.
#pragma once

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/exchange/stored.h"

namespace fp4lab {

// Store(dialect, QuantizeAs(dialect, x, options), layout), band of rows by band of rows: besides
// x and the result it takes some MiB, where the layout is not transposed. The same bytes for any
// number of threads.
StoredMatrix QuantizeStored(const Dialect& dialect, MatrixView<const float> x,
                            const DialectOptions& options, const StorageLayout& layout);

}  // namespace fp4lab
