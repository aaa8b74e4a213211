// Stochastic quantization with given random words of a device, to replay a kernel's result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/formats/replay.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// QuantizeAs with the elements rounded stochastically by explicit random words, whatever the
// dialect's own rounding. Words are row-major, (rows, ceil(cols / n)) with n = ElementsAWord: word
// g of a row serves its columns n * g to n * g + n - 1, and a row's last partial group has a word
// of its own. formats/replay.h defines the bits of a word that an element takes and its rounding.
// For a columnwise quantization the caller passes x.Transposed(); the words then run along the
// columns of x. amax: as DialectOptions::amax. Expects a form that the element format, of at most 8
// bits, takes.
Quantized QuantizeReplayed(const Dialect& dialect, MatrixView<const float> x,
                           const std::vector<float>& amax, RandomForm form,
                           std::span<const std::uint32_t> words);

// The inputs of the element rounding: v of every element under the scales and amax of q.
Matrix<float> ScaledElements(const Dialect& dialect, MatrixView<const float> x, const Quantized& q);

}  // namespace fp4lab
