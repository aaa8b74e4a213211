// One use of a linear on the device, and its operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/gemm/gemm.cuh"
#include "fp4lab/nn/linear_recipe.h"

namespace fp4lab::gpu {

// An operand of a GEMM. It lies in memory like the tensor from which it was made, unless it is
// turned.
template <class T>
struct Operand {
  const T* values = nullptr;
  const std::uint32_t* amax = nullptr;  // float bits, if the format has a tensor scale
  const float* row_decode = nullptr;    // decode scale of each row, if the format is row-scaled
  // Of BF16 operands: scales of blocks or windows in binary32, which the values do not contain.
  BlockScales scales = {};
  bool turned = false;  // made along the tensor's rows, but with the reduction axis along columns
};

// Amax and decode scale of each row of an operand with a row-scaled format, or of its windows; and
// scales of its blocks.
struct RowScales {
  DeviceArray<float> memory;  // allocated on first use
  DeviceArray<float> blocks;
  // The matrix of an operand's windows, if it does not lie as such.
  DeviceArray<float> lines;
  DeviceArray<Bf16> lines_bf16;

  float* Amax(std::size_t rows) {
    if (memory.size() < 2 * rows) memory = DeviceArray<float>(2 * rows);
    return memory.data();
  }
  float* Decode(std::size_t rows) { return Amax(rows) + rows; }
  template <class T>
  T* Lines(std::size_t size) {
    if constexpr (std::is_same_v<T, Bf16>) {
      return Reserve(&lines_bf16, size);
    } else {
      return Reserve(&lines, size);
    }
  }
};

// One use of a linear on the device.
struct DeviceCall : LinearCall {  // LinearCall::histories in device memory
  std::uint32_t* amax = nullptr;  // kLinearOperands places, zeroed
  float* alpha = nullptr;         // 3 places: fprop, dgrad, wgrad
  cudaStream_t stream = nullptr;
  Gemms* gemms = nullptr;
  std::size_t lane = 0;      // of gemms, which has `stream`
  bool tokens_vary = false;  // GemmProblem::tokens_vary of the products
};

}  // namespace fp4lab::gpu
