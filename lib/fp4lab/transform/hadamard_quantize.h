// The random Hadamard transform fused with the quantization that follows it in a recipe: each
// function reads x once and writes only its result.
#pragma once

#include <cstdint>
#include <functional>

#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {

// Let y = RandomHadamard(x, transform). HadamardQuantize gives the same bytes as Quantize of y, and
// so on. For columns (wgrad) pass transposed views; the functions are fastest if x and out have
// unit stride in the same direction. If the quantizer's units of work do not hold whole groups
// (groups down the columns that are longer than its blocks), y is computed as a temporary.

// TensorAmax(y), the amax of the transformed tensor. The functions below need this amax: the caller
// gives it as options.amax, or they compute it (Transformer Engine's order: the tensor scale is
// that of the transformed tensor).
float HadamardAmax(MatrixView<const float> x, const HadamardTransform& transform);

void HadamardQuantize(MatrixView<const float> x, const HadamardTransform& transform,
                      const QuantizeOptions& options, Quantized* q);

// out may be x.
void HadamardQuantizeToValues(MatrixView<const float> x, const HadamardTransform& transform,
                              const QuantizeOptions& options, MatrixView<float> out);

bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, const HadamardTransform& transform,
                                   const QuantizeOptions& options, const Fp4Integers& out);

// Sets options->amax = HadamardAmax(x, transform), then does the same as the function above. If x
// and out.codes have unit stride down the columns and y would not be a temporary, the transform is
// computed only once: its result is kept in *memory, two bytes an element.
bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, const HadamardTransform& transform,
                                   QuantizeOptions* options, const Fp4Integers& out,
                                   WordBuffer* memory);

// The same for any quantizer that takes a UnitStage: calls quantize(view, stage, amax) once, in
// which `view` behind `stage` has y's elements, and returns its result. `turned`: the quantizer
// writes columns with unit stride. `measures`: amax is HadamardAmax(x, transform), else 0.
struct HadamardUse {
  bool turned, measures;
};
using StagedQuantizer =
    std::function<bool(MatrixView<const float> view, const UnitStage& stage, float amax)>;
bool WithHadamardStage(MatrixView<const float> x, const HadamardTransform& transform,
                       const Dialect& dialect, const HadamardUse& use, WordBuffer* memory,
                       const StagedQuantizer& quantize);

// The functions above with MaskTransform(size, sign_mask).
inline float HadamardAmax(MatrixView<const float> x, int size, std::uint32_t sign_mask) {
  return HadamardAmax(x, MaskTransform(size, sign_mask));
}
inline void HadamardQuantize(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                             const QuantizeOptions& options, Quantized* q) {
  HadamardQuantize(x, MaskTransform(size, sign_mask), options, q);
}
inline void HadamardQuantizeToValues(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                                     const QuantizeOptions& options, MatrixView<float> out) {
  HadamardQuantizeToValues(x, MaskTransform(size, sign_mask), options, out);
}
inline bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, int size,
                                          std::uint32_t sign_mask, const QuantizeOptions& options,
                                          const Fp4Integers& out) {
  return HadamardQuantizeToFp4Integers(x, MaskTransform(size, sign_mask), options, out);
}
inline bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, int size,
                                          std::uint32_t sign_mask, QuantizeOptions* options,
                                          const Fp4Integers& out, WordBuffer* memory) {
  return HadamardQuantizeToFp4Integers(x, MaskTransform(size, sign_mask), options, out, memory);
}

}  // namespace fp4lab
