// The quantizers with a stage before them, for the layers above: the elements pass the stage on
// their way from memory, a unit of work at a time, and are written nowhere.
#pragma once

#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"

namespace fp4lab {

// As the functions without a stage, but the amax, of the elements after the stage, is given. Blocks
// of at most kMaxStagedBlock memory rows.
void Quantize(MatrixView<const float> x, const QuantizeOptions& options, const UnitStage& stage,
              QuantizedMatrix* q);
void QuantizeToValues(MatrixView<const float> x, const QuantizeOptions& options,
                      const UnitStage& stage, MatrixView<float> out);
bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const UnitStage& stage, const Fp4Integers& out);

}  // namespace fp4lab
