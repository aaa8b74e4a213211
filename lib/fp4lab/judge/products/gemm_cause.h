// Causes of a wrong product: ways in which a kernel reads or sums its operands, tried one by one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/judge/products/gemm.h"

namespace fp4lab {

struct GemmCause {
  std::string name;
  std::string what;           // with the kernel as subject
  std::size_t different = 0;  // elements that differ from the accumulation's answer under the cause
  std::size_t elements = 0;   // that it explains, where others have another cause; 0: all
  bool equal() const { return different == 0; }
};

// The causes under which every element of a product that lies outside of its bound lies within it:
// readings of scale bytes, then rows of the table. If some of them give all elements bit for bit,
// only these are returned. Without any: readings that explain the elements between them; without
// these, relations to the right product (product_relation.h).
std::vector<GemmCause> FindGemmCauses(const GemmClaim& claim, const Accumulation& under);

}  // namespace fp4lab
