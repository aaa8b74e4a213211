// One element of TensorCoreGemm, shared by the reference and the kernels.
#pragma once

#include <cstddef>

#include "fp4lab/base/matrix.h"
#include "fp4lab/tensor/mma/mma_operand.h"
#include "fp4lab/tensor/tensor_core.h"

namespace fp4lab {

// The accumulator of element (m, n) after all of K, from the start value c, as a binary32 value
// (any NaN: 0x7FFFFFFF).
float TensorCoreElement(const TensorCoreModel& model, const MmaOperand& a, std::size_t m,
                        const MmaOperand& b, std::size_t n, const OpenChoices& open, float c);

// Throws std::logic_error unless the preconditions of TensorCoreGemm hold.
void ExpectProduct(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                   MatrixView<float> c);

}  // namespace fp4lab
