// The random Hadamard transform fused with what follows it in a recipe: each function reads x once
// and writes its result alone.
#pragma once

#include <cstdint>

#include "fp4lab/base/aligned.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {

// With y = RandomHadamard(x, transform), every function gives the bytes of its name's second part
// on y. Columns (wgrad): pass transposed views; out lies in memory as x where it is fast. Where the
// quantizer's pieces of work hold no whole groups (groups longer than its blocks, down the
// columns), y is a temporary.

// TensorAmax(y): what options.amax is for the functions below, where it is given and where they
// find it out (Transformer Engine's order: the tensor scale is that of the transformed tensor).
float HadamardAmax(MatrixView<const float> x, const HadamardTransform& transform);

void HadamardQuantize(MatrixView<const float> x, const HadamardTransform& transform,
                      const QuantizeOptions& options, QuantizedMatrix* q);

// out may be x.
void HadamardQuantizeToValues(MatrixView<const float> x, const HadamardTransform& transform,
                              const QuantizeOptions& options, MatrixView<float> out);

bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, const HadamardTransform& transform,
                                   const QuantizeOptions& options, const Fp4Integers& out);

// That with options->amax = HadamardAmax(x), which it sets. Where x and out.codes lie as columns
// and y would be no temporary, the transform is computed once and kept in `memory` meanwhile, two
// bytes an element.
bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, const HadamardTransform& transform,
                                   QuantizeOptions* options, const Fp4Integers& out,
                                   WordBuffer* memory);

// The same with MaskTransform(size, sign_mask).
inline float HadamardAmax(MatrixView<const float> x, int size, std::uint32_t sign_mask) {
  return HadamardAmax(x, MaskTransform(size, sign_mask));
}
inline void HadamardQuantize(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                             const QuantizeOptions& options, QuantizedMatrix* q) {
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
