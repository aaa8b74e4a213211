// Any random Hadamard transform of a linear's operand (transform/hadamard.h), in a pass of its own.
// The tuned kernels of quantize.cuh include the transforms of sizes 16 and 32 with Transformer
// Engine's signs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::gpu {

// The direction of a transform: forth, y = H S x, or back, x = S H y. S is the diagonal matrix of
// signs, and H is its own inverse except for rounding.
enum class HadamardWay : bool { kForth, kBack };

// The decode factor of values that have one scale for the whole tensor: OperandDecode(dialect,
// *amax) of dialect/gemm_alpha.h, amax in float bits.
struct TensorDecode {
  Dialect dialect;
  const std::uint32_t* amax = nullptr;
};

// out = the transform of every group of transform.size elements along the rows of x (rows, cols)
// or, if `down_columns`, down its columns; that axis must be a multiple of the size. The bits are
// those of RandomHadamard of transform/hadamard.h: exact sums of BF16 values, rounded to BF16.
// kBack applies the signs after the transform. out may be x. *amax, unless null, becomes the bits
// of the amax of out, which passes over NaN. `decode`: what is transformed are the values x times
// the factor, rounded to BF16; decode->amax is not `amax`.
template <class T>
void TransformGroups(const HadamardTransform& transform, HadamardWay way, std::size_t rows,
                     std::size_t cols, bool down_columns, const T* x, T* out, std::uint32_t* amax,
                     cudaStream_t stream, const std::optional<TensorDecode>& decode = {});

// The part of TransformGroups that lies in hadamard_tensor_cores.cu: transforms of 16 numbers and
// more, several times as fast. False, and nothing launched, for shapes and addresses that its
// kernels do not take.
bool TransformGroupsOnTensorCores(const HadamardTransform& transform, HadamardWay way,
                                  std::size_t rows, std::size_t cols, bool down_columns,
                                  const Bf16* x, Bf16* out, std::uint32_t* amax,
                                  cudaStream_t stream, const std::optional<TensorDecode>& decode);

}  // namespace fp4lab::gpu
