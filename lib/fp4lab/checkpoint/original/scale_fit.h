// How the scales of a quantized matrix fit its codes and the original, where the codes stand at
// their places: which other reading of scales or codes fits.
#pragma once

#include <span>
#include <string>

#include "fp4lab/checkpoint/decoder.h"
#include "fp4lab/checkpoint/original/placement.h"
#include "fp4lab/checkpoint/original/row_reader.h"

namespace fp4lab {

// "the codes are INT4 (two's complement), read as E2M1": another format of the codes, whose values
// have the directions of the original. "" if the stated one is as near.
std::string ElementText(const Decoder& decoder, const Reading& reading, const RowReader& original);

// The scales in another order (transposed, shifted, of other parts, of ranks), in another format,
// or stored as reciprocals; else by how much they miss those that fit the codes. "" where they fit.
// `numbers` and `others`: as of CompareWithOriginal. `cosines`: RowCosines of the original.
std::string ScaleFitText(const StoredBytes& bytes, const Decoder& decoder, const Reading& reading,
                         TensorScaleConvention convention, std::span<const float> numbers,
                         const RowReader& original, std::span<const double> cosines,
                         const OtherScales& others = {});

}  // namespace fp4lab
