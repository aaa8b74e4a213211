#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/quantize/scale_windows.cuh"

namespace fp4lab::gpu {
namespace {

// A thread block moves a tile of the matrix (quantized rows, whole windows of a row). Its threads
// neighbour each other along the side on which memory is contiguous, reading and writing.
constexpr unsigned kTile = 32, kLines = 8;

struct Extents {
  std::size_t quantized, length, padded, window;
  bool along_rows;

  // The place of element (q, k) in the operand's memory.
  __device__ std::size_t Place(std::size_t q, std::size_t k) const {
    return along_rows ? k * quantized + q : q * length + k;
  }
};

template <class T>
__global__ void __launch_bounds__(kTile* kLines) ToLinesKernel(Extents e, const T* x, T* lines) {
  __shared__ float tile[kTile][kTile + 1];
  const std::size_t k0 = std::size_t{blockIdx.x} * kTile, q0 = std::size_t{blockIdx.y} * kTile;
  for (unsigned i = threadIdx.y; i < kTile; i += kLines) {
    const unsigned dq = e.along_rows ? threadIdx.x : i, dk = e.along_rows ? i : threadIdx.x;
    const std::size_t q = q0 + dq, k = k0 + dk;
    tile[dq][dk] = q < e.quantized && k < e.length ? Load(x + e.Place(q, k)) : 0.0f;
  }
  __syncthreads();
  for (unsigned i = threadIdx.y; i < kTile; i += kLines) {
    const std::size_t q = q0 + i, k = k0 + threadIdx.x;
    if (q < e.quantized && k < e.padded) Store(lines + q * e.padded + k, tile[i][threadIdx.x]);
  }
}

__global__ void __launch_bounds__(kTile* kLines)
    FromLinesKernel(Extents e, const float* lines, const float* decode, float* x) {
  __shared__ float tile[kTile][kTile + 1];
  const std::size_t k0 = std::size_t{blockIdx.x} * kTile, q0 = std::size_t{blockIdx.y} * kTile;
  for (unsigned i = threadIdx.y; i < kTile; i += kLines) {
    const std::size_t q = q0 + i, k = k0 + threadIdx.x;
    if (q >= e.quantized || k >= e.length) continue;
    const std::size_t place = q * e.padded + k;
    tile[i][threadIdx.x] = lines[place] * decode[place / e.window];
  }
  __syncthreads();
  for (unsigned i = threadIdx.y; i < kTile; i += kLines) {
    const unsigned dq = e.along_rows ? threadIdx.x : i, dk = e.along_rows ? i : threadIdx.x;
    const std::size_t q = q0 + dq, k = k0 + dk;
    if (q < e.quantized && k < e.length) x[e.Place(q, k)] = tile[dq][dk];
  }
}

Extents ExtentsOf(const WindowShape& s) {
  return {s.Quantized(), s.Length(), s.WindowsOfRow() * s.window, s.window, s.along_rows};
}

dim3 GridOf(const Extents& e) {
  const dim3 grid(Blocks(e.padded, kTile), Blocks(e.quantized, kTile));
  Expects(grid.y <= 65535, "fewer than 2^21 rows of windows");
  return grid;
}

}  // namespace

template <class T>
void ToLines(const WindowShape& shape, const T* x, T* lines, cudaStream_t stream) {
  const Extents e = ExtentsOf(shape);
  if (e.quantized == 0 || e.length == 0) return;
  ToLinesKernel<<<GridOf(e), dim3(kTile, kLines), 0, stream>>>(e, x, lines);
  CheckLaunch("ToLines");
}

void FromLines(const WindowShape& shape, const float* lines, const float* decode, float* x,
               cudaStream_t stream) {
  const Extents e = ExtentsOf(shape);
  if (e.quantized == 0 || e.length == 0) return;
  FromLinesKernel<<<GridOf(e), dim3(kTile, kLines), 0, stream>>>(e, lines, decode, x);
  CheckLaunch("FromLines");
}

template void ToLines(const WindowShape&, const float*, float*, cudaStream_t);
template void ToLines(const WindowShape&, const Bf16*, Bf16*, cudaStream_t);

}  // namespace fp4lab::gpu
