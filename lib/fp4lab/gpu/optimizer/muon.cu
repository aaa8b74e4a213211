// Muon (nn/optimizer/muon.h) on the device. Momentum, norm, rounding and update have the CPU's bits for the
// same inputs; the products of Newton-Schulz are cuBLASLt's, which adds up in an order of its own.
#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/gemm/gemm.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"
#include "fp4lab/gpu/optimizer/adamw.cuh"
#include "fp4lab/gpu/optimizer/muon.cuh"
#include "fp4lab/train/optimizer/muon_matrices.h"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;

__device__ inline float RoundedBf16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

// Element i of a weight (rows, cols) in X, which is the weight or, if that is higher than wide, its
// transposed.
__device__ inline std::size_t PlaceInWide(std::size_t i, std::size_t rows, std::size_t cols) {
  return rows > cols ? i % cols * rows + i / cols : i;
}

// The new momentum, and the direction that Newton-Schulz makes orthogonal.
__global__ void MomentumKernel(Muon o, std::size_t rows, std::size_t cols, const float* gradient,
                               float* m, float* x) {
  const std::size_t i = ThreadIndex();
  if (i >= rows * cols) return;
  const float old = o.momentum, fresh = 1.0f - o.momentum;
  const float g = gradient[i] * o.gradient_scale;
  const float moment = old * m[i] + fresh * g;
  m[i] = moment;
  const float direction = o.nesterov ? old * moment + fresh * g : moment;
  x[PlaceInWide(i, rows, cols)] = o.bf16 ? RoundedBf16(direction) : direction;
}

// divisor = the square root of the sum of the partial sums, in order, plus epsilon.
__global__ void DivisorKernel(const double* partials, std::size_t count, bool bf16,
                              float* divisor) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += partials[i];
  const float norm = static_cast<float>(sqrt(sum));
  *divisor =
      bf16 ? RoundedBf16(RoundedBf16(norm) + kNewtonSchulzEpsilon) : norm + kNewtonSchulzEpsilon;
}

template <class T>
__global__ void DivideKernel(std::size_t size, const float* from, const float* divisor, T* to) {
  const std::size_t i = ThreadIndex();
  if (i < size) Store(to + i, from[i] / *divisor);
}

template <class T>
__global__ void ScaleKernel(float factor, std::size_t size, const T* from, T* to) {
  const std::size_t i = ThreadIndex();
  if (i < size) Store(to + i, factor * Load(from + i));
}

// to = the rounded sum of the rounded factor * x and `to`.
__global__ void AddRoundedKernel(float factor, std::size_t size, const Bf16* x, Bf16* to) {
  const std::size_t i = ThreadIndex();
  if (i < size) Store(to + i, RoundedBf16(factor * Load(x + i)) + Load(to + i));
}

template <class T>
__global__ void UpdateKernel(Muon o, std::size_t rows, std::size_t cols, const T* x,
                             float* weight) {
  const std::size_t i = ThreadIndex();
  if (i >= rows * cols) return;
  const float direction = Load(x + PlaceInWide(i, rows, cols)), w = weight[i];
  weight[i] = w - o.learning_rate * (o.scale * direction + o.weight_decay * w);
}

template <class Kernel, class... Arguments>
void Launch(Kernel kernel, std::size_t size, cudaStream_t stream, Arguments... arguments) {
  kernel<<<Blocks(size, kThreads), kThreads, 0, stream>>>(arguments...);
  CheckLaunch("MuonStep");
}

class MuonOptimizer final : public DeviceOptimizer {
 public:
  MuonOptimizer(const OptimizerConfig& config, std::span<const ParameterGroup> groups,
                cudaStream_t stream)
      : config_(config), stream_(stream) {
    std::size_t rows = 0, size = 0;
    for (const ParameterGroup& group : groups) {
      if (group.kind != ParameterKind::kMatrices) continue;
      for (const MuonMatrix& m : MuonMatrices(config, group)) {
        rows = std::max(rows, std::min(m.rows, m.cols));
        size = std::max(size, m.rows * m.cols);
      }
    }
    step_.emplace(rows, size, config.muon.bf16, stream);
  }

  void Update(const UpdateStep& step, const ParameterGroup& group,
              const DeviceOptimizerNumbers& numbers) override {
    if (group.kind != ParameterKind::kMatrices) {
      return AdamWUpdate(config_, step, group, numbers, stream_);
    }
    for (const MuonMatrix& m : MuonMatrices(config_, group)) {
      step_->Run(MuonOf(config_, step, group, m), m.rows, m.cols, numbers.gradients + m.offset,
                 numbers.parameters + m.offset, numbers.states[0].data() + m.offset);
    }
  }

 private:
  OptimizerConfig config_;
  cudaStream_t stream_;
  std::optional<MuonStepOnDevice> step_;
};

std::unique_ptr<DeviceOptimizer> Make(const OptimizerConfig& config,
                                      std::span<const ParameterGroup> groups, cudaStream_t stream) {
  return std::make_unique<MuonOptimizer>(config, groups, stream);
}

}  // namespace

MuonStepOnDevice::MuonStepOnDevice(std::size_t rows, std::size_t size, bool bf16,
                                   cudaStream_t stream)
    : stream_(stream),
      gemms_(stream),
      direction_(size),
      partials_(DivideUp(size, kSquaresChunk)),
      numbers_(2) {
  numbers_.CopyFrom(std::vector<float>{0.0f, kNewtonSchulzC}, stream);
  Check(cudaStreamSynchronize(stream), "copy to the GPU");
  bf16 ? Take(rows, size, &narrow_) : Take(rows, size, &wide_);
}

template <class T>
void MuonStepOnDevice::Take(std::size_t rows, std::size_t size, Memory<T>* memory) {
  memory->squares = DeviceArray<T>(rows * rows);
  memory->polynomial = DeviceArray<T>(rows * rows);
  if (std::is_same_v<T, Bf16>) memory->scaled = DeviceArray<T>(rows * rows);
  memory->x = DeviceArray<T>(size);
  memory->next = DeviceArray<T>(size);
}

void MuonStepOnDevice::Iterate(int steps, std::size_t n, std::size_t k, Memory<float>* memory) {
  Memory<float>& m = *memory;
  for (int i = 0; i < steps; ++i) {
    gemms_.Run(GemmProblem<float>{.m = n,
                                  .n = n,
                                  .k = k,
                                  .a = m.x.data(),
                                  .b = m.x.data(),
                                  .b_transposed = true,
                                  .d = m.squares.data()});
    Launch(ScaleKernel<float>, n * n, stream_, kNewtonSchulzB, n * n, m.squares.data(),
           m.polynomial.data());
    gemms_.Run(GemmProblem<float>{.m = n,
                                  .n = n,
                                  .k = n,
                                  .a = m.squares.data(),
                                  .b = m.squares.data(),
                                  .alpha = numbers_.data() + 1,
                                  .c = m.polynomial.data(),
                                  .d = m.polynomial.data()});
    Launch(ScaleKernel<float>, n * k, stream_, kNewtonSchulzA, n * k, m.x.data(), m.next.data());
    gemms_.Run(GemmProblem<float>{.m = n,
                                  .n = k,
                                  .k = n,
                                  .a = m.polynomial.data(),
                                  .b = m.x.data(),
                                  .c = m.next.data(),
                                  .d = m.next.data()});
    std::swap(m.x, m.next);
  }
}

void MuonStepOnDevice::Iterate(int steps, std::size_t n, std::size_t k, Memory<Bf16>* memory) {
  Memory<Bf16>& m = *memory;
  for (int i = 0; i < steps; ++i) {
    gemms_.Run(GemmProblem<Bf16, Bf16>{.m = n,
                                       .n = n,
                                       .k = k,
                                       .a = m.x.data(),
                                       .b = m.x.data(),
                                       .b_transposed = true,
                                       .d = m.squares.data()});
    Launch(ScaleKernel<Bf16>, n * n, stream_, kNewtonSchulzC, n * n, m.squares.data(),
           m.scaled.data());
    gemms_.Run(GemmProblem<Bf16, Bf16>{.m = n,
                                       .n = n,
                                       .k = n,
                                       .a = m.scaled.data(),
                                       .b = m.squares.data(),
                                       .d = m.polynomial.data()});
    Launch(AddRoundedKernel, n * n, stream_, kNewtonSchulzB, n * n, m.squares.data(),
           m.polynomial.data());
    gemms_.Run(GemmProblem<Bf16, Bf16>{
        .m = n, .n = k, .k = n, .a = m.polynomial.data(), .b = m.x.data(), .d = m.next.data()});
    Launch(AddRoundedKernel, n * k, stream_, kNewtonSchulzA, n * k, m.x.data(), m.next.data());
    std::swap(m.x, m.next);
  }
}

void MuonStepOnDevice::Run(const Muon& options, std::size_t rows, std::size_t cols,
                           const float* gradient, float* weight, float* m) {
  const std::size_t size = rows * cols;
  if (size == 0) return;
  Launch(MomentumKernel, size, stream_, options, rows, cols, gradient, m, direction_.data());
  SumSquares(direction_.data(), size, partials_.data(), stream_);
  DivisorKernel<<<1, 1, 0, stream_>>>(partials_.data(), DivideUp(size, kSquaresChunk), options.bf16,
                                      numbers_.data());
  CheckLaunch("MuonStep");
  const auto orthogonal = [&](auto* memory) {
    using T = std::remove_pointer_t<decltype(memory->x.data())>;
    Launch(DivideKernel<T>, size, stream_, size, direction_.data(), numbers_.data(),
           memory->x.data());
    Iterate(options.steps, std::min(rows, cols), std::max(rows, cols), memory);
    Launch(UpdateKernel<T>, size, stream_, options, rows, cols, memory->x.data(), weight);
  };
  options.bf16 ? orthogonal(&narrow_) : orthogonal(&wide_);
}

extern const DeviceOptimizerRow kDeviceMuon;
const DeviceOptimizerRow kDeviceMuon{"muon", Make};

}  // namespace fp4lab::gpu
