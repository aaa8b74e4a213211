// The quantizers with a stage (UnitStage) before them, for the layers above. The elements pass
// through the stage one unit of work at a time, so the staged matrix is never stored as a whole.
#pragma once

#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"

namespace fp4lab {

// Each function equals the one without a stage, applied to the staged elements; options.amax must
// be the amax of the staged elements. Blocks have at most kMaxStagedBlock memory rows.
void Quantize(MatrixView<const float> x, const QuantizeOptions& options, const UnitStage& stage,
              Quantized* q);
void QuantizeToBytes(MatrixView<const float> x, const QuantizeOptions& options,
                     const UnitStage& stage, const CodeOutput& out);
void QuantizeToValues(MatrixView<const float> x, const QuantizeOptions& options,
                      const UnitStage& stage, MatrixView<float> out);
bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const UnitStage& stage, const Fp4Integers& out);

}  // namespace fp4lab
