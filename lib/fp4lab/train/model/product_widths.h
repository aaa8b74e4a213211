// The widths of the products of a recipe's GEMMs, and the time of these products.
#pragma once

#include <map>
#include <optional>

#include "fp4lab/recipe/recipe.h"
#include "fp4lab/train/config.h"

namespace fp4lab {

// The share of the multiplications in fprop, dgrad and wgrad of all blocks' linears, over the whole
// run, by the bits of the elements of the wider operand: 4, 6, 8, 16 (BF16) or 32 (binary32).
// Attention's own products, routers and the head do not count; an expert counts for the share of
// tokens that it sees if all experts see as many. The shares add up to 1; the products of hot
// channels (nn/side/side_term.h), which come on top, count by their share of these multiplications
// as well, in BF16 or binary32. Means do not count.
using ProductWidths = std::map<int, double>;
ProductWidths ProductWidthsOf(const Recipe& recipe, const ModelConfig& model);

// The time of these products, relative to all of them in BF16, on tensor cores that multiply 8 and
// 6 bits twice and 4 bits four times as fast: the dense rates of NVIDIA's B200, 2.25, 4.5 and 9
// PFLOP/s. nullopt if some are of binary32, which these tensor cores do not multiply.
std::optional<double> ProductTime(const ProductWidths& widths);

}  // namespace fp4lab
