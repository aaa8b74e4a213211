// Parts of a stored matrix that are matrices of their own: experts, joined projections, the rows of
// ranks. Each has an amax and a tensor scale of its own.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/stored.h"

namespace fp4lab {

struct RowPart {
  std::size_t row = 0, rows = 0;
};

// Parts of a matrix with so many rows: "4" for equal parts, "64,64,32" for the rows of each. Throws
// Error(where, ...) if they are not whole, or do not add up to the rows.
std::vector<RowPart> ParseRowParts(std::string_view text, std::size_t rows, std::string_view where);

// The parts as matrices. Their codes follow each other. Their scales follow each other, each part
// in its own tiles, or lie in the layout of the joined matrix, and then become linear; where both
// take equally many bytes, they follow each other. The tensor scales are one a part, one for all,
// or one a row that is equal in the rows of a part. Throws Error(where, ...) for other sizes, for
// blocks that span parts and for transposed layouts.
std::vector<StoredMatrix> SplitRows(const StoredMatrix& joined, std::span<const RowPart> parts,
                                    std::string_view where);

// The number of equal parts of the rows whose numbers (one a row) are equal: 2 for 1 1 1 5 5 5, 1
// for equal numbers, as many as there are rows if no parts are seen. 0 for no numbers.
std::size_t PartsWithOneNumber(std::span<const float> numbers);

}  // namespace fp4lab
