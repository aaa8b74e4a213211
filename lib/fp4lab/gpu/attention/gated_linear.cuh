// Gated linear attention (nn/attention/gated_linear.h) on the device: the CPU's bits for the same
// inputs, forward and backward.
//
// Columns of a head's state (key_dim, value_dim) need nothing of each other in the forward pass,
// and rows nothing in the backward pass, but for the gradient of values. So results and that
// gradient come from a kernel with a thread per column. The other gradients come from one with a
// half-warp per row.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/nn/attention/gated_linear.h"

namespace fp4lab::gpu {

// The widest value_dim that the backward pass has a kernel for.
inline constexpr std::size_t kMostValueDim = 512;

// The decay of each channel, a = sigmoid(z)^(1/16), and its slope da/dz, which may be null.
void MakeDecays(const float* z, std::size_t size, float* a, float* slope, cudaStream_t stream);

// q, k (rows, heads * key_dim) and v (rows, heads * value_dim), whose rows begin `stride` elements
// apart, and `kept` (rows, heads * key_dim), a whole matrix: a of MakeDecays.
struct DeviceGatedLinear {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  std::size_t stride = 0;
  const float* kept = nullptr;
};

// out (rows, heads * value_dim).
void GatedLinearAttention(const GatedLinearShape& shape, const DeviceGatedLinear& in, float* out,
                          cudaStream_t stream);

// Floats of states that the backward pass keeps at a time. It takes sequences in groups of at most
// about 512 MiB of them.
std::size_t GatedLinearStates(const GatedLinearShape& shape);

struct GatedLinearScratch {
  const float* slope = nullptr;  // of MakeDecays
  float* states = nullptr;       // GatedLinearStates(shape)
  float* values = nullptr;       // (rows, heads * value_dim), read only with key_dim above 64
};

// Gradients, rounded to T and overwritten: as DeviceGatedLinear, and z (rows, heads * key_dim).
template <class T>
struct DeviceGatedLinearGradients {
  T *q = nullptr, *k = nullptr, *v = nullptr;
  std::size_t stride = 0;
  T* z = nullptr;
};

// dout (rows, heads * value_dim).
template <class T>
void GatedLinearAttentionBackward(const GatedLinearShape& shape, const DeviceGatedLinear& in,
                                  const float* dout, const GatedLinearScratch& scratch,
                                  const DeviceGatedLinearGradients<T>& d, cudaStream_t stream);

}  // namespace fp4lab::gpu
