#include "fp4lab/gpu/kernels/columns.cuh"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAcross = 32, kDown = 8;  // of a thread block: a warp per row

template <class Kernel, class... Arguments>
void LaunchRows(Kernel kernel, std::size_t rows, cudaStream_t stream, Arguments... arguments) {
  kernel<<<Blocks(rows, kDown), dim3(kAcross, kDown), 0, stream>>>(rows, arguments...);
}

__device__ inline std::size_t OwnRow() { return std::size_t{blockIdx.x} * kDown + threadIdx.y; }

template <class From, class To>
__global__ void CopyColumnsKernel(std::size_t rows, Columns<const From> from, Columns<To> to) {
  const std::size_t row = OwnRow();
  if (row >= rows) return;
  for (std::size_t c = threadIdx.x; c < to.cols; c += kAcross) {
    const float x = c < from.cols ? Load(from.x + row * from.stride + c) : 0.0f;
    Store(to.x + row * to.stride + c, x);
  }
}

__global__ void AddToKernel(const float* x, std::size_t size, float* to) {
  const std::size_t i = ThreadIndex();
  if (i < size) to[i] = to[i] + x[i];
}

template <class T>
__global__ void GateKernel(std::size_t rows, Columns<const float> gate, const float* up, T* y) {
  const std::size_t row = OwnRow();
  if (row >= rows) return;
  for (std::size_t c = threadIdx.x; c < gate.cols; c += kAcross) {
    const float g = gate.x[row * gate.stride + c];
    const std::size_t i = row * gate.cols + c;
    Store(y + i, (g * Sigmoid(g)) * up[i]);
  }
}

template <class T>
__global__ void GateBackwardKernel(std::size_t rows, Columns<const float> gate, const float* up,
                                   const float* dy, Columns<T> dgate, float* dup) {
  const std::size_t row = OwnRow();
  if (row >= rows) return;
  for (std::size_t c = threadIdx.x; c < gate.cols; c += kAcross) {
    const float g = gate.x[row * gate.stride + c];
    const std::size_t i = row * gate.cols + c;
    const float grad = dy[i], s = Sigmoid(g), silu = g * s;
    const float slope = s + silu * (1.0f - s);
    Store(dgate.x + row * dgate.stride + c, (grad * up[i]) * slope);
    dup[i] = grad * silu;
  }
}

__global__ void FoldPartialsKernel(const float* partials, std::size_t count, std::size_t cols,
                                   std::size_t chunks, float* to) {
  const std::size_t at = ThreadIndex(), c = at % cols;
  if (at >= chunks * cols) return;
  float sum = 0.0f;
  for (std::size_t i = at / cols; i < count; i += chunks) sum = sum + partials[i * cols + c];
  to[at] = sum;
}

}  // namespace

template <class From, class To>
void CopyColumns(std::size_t rows, const Columns<const From>& from, const Columns<To>& to,
                 cudaStream_t stream) {
  LaunchRows(CopyColumnsKernel<From, To>, rows, stream, from, to);
  CheckLaunch("CopyColumns");
}

void AddTo(const float* x, std::size_t size, float* to, cudaStream_t stream) {
  AddToKernel<<<Blocks(size, kThreads), kThreads, 0, stream>>>(x, size, to);
  CheckLaunch("AddTo");
}

template <class T>
void GateColumns(std::size_t rows, const Columns<const float>& gate, const float* up, T* y,
                 cudaStream_t stream) {
  LaunchRows(GateKernel<T>, rows, stream, gate, up, y);
  CheckLaunch("GateColumns");
}

template <class T>
void GateColumnsBackward(std::size_t rows, const Columns<const float>& gate, const float* up,
                         const float* dy, const Columns<T>& dgate, float* dup,
                         cudaStream_t stream) {
  LaunchRows(GateBackwardKernel<T>, rows, stream, gate, up, dy, dgate, dup);
  CheckLaunch("GateColumnsBackward");
}

void FoldPartials(const float* partials, std::size_t count, std::size_t cols, std::size_t chunks,
                  float* to, cudaStream_t stream) {
  FoldPartialsKernel<<<Blocks(chunks * cols, kThreads), kThreads, 0, stream>>>(partials, count,
                                                                               cols, chunks, to);
  CheckLaunch("FoldPartials");
}

template void CopyColumns(std::size_t, const Columns<const float>&, const Columns<float>&,
                          cudaStream_t);
template void CopyColumns(std::size_t, const Columns<const float>&, const Columns<Bf16>&,
                          cudaStream_t);
template void CopyColumns(std::size_t, const Columns<const Bf16>&, const Columns<Bf16>&,
                          cudaStream_t);
template void GateColumns(std::size_t, const Columns<const float>&, const float*, float*,
                          cudaStream_t);
template void GateColumns(std::size_t, const Columns<const float>&, const float*, Bf16*,
                          cudaStream_t);
template void GateColumnsBackward(std::size_t, const Columns<const float>&, const float*,
                                  const float*, const Columns<float>&, float*, cudaStream_t);
template void GateColumnsBackward(std::size_t, const Columns<const float>&, const float*,
                                  const float*, const Columns<Bf16>&, float*, cudaStream_t);

}  // namespace fp4lab::gpu
