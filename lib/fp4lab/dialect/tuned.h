// Which dialects the kernels of block/ and gpu/ that are tuned to one formula compute.
#pragma once

#include <optional>

#include "fp4lab/block/block_format.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

struct TunedQuantizer {
  BlockFormat format;
  Rounding rounding = Rounding::kNearestEven;
  int random_bits = 16;  // for kStochastic
};

// nullopt: none is. The same bytes either way.
std::optional<TunedQuantizer> TunedFor(const Dialect& dialect);

// The formulas of a block format, rounded to nearest even, under no name.
Dialect FormulasOf(const BlockFormat& format);

// The row of the table of dialects that has these formulas; where none has, FormulasOf.
Dialect DialectOf(const BlockFormat& format);

}  // namespace fp4lab
