#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/kernels/expert_rows.cuh"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256, kWarp = 32, kVector = kVectorOfRows;

__global__ void PlaceKernel(DeviceRouting routing, std::size_t choices, const std::uint32_t* first,
                            std::uint32_t* slot) {
  const std::size_t i = ThreadIndex();
  if (i < choices) slot[i] = first[routing.chosen[i]] + routing.rank[i];
}

// The kernels of rows have one thread block per row, or per few rows, whose threads take kVector
// columns at a time.
template <int kVector, class Function>
__device__ inline void ForColumns(std::size_t cols, const Function& function) {
  for (std::size_t c = threadIdx.x * kVector; c < cols; c += std::size_t{blockDim.x} * kVector) {
    function(c);
  }
}

// grid (pad - 1, E): the rows that an expert may have to add.
template <int kVector, class T>
__global__ void ZeroPaddingKernel(ExpertPadding padding, std::size_t cols, T* rows) {
  const std::size_t count = padding.counts[blockIdx.y], row = count + blockIdx.x;
  if (row >= (count + padding.pad - 1) / padding.pad * padding.pad) return;
  T* const to = rows + (padding.first[blockIdx.y] + row) * cols;
  ForColumns<kVector>(cols, [&](std::size_t c) {
    const float zeros[kVector] = {};
    StorePack<kVector>(to + c, zeros);
  });
}

template <int kVector, class T>
__global__ void SpreadKernel(const float* x, std::size_t top_k, const std::uint32_t* slot,
                             std::size_t cols, T* spread) {
  const std::size_t row = blockIdx.x;
  ForColumns<kVector>(cols, [&](std::size_t c) {
    const auto values = LoadPack<kVector>(x + row * cols + c);
    for (std::size_t choice = row * top_k; choice < (row + 1) * top_k; ++choice) {
      StorePack<kVector>(spread + slot[choice] * cols + c, values.x);
    }
  });
}

template <int kVector>
__global__ void AddExpertsKernel(DeviceRouting routing, std::size_t top_k,
                                 const std::uint32_t* slot, const float* results, std::size_t cols,
                                 const float* base, float* out) {
  const std::size_t row = blockIdx.x;
  ForColumns<kVector>(cols, [&](std::size_t c) {
    Pack<kVector, float> sum = LoadPack<kVector>(base + row * cols + c);
    for (std::size_t choice = row * top_k; choice < (row + 1) * top_k; ++choice) {
      const float weight = routing.weights[choice];
      const auto result = LoadPack<kVector>(results + slot[choice] * cols + c);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum.x[i] = sum.x[i] + weight * result.x[i];
    }
    StorePack<kVector>(out + row * cols + c, sum.x);
  });
}

// One warp per row reads dy once for kChoices of its choices.
constexpr int kChoices = 4;
template <int kVector, class T>
__global__ void AddExpertsBackwardKernel(DeviceRouting routing, std::size_t top_k,
                                         const std::uint32_t* slot, const float* results,
                                         const float* dy, std::size_t cols, T* d_results,
                                         float* d_weights) {
  const std::size_t row = ThreadIndex() / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (row >= routing.rows) return;
  for (std::size_t first = 0; first < top_k; first += kChoices) {
    const auto count = static_cast<int>(top_k - first < kChoices ? top_k - first : kChoices);
    const std::size_t choice = row * top_k + first;
    float weight[kChoices] = {};
    std::size_t at[kChoices] = {};
    double dot[kChoices] = {};
#pragma unroll
    for (int k = 0; k < kChoices; ++k) {
      if (k >= count) break;
      weight[k] = routing.weights[choice + k];
      at[k] = slot[choice + k] * cols;
    }
    for (std::size_t c = lane * kVector; c < cols; c += kWarp * kVector) {
      const auto d = LoadPack<kVector>(dy + row * cols + c);
#pragma unroll
      for (int k = 0; k < kChoices; ++k) {
        if (k >= count) break;
        const auto result = LoadPack<kVector>(results + at[k] + c);
        float weighted[kVector];
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          weighted[i] = weight[k] * d.x[i];
          dot[k] += static_cast<double>(d.x[i]) * result.x[i];
        }
        StorePack<kVector>(d_results + at[k] + c, weighted);
      }
    }
#pragma unroll
    for (int k = 0; k < kChoices; ++k) {
      if (k >= count) break;
      for (int width = kWarp / 2; width > 0; width /= 2) {
        dot[k] += __shfl_xor_sync(kAllLanes, dot[k], width);
      }
      if (lane == 0) d_weights[choice + k] = static_cast<float>(dot[k]);
    }
  }
}

// One thread block per kRows rows, which share what is read of the router's weight.
constexpr int kRows = 4;
template <int kVector>
__global__ void AddInputGradientsKernel(std::size_t rows, std::size_t top_k,
                                        const std::uint32_t* slot, const float* d_inputs,
                                        RouterGradient router, std::size_t cols, bool adds,
                                        float* d_x) {
  extern __shared__ __align__(16) float d_logits[];  // (E, kRows), zeros past the last row
  const std::size_t first = std::size_t{blockIdx.x} * kRows;
  const auto count = static_cast<int>(rows - first < kRows ? rows - first : kRows);
  for (std::size_t i = threadIdx.x; i < router.experts * kRows; i += blockDim.x) {
    const std::size_t e = i / kRows, row = first + i % kRows;
    d_logits[i] = row < rows ? router.d_logits[row * router.experts + e] : 0.0f;
  }
  __syncthreads();
  ForColumns<kVector>(cols, [&](std::size_t c) {
    Pack<kVector, float> routed[kRows] = {};
    for (std::size_t e = 0; e < router.experts; ++e) {
      const auto w = LoadPack<kVector>(router.w + e * cols + c);
      const auto d = LoadPack<kRows>(d_logits + e * kRows);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          routed[r].x[i] = __fmaf_rn(d.x[r], w.x[i], routed[r].x[i]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= count) break;
      const std::size_t row = first + r;
      Pack<kVector, float> sum{};
      if (adds) sum = LoadPack<kVector>(d_x + row * cols + c);
      for (std::size_t choice = row * top_k; choice < (row + 1) * top_k; ++choice) {
        const auto d = LoadPack<kVector>(d_inputs + slot[choice] * cols + c);
#pragma unroll
        for (int i = 0; i < kVector; ++i) sum.x[i] = sum.x[i] + d.x[i];
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum.x[i] = sum.x[i] + routed[r].x[i];
      StorePack<kVector>(d_x + row * cols + c, sum.x);
    }
  });
}

// Runs a kernel of rows, with as many threads per row as it has packs of kVector columns.
template <class Kernel, class... Arguments>
void LaunchRows(const char* what, Kernel kernel, dim3 grid, std::size_t cols, std::size_t shared,
                cudaStream_t stream, Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || cols == 0) return;
  const std::size_t threads = RoundUp(DivideUp(cols, std::size_t{kVector}), std::size_t{kWarp});
  kernel<<<grid, static_cast<unsigned>(std::min(threads, std::size_t{kThreads})), shared, stream>>>(
      arguments...);
  CheckLaunch(what);
}

template <class T>
void ZeroPadding(const ExpertPadding& padding, std::size_t cols, T* rows, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(padding.pad - 1), static_cast<unsigned>(padding.experts));
  WithVector(cols, [&](auto vector) {
    LaunchRows("ZeroPadding", ZeroPaddingKernel<vector, T>, grid, cols, 0, stream, padding, cols,
               rows);
  });
}

}  // namespace

void PlaceSlots(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* first,
                std::uint32_t* slot, cudaStream_t stream) {
  const std::size_t choices = routing.rows * top_k;
  if (choices == 0) return;
  PlaceKernel<<<Blocks(choices, kThreads), kThreads, 0, stream>>>(routing, choices, first, slot);
  CheckLaunch("PlaceSlots");
}

template <class T>
void SpreadRows(const float* x, std::size_t rows, std::size_t top_k, const std::uint32_t* slot,
                const ExpertPadding& padding, std::size_t cols, T* spread, cudaStream_t stream) {
  ZeroPadding(padding, cols, spread, stream);
  WithVector(cols, [&](auto vector) {
    LaunchRows("SpreadRows", SpreadKernel<vector, T>, static_cast<unsigned>(rows), cols, 0, stream,
               x, top_k, slot, cols, spread);
  });
}

void AddExperts(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                const float* results, std::size_t cols, const float* base, float* out,
                cudaStream_t stream) {
  WithVector(cols, [&](auto vector) {
    LaunchRows("AddExperts", AddExpertsKernel<vector>, static_cast<unsigned>(routing.rows), cols, 0,
               stream, routing, top_k, slot, results, cols, base, out);
  });
}

template <class T>
void AddExpertsBackward(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                        const ExpertPadding& padding, const float* results, const float* dy,
                        std::size_t cols, T* d_results, float* d_weights, cudaStream_t stream) {
  ZeroPadding(padding, cols, d_results, stream);
  if (routing.rows == 0) return;
  WithVector(cols, [&](auto vector) {
    AddExpertsBackwardKernel<vector, T>
        <<<Blocks(routing.rows * kWarp, kThreads), kThreads, 0, stream>>>(
            routing, top_k, slot, results, dy, cols, d_results, d_weights);
  });
  CheckLaunch("AddExpertsBackward");
}

void AddInputGradients(std::size_t rows, std::size_t top_k, const std::uint32_t* slot,
                       const float* d_inputs, const RouterGradient& router, std::size_t cols,
                       bool adds, float* d_x, cudaStream_t stream) {
  const auto launch = [&](auto vector) {
    LaunchRows("AddInputGradients", AddInputGradientsKernel<vector>, Blocks(rows, kRows), cols,
               router.experts * kRows * sizeof(float), stream, rows, top_k, slot, d_inputs, router,
               cols, adds, d_x);
  };
  WithVector(cols, launch, router.w);  // a parameter, which may begin anywhere
}

template void SpreadRows(const float*, std::size_t, std::size_t, const std::uint32_t*,
                         const ExpertPadding&, std::size_t, float*, cudaStream_t);
template void SpreadRows(const float*, std::size_t, std::size_t, const std::uint32_t*,
                         const ExpertPadding&, std::size_t, Bf16*, cudaStream_t);
template void AddExpertsBackward(const DeviceRouting&, std::size_t, const std::uint32_t*,
                                 const ExpertPadding&, const float*, const float*, std::size_t,
                                 float*, float*, cudaStream_t);
template void AddExpertsBackward(const DeviceRouting&, std::size_t, const std::uint32_t*,
                                 const ExpertPadding&, const float*, const float*, std::size_t,
                                 Bf16*, float*, cudaStream_t);

}  // namespace fp4lab::gpu
