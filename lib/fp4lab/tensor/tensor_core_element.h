// One element of TensorCoreGemm: what its definition and its kernels share.
#pragma once

#include <cstddef>

#include "fp4lab/base/matrix.h"
#include "fp4lab/tensor/mma_operand.h"
#include "fp4lab/tensor/tensor_core.h"

namespace fp4lab {

// The accumulator after all of K, as a binary32 value (any NaN: 0x7FFFFFFF), from the start value
// c.
float TensorCoreElement(const TensorCoreModel& model, const MmaOperand& a, std::size_t m,
                        const MmaOperand& b, std::size_t n, const OpenChoices& open, float c);

// The preconditions of TensorCoreGemm.
void ExpectProduct(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                   MatrixView<float> c);

}  // namespace fp4lab
