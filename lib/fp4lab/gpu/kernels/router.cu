#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"
#include "fp4lab/gpu/kernels/router.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256, kWarp = 32;

// ---- Scores, choices and weights: one thread per row

__device__ inline void ScoresOfRow(RouterScore score, const float* z, std::size_t experts,
                                   float* s) {
  bool nan = false;
  for (std::size_t e = 0; e < experts; ++e) nan = nan || z[e] != z[e];
  if (nan) {
    for (std::size_t e = 0; e < experts; ++e) s[e] = __int_as_float(0x7FC00000);
    return;
  }
  if (score == RouterScore::kSigmoid) {
    for (std::size_t e = 0; e < experts; ++e) {
      s[e] = static_cast<float>(1.0 / (1.0 + fp4lab::Exp(-static_cast<double>(z[e]))));
    }
    return;
  }
  float most = z[0];
  for (std::size_t e = 1; e < experts; ++e) most = most < z[e] ? z[e] : most;
  const double max = most;
  double sum = 0.0;
  for (std::size_t e = 0; e < experts; ++e) sum += fp4lab::Exp(z[e] - max);
  for (std::size_t e = 0; e < experts; ++e) {
    s[e] = static_cast<float>(fp4lab::Exp(z[e] - max) / sum);
  }
}

__device__ inline bool Contains(const std::uint32_t* chosen, std::size_t count, std::size_t e) {
  for (std::size_t k = 0; k < count; ++k) {
    if (chosen[k] == e) return true;
  }
  return false;
}

// ChooseRow of nn/router.cc.
__device__ inline void Choose(const float* s, const float* bias, std::size_t experts,
                              std::size_t top_k, std::uint32_t* chosen) {
  const double lowest = __longlong_as_double(static_cast<long long>(0xFFF0000000000000ull));
  for (std::size_t k = 0; k < top_k; ++k) {
    std::size_t best = experts;
    double most = lowest;
    for (std::size_t e = 0; e < experts; ++e) {
      if (Contains(chosen, k, e)) continue;
      const double value = s[e] + (bias == nullptr ? 0.0 : static_cast<double>(bias[e]));
      if (best < experts && !(value > most)) continue;
      best = e;
      most = value == value ? value : lowest;
    }
    chosen[k] = static_cast<std::uint32_t>(best);
  }
}

__device__ inline double SumOfChosen(const float* s, const std::uint32_t* chosen,
                                     std::size_t top_k) {
  double sum = 0.0;
  for (std::size_t k = 0; k < top_k; ++k) sum += s[chosen[k]];
  return sum;
}

__global__ void RouteKernel(RouterOptions o, const float* logits, const float* bias,
                            DeviceRouting to) {
  const std::size_t row = ThreadIndex();
  if (row >= to.rows) return;
  float* const s = to.scores + row * to.experts;
  std::uint32_t* const chosen = to.chosen + row * o.top_k;
  ScoresOfRow(o.score, logits + row * to.experts, to.experts, s);
  Choose(s, bias, to.experts, o.top_k, chosen);
  const double divisor = o.normalize ? SumOfChosen(s, chosen, o.top_k) : 1.0;
  for (std::size_t k = 0; k < o.top_k; ++k) {
    to.weights[row * o.top_k + k] =
        static_cast<float>(static_cast<double>(o.scale) * s[chosen[k]] / divisor);
  }
}

// One thread block per expert counts its choices in order.
__global__ void RankKernel(DeviceRouting to, std::size_t choices) {
  __shared__ std::uint32_t before[kThreads / kWarp + 1];
  const std::uint32_t expert = blockIdx.x;
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  std::uint32_t count = 0;
  for (std::size_t first = 0; first < choices; first += kThreads) {
    const std::size_t i = first + threadIdx.x;
    const bool mine = i < choices && to.chosen[i] == expert;
    const unsigned votes = __ballot_sync(kAllLanes, mine);
    if (lane == 0) before[warp + 1] = static_cast<std::uint32_t>(__popc(votes));
    __syncthreads();
    if (threadIdx.x == 0) {
      before[0] = 0;
      for (int w = 1; w <= kThreads / kWarp; ++w) before[w] += before[w - 1];
    }
    __syncthreads();
    if (mine) {
      to.rank[i] =
          count + before[warp] + static_cast<std::uint32_t>(__popc(votes & ((1u << lane) - 1)));
    }
    count += before[kThreads / kWarp];
    __syncthreads();
  }
  if (threadIdx.x == 0) to.counts[expert] = count;
}

// RouteBackward of nn/router.cc, one thread per row.
__global__ void RouteBackwardKernel(RouterOptions o, DeviceRouting from, const float* d_weights,
                                    float loss_scale, float* d_logits) {
  const std::size_t row = ThreadIndex(), experts = from.experts;
  if (row >= from.rows) return;
  const float* const s = from.scores + row * experts;
  const std::uint32_t* const chosen = from.chosen + row * o.top_k;
  const float* const dw = d_weights + row * o.top_k;
  const auto balance = [&](std::size_t e) {
    return static_cast<double>(o.balance_loss) * static_cast<double>(experts) *
           static_cast<double>(from.counts[e]) / static_cast<double>(o.top_k * from.rows) *
           loss_scale;
  };
  const bool softmax = o.score == RouterScore::kSoftmax;
  double total = 1.0, mean = 0.0;
  if (!softmax) {
    total = 0.0;
    for (std::size_t e = 0; e < experts; ++e) total += s[e];
    for (std::size_t e = 0; e < experts; ++e) mean += balance(e) * s[e] / total;
  }
  const double sum = o.normalize ? SumOfChosen(s, chosen, o.top_k) : 1.0;
  double shared = 0.0;
  if (o.normalize) {
    for (std::size_t k = 0; k < o.top_k; ++k) shared += dw[k] * (s[chosen[k]] / sum);
  }
  const auto gradient = [&](std::size_t e) {
    double d = (balance(e) - mean) / total;
    for (std::size_t k = 0; k < o.top_k; ++k) {
      if (chosen[k] == e) d += static_cast<double>(o.scale) * (dw[k] - shared) / sum;
    }
    return d;
  };
  double dot = 0.0;
  if (softmax) {
    for (std::size_t e = 0; e < experts; ++e) dot += gradient(e) * s[e];
  }
  for (std::size_t e = 0; e < experts; ++e) {
    const double d = gradient(e);
    const double slope = softmax ? d - dot : d * (1.0 - static_cast<double>(s[e]));
    d_logits[row * experts + e] = static_cast<float>(s[e] * slope);
  }
}

// ---- The rows of experts

__global__ void PlaceKernel(DeviceRouting routing, std::size_t top_k, std::size_t choices,
                            const std::uint32_t* first, std::uint32_t* slot, std::uint32_t* token) {
  const std::size_t i = ThreadIndex();
  if (i >= choices) return;
  const std::uint32_t at = first[routing.chosen[i]] + routing.rank[i];
  slot[i] = at;
  token[at] = static_cast<std::uint32_t>(i / top_k);
}

template <class T>
__global__ void GatherKernel(const float* x, const std::uint32_t* token, std::size_t slots,
                             std::size_t cols, T* gathered) {
  const std::size_t i = ThreadIndex();
  if (i >= slots * cols) return;
  const std::uint32_t from = token[i / cols];
  Store(gathered + i, from == kNoToken ? 0.0f : x[from * cols + i % cols]);
}

__global__ void AddExpertsKernel(DeviceRouting routing, std::size_t top_k,
                                 const std::uint32_t* slot, const float* results, std::size_t cols,
                                 float* out) {
  const std::size_t i = ThreadIndex();
  if (i >= routing.rows * cols) return;
  const std::size_t row = i / cols;
  float sum = out[i];
  for (std::size_t k = 0; k < top_k; ++k) {
    const std::size_t choice = row * top_k + k;
    sum = sum + routing.weights[choice] * results[slot[choice] * cols + i % cols];
  }
  out[i] = sum;
}

// One warp per choice.
template <class T>
__global__ void AddExpertsBackwardKernel(DeviceRouting routing, std::size_t top_k,
                                         const std::uint32_t* slot, const float* results,
                                         const float* dy, std::size_t cols, T* d_results,
                                         float* d_weights) {
  const std::size_t choice = ThreadIndex() / kWarp;
  if (choice >= routing.rows * top_k) return;
  const float weight = routing.weights[choice];
  const float* const gradient = dy + choice / top_k * cols;
  const std::size_t at = slot[choice] * cols;
  double dot = 0.0;
  for (std::size_t c = threadIdx.x % kWarp; c < cols; c += kWarp) {
    Store(d_results + at + c, weight * gradient[c]);
    dot += static_cast<double>(gradient[c]) * results[at + c];
  }
  for (int width = kWarp / 2; width > 0; width /= 2) {
    dot += __shfl_xor_sync(kAllLanes, dot, width);
  }
  if (threadIdx.x % kWarp == 0) d_weights[choice] = static_cast<float>(dot);
}

__global__ void AddInputGradientsKernel(std::size_t rows, std::size_t top_k,
                                        const std::uint32_t* slot, const float* d_inputs,
                                        const float* d_router, std::size_t cols, float* d_x) {
  const std::size_t i = ThreadIndex();
  if (i >= rows * cols) return;
  float sum = d_x[i];
  for (std::size_t k = 0; k < top_k; ++k) {
    sum = sum + d_inputs[slot[i / cols * top_k + k] * cols + i % cols];
  }
  d_x[i] = sum + d_router[i];
}

__global__ void SurplusKernel(DeviceRouting routing, std::size_t top_k, float* gradient) {
  const std::size_t e = ThreadIndex();
  if (e >= routing.experts) return;
  const double mean =
      static_cast<double>(routing.rows * top_k) / static_cast<double>(routing.experts);
  gradient[e] = gradient[e] + static_cast<float>(static_cast<double>(routing.counts[e]) - mean);
}

__global__ void BalanceKernel(float rate, std::size_t size, const float* gradient, float* bias) {
  const std::size_t e = ThreadIndex();
  if (e >= size) return;
  if (gradient[e] > 0.0f) bias[e] = bias[e] - rate;
  if (gradient[e] < 0.0f) bias[e] = bias[e] + rate;
}

template <class Kernel, class... Arguments>
void Launch(const char* what, Kernel kernel, std::size_t threads, cudaStream_t stream,
            Arguments... arguments) {
  if (threads == 0) return;
  kernel<<<Blocks(threads, kThreads), kThreads, 0, stream>>>(arguments...);
  CheckLaunch(what);
}

}  // namespace

void Route(const RouterOptions& options, const float* logits, const float* bias,
           const DeviceRouting& routing, cudaStream_t stream) {
  Expects(options.top_k >= 1 && options.top_k <= routing.experts, "Route: 1 <= top_k <= E");
  Launch("Route", RouteKernel, routing.rows, stream, options, logits, bias, routing);
  RankKernel<<<static_cast<unsigned>(routing.experts), kThreads, 0, stream>>>(
      routing, routing.rows * options.top_k);
  CheckLaunch("Route");
}

void RouteBackward(const RouterOptions& options, const DeviceRouting& routing,
                   const float* d_weights, float loss_scale, float* d_logits, cudaStream_t stream) {
  Launch("RouteBackward", RouteBackwardKernel, routing.rows, stream, options, routing, d_weights,
         loss_scale, d_logits);
}

void PlaceSlots(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* first,
                std::size_t slots, std::uint32_t* slot, std::uint32_t* token, cudaStream_t stream) {
  Check(cudaMemsetAsync(token, 0xFF, slots * sizeof *token, stream), "memset");
  const std::size_t choices = routing.rows * top_k;
  Launch("PlaceSlots", PlaceKernel, choices, stream, routing, top_k, choices, first, slot, token);
}

template <class T>
void GatherRows(const float* x, const std::uint32_t* token, std::size_t slots, std::size_t cols,
                T* gathered, cudaStream_t stream) {
  Launch("GatherRows", GatherKernel<T>, slots * cols, stream, x, token, slots, cols, gathered);
}

void AddExperts(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                const float* results, std::size_t cols, float* out, cudaStream_t stream) {
  Launch("AddExperts", AddExpertsKernel, routing.rows * cols, stream, routing, top_k, slot, results,
         cols, out);
}

template <class T>
void AddExpertsBackward(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                        std::size_t slots, const float* results, const float* dy, std::size_t cols,
                        T* d_results, float* d_weights, cudaStream_t stream) {
  Check(cudaMemsetAsync(d_results, 0, slots * cols * sizeof *d_results, stream), "memset");
  Launch("AddExpertsBackward", AddExpertsBackwardKernel<T>, routing.rows * top_k * kWarp, stream,
         routing, top_k, slot, results, dy, cols, d_results, d_weights);
}

void AddInputGradients(std::size_t rows, std::size_t top_k, const std::uint32_t* slot,
                       const float* d_inputs, const float* d_router, std::size_t cols, float* d_x,
                       cudaStream_t stream) {
  Launch("AddInputGradients", AddInputGradientsKernel, rows * cols, stream, rows, top_k, slot,
         d_inputs, d_router, cols, d_x);
}

void AddSurplus(const DeviceRouting& routing, std::size_t top_k, float* gradient,
                cudaStream_t stream) {
  Launch("AddSurplus", SurplusKernel, routing.experts, stream, routing, top_k, gradient);
}

void BalanceStep(float rate, std::size_t size, const float* gradient, float* bias,
                 cudaStream_t stream) {
  Launch("BalanceStep", BalanceKernel, size, stream, rate, size, gradient, bias);
}

template void GatherRows(const float*, const std::uint32_t*, std::size_t, std::size_t, float*,
                         cudaStream_t);
template void GatherRows(const float*, const std::uint32_t*, std::size_t, std::size_t, Bf16*,
                         cudaStream_t);
template void AddExpertsBackward(const DeviceRouting&, std::size_t, const std::uint32_t*,
                                 std::size_t, const float*, const float*, std::size_t, float*,
                                 float*, cudaStream_t);
template void AddExpertsBackward(const DeviceRouting&, std::size_t, const std::uint32_t*,
                                 std::size_t, const float*, const float*, std::size_t, Bf16*,
                                 float*, cudaStream_t);

}  // namespace fp4lab::gpu
