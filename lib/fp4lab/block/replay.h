// Stochastic block quantization under given device bits, to replay what a kernel did.
#pragma once

#include <cstdint>
#include <span>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/formats/replay.h"

namespace fp4lab::reference {

// Quantize with explicit random words in place of options.random (options.rounding must be
// kStochastic). Words are row-major, (rows, ceil(cols / n)) with n = ElementsAWord: word g of a row
// serves its columns n * g to n * g + n - 1, a row's last partial group has a word of its own.
// Which bits of its word an element takes, and how it is rounded: formats/replay.h. As ever, a
// columnwise quantization is that of x.Transposed(), and its words run along the columns of x.
QuantizedMatrix QuantizeReplayed(MatrixView<const float> x, const QuantizeOptions& options,
                                 RandomForm form, std::span<const std::uint32_t> words);

// What the rounding of the elements saw: v(r, c) = fl(x(r, c) * e), e the multiplier
// (scale_rules.h) of q's own scale bytes and amax, whoever computed them.
Matrix<float> ScaledElements(MatrixView<const float> x, const QuantizedMatrix& q);

}  // namespace fp4lab::reference
