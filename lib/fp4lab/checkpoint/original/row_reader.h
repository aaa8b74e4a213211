// Rows of what was quantized, as numbers.
#pragma once

#include <cstddef>
#include <functional>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// Rows of the original: (first, count) gives a matrix of `count` rows in binary32.
using RowReader = std::function<Matrix<float>(std::size_t first, std::size_t count)>;

}  // namespace fp4lab
