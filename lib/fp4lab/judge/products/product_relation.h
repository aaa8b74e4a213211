// How a wrong product follows from the right one, where no kernel of the table gives it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fp4lab/judge/products/gemm.h"

namespace fp4lab {

struct ProductRelation {
  std::string name, what;     // as of a GemmCause
  std::size_t different = 0;  // elements that differ from the accumulation's answer under it
};

// Relations under which every element lies within the bound of the claim:
//   "output-times"           d = k right, for k = -1, powers of two, and constants of NVFP4
//   "output-relu"            d = max(right, 0)
//   "output-magnitude"       d = |right|
//   "output-rows-moved"      row m of d is another row of the right product; "output-columns-moved"
//   "output-of-one-number"   all elements of d are one number
// Rows are looked for in products of at most 1024 rows, columns in those of 1024 columns.
std::vector<ProductRelation> FindProductRelations(const GemmClaim& claim,
                                                  const Accumulation& under);

}  // namespace fp4lab
