// Whether the codes of a matrix are those of a rounding with random numbers.
#pragma once

#include <span>
#include <string>

#include "fp4lab/checkpoint/decoder.h"
#include "fp4lab/checkpoint/original/row_reader.h"

namespace fp4lab {

// "codes are consistent with ComfyUI's stochastic rounding (ROW): ...", judged on the first rows,
// if every scale there is that of a row of the table and the codes are distributed as its random
// rounding distributes them (formats/stochastic_verdict.h, dialect/noise/noise_verdict.h). "" if no
// row fits. `amax`: the original's, for a matrix without a tensor scale.
std::string RandomRoundingText(const Decoder& decoder, const Reading& reading,
                               TensorScaleConvention convention, std::span<const float> numbers,
                               float amax, const RowReader& original);

}  // namespace fp4lab
