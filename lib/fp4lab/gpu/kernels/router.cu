
#include "fp4lab/base/divide_up.h"
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

// How many of a chunk's choices are of each expert: before (chunks, E).
__global__ void CountKernel(DeviceRouting to, std::size_t choices) {
  extern __shared__ std::uint32_t counts[];
  for (std::size_t e = threadIdx.x; e < to.experts; e += kRankChunk) counts[e] = 0;
  __syncthreads();
  const std::size_t i = ThreadIndex();
  if (i < choices) atomicAdd(&counts[to.chosen[i]], 1u);
  __syncthreads();
  for (std::size_t e = threadIdx.x; e < to.experts; e += kRankChunk) {
    to.before[blockIdx.x * to.experts + e] = counts[e];
  }
}

// One warp per expert turns the counts into the numbers of choices before each chunk.
__global__ void ScanKernel(DeviceRouting to, std::size_t chunks) {
  const std::size_t expert = blockIdx.x;
  const unsigned lane = threadIdx.x;
  std::uint32_t total = 0;
  for (std::size_t first = 0; first < chunks; first += kWarp) {
    const std::size_t chunk = first + lane;
    std::uint32_t* const place = to.before + chunk * to.experts + expert;
    const std::uint32_t count = chunk < chunks ? *place : 0;
    std::uint32_t sum = count;
    for (unsigned width = 1; width < kWarp; width *= 2) {
      const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, width);
      if (lane >= width) sum += other;
    }
    if (chunk < chunks) *place = total + sum - count;
    total += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  if (lane == 0) to.counts[expert] = total;
}

__global__ void RankKernel(DeviceRouting to, std::size_t choices) {
  __shared__ std::uint32_t chosen[kRankChunk];
  const std::size_t i = ThreadIndex();
  if (i < choices) chosen[threadIdx.x] = to.chosen[i];
  __syncthreads();
  if (i >= choices) return;
  const std::uint32_t expert = chosen[threadIdx.x];
  std::uint32_t rank = to.before[blockIdx.x * to.experts + expert];
  for (unsigned j = 0; j < threadIdx.x; ++j) rank += chosen[j] == expert ? 1 : 0;
  to.rank[i] = rank;
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
  const std::size_t choices = routing.rows * options.top_k;
  const unsigned chunks = Blocks(choices, kRankChunk);
  CountKernel<<<chunks, kRankChunk, routing.experts * sizeof(std::uint32_t), stream>>>(routing,
                                                                                       choices);
  ScanKernel<<<static_cast<unsigned>(routing.experts), kWarp, 0, stream>>>(routing, chunks);
  RankKernel<<<chunks, kRankChunk, 0, stream>>>(routing, choices);
  CheckLaunch("Route");
}

void RouteBackward(const RouterOptions& options, const DeviceRouting& routing,
                   const float* d_weights, float loss_scale, float* d_logits, cudaStream_t stream) {
  Launch("RouteBackward", RouteBackwardKernel, routing.rows, stream, options, routing, d_weights,
         loss_scale, d_logits);
}

void AddSurplus(const DeviceRouting& routing, std::size_t top_k, float* gradient,
                cudaStream_t stream) {
  Launch("AddSurplus", SurplusKernel, routing.experts, stream, routing, top_k, gradient);
}

void BalanceStep(float rate, std::size_t size, const float* gradient, float* bias,
                 cudaStream_t stream) {
  Launch("BalanceStep", BalanceKernel, size, stream, rate, size, gradient, bias);
}

}  // namespace fp4lab::gpu
