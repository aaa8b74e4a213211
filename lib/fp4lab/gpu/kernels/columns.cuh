// Columns of wider matrices on the device, and the sums and the gate that linear attention needs.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

// Columns [0, cols) of rows that begin `stride` elements apart.
template <class X>
struct Columns {
  X* x = nullptr;
  std::size_t stride = 0, cols = 0;
};

// to(r, c) = from(r, c), rounded to To, or 0 for columns that `from` does not have. (From, To):
// (float, float), (float, Bf16), (Bf16, Bf16).
template <class From, class To>
void CopyColumns(std::size_t rows, const Columns<const From>& from, const Columns<To>& to,
                 cudaStream_t stream);

// to = to + x, element by element.
void AddTo(const float* x, std::size_t size, float* to, cudaStream_t stream);

// Swiglu of nn/activation.h, exact: `up`, y, dy and dup (rows, gate.cols) are whole matrices, and
// y and dgate are rounded to T.
template <class T>
void GateColumns(std::size_t rows, const Columns<const float>& gate, const float* up, T* y,
                 cudaStream_t stream);
template <class T>
void GateColumnsBackward(std::size_t rows, const Columns<const float>& gate, const float* up,
                         const float* dy, const Columns<T>& dgate, float* dup, cudaStream_t stream);

// Sums partials (count, cols) to (chunks, cols): chunk i has partials i, i + chunks, ... in order.
void FoldPartials(const float* partials, std::size_t count, std::size_t cols, std::size_t chunks,
                  float* to, cudaStream_t stream);

}  // namespace fp4lab::gpu
