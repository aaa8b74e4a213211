// Muon (nn/optimizer/muon.h) on the device. Momentum, norm, rounding and update have the CPU's bits
// for the same inputs; the products of Newton-Schulz are cuBLASLt's, which adds up in an order of
// its own.
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
// Of a batch: 16 matrices of 512 x 512 fill a GPU's multiprocessors, and their BF16 numbers its L2.
constexpr std::size_t kBatchElements = std::size_t{1} << 22;

__device__ inline float RoundedBf16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

// Element i of a weight (rows, cols) in X, which is the weight or, if that is higher than wide, its
// transposed.
__device__ inline std::size_t PlaceInWide(std::size_t i, std::size_t rows, std::size_t cols) {
  return rows > cols ? i % cols * rows + i / cols : i;
}

// A matrix per row of the grid: gradient + offsets[i] and m + offsets[i] (rows, cols), X (batch, n,
// k). The new momentum, and the direction that Newton-Schulz makes orthogonal.
__global__ void MomentumKernel(Muon o, const std::size_t* offsets, std::size_t rows,
                               std::size_t cols, const float* gradient, float* m, float* x) {
  const std::size_t i = ThreadIndex(), size = rows * cols;
  if (i >= size) return;
  const std::size_t at = offsets[blockIdx.y] + i;
  const float old = o.momentum, fresh = 1.0f - o.momentum;
  const float g = gradient[at] * o.gradient_scale;
  const float moment = old * m[at] + fresh * g;
  m[at] = moment;
  const float direction = o.nesterov ? old * moment + fresh * g : moment;
  x[blockIdx.y * size + PlaceInWide(i, rows, cols)] = o.bf16 ? RoundedBf16(direction) : direction;
}

// divisors(i) = the square root of the sum of matrix i's partial sums, in order, plus epsilon.
__global__ void DivisorKernel(const double* partials, std::size_t count, bool bf16,
                              float* divisors) {
  double sum = 0.0;
#pragma unroll 8
  for (std::size_t i = 0; i < count; ++i) sum += partials[blockIdx.x * count + i];
  const float norm = static_cast<float>(sqrt(sum));
  divisors[blockIdx.x] =
      bf16 ? RoundedBf16(RoundedBf16(norm) + kNewtonSchulzEpsilon) : norm + kNewtonSchulzEpsilon;
}

template <class T>
__global__ void DivideKernel(std::size_t size, const float* from, const float* divisors, T* to) {
  const std::size_t i = ThreadIndex(), at = blockIdx.y * size + i;
  if (i < size) Store(to + at, from[at] / divisors[blockIdx.y]);
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
__global__ void UpdateKernel(Muon o, const std::size_t* offsets, std::size_t rows, std::size_t cols,
                             const T* x, float* weight) {
  const std::size_t i = ThreadIndex(), size = rows * cols;
  if (i >= size) return;
  float* const place = weight + offsets[blockIdx.y] + i;
  const float direction = Load(x + blockIdx.y * size + PlaceInWide(i, rows, cols)), w = *place;
  *place = w - o.learning_rate * (o.scale * direction + o.weight_decay * w);
}

template <class Kernel, class... Arguments>
void Launch(Kernel kernel, std::size_t size, std::size_t batch, cudaStream_t stream,
            Arguments... arguments) {
  const dim3 grid(Blocks(size, kThreads), static_cast<unsigned>(batch));
  kernel<<<grid, kThreads, 0, stream>>>(arguments...);
  CheckLaunch("MuonStep");
}

class MuonOptimizer final : public DeviceOptimizer {
 public:
  MuonOptimizer(const OptimizerConfig& config, std::span<const ParameterGroup> groups,
                cudaStream_t stream)
      : config_(config), stream_(stream) {
    std::vector<MuonBatch> all;
    for (const ParameterGroup& group : groups) {
      const std::vector<MuonBatch> batches = BatchesOf(group);
      all.insert(all.end(), batches.begin(), batches.end());
    }
    step_.emplace(all, config.muon.bf16, stream);
  }

  void Update(const UpdateStep& step, const ParameterGroup& group,
              const DeviceOptimizerNumbers& numbers) override {
    if (group.kind != ParameterKind::kMatrices) {
      return AdamWUpdate(config_, step, group, numbers, stream_);
    }
    for (const MuonBatch& batch : BatchesOf(group)) {
      step_->Run(MuonOf(config_, step, group, batch.rows, batch.cols), batch, numbers.gradients,
                 numbers.parameters, numbers.states[0].data());
    }
  }

 private:
  std::vector<MuonBatch> BatchesOf(const ParameterGroup& group) const {
    if (group.kind != ParameterKind::kMatrices) return {};
    return MuonBatches(MuonMatrices(config_, group), kBatchElements);
  }

  OptimizerConfig config_;
  cudaStream_t stream_;
  std::optional<MuonStepOnDevice> step_;
};

std::unique_ptr<DeviceOptimizer> Make(const OptimizerConfig& config,
                                      std::span<const ParameterGroup> groups, cudaStream_t stream) {
  return std::make_unique<MuonOptimizer>(config, groups, stream);
}

}  // namespace

MuonStepOnDevice::MuonStepOnDevice(std::span<const MuonBatch> batches, bool bf16,
                                   cudaStream_t stream)
    : stream_(stream), gemms_(stream), factor_(1) {
  std::size_t squares = 0, size = 0, partials = 0, count = 0;
  for (const MuonBatch& b : batches) {
    const std::size_t n = std::min(b.rows, b.cols), matrices = b.offsets.size();
    squares = std::max(squares, matrices * n * n);
    size = std::max(size, matrices * b.rows * b.cols);
    partials = std::max(partials, matrices * DivideUp(b.rows * b.cols, kSquaresChunk));
    count = std::max(count, matrices);
  }
  direction_ = DeviceArray<float>(size);
  partials_ = DeviceArray<double>(partials);
  offsets_ = DeviceArray<std::size_t>(count);
  divisors_ = DeviceArray<float>(count);
  factor_.CopyFrom(std::vector<float>{kNewtonSchulzC}, stream);
  Check(cudaStreamSynchronize(stream), "copy to the GPU");
  bf16 ? Take(squares, size, &narrow_) : Take(squares, size, &wide_);
}

template <class T>
void MuonStepOnDevice::Take(std::size_t squares, std::size_t size, Memory<T>* memory) {
  memory->squares = DeviceArray<T>(squares);
  memory->polynomial = DeviceArray<T>(squares);
  if (std::is_same_v<T, Bf16>) memory->scaled = DeviceArray<T>(squares);
  memory->x = DeviceArray<T>(size);
  memory->next = DeviceArray<T>(size);
}

void MuonStepOnDevice::Iterate(int steps, std::size_t n, std::size_t k, std::size_t batch,
                               Memory<float>* memory) {
  Memory<float>& m = *memory;
  for (int i = 0; i < steps; ++i) {
    gemms_.Run(GemmProblem<float>{.m = n,
                                  .n = n,
                                  .k = k,
                                  .a = m.x.data(),
                                  .b = m.x.data(),
                                  .b_transposed = true,
                                  .d = m.squares.data(),
                                  .batch = batch});
    Launch(ScaleKernel<float>, batch * n * n, 1, stream_, kNewtonSchulzB, batch * n * n,
           m.squares.data(), m.polynomial.data());
    gemms_.Run(GemmProblem<float>{.m = n,
                                  .n = n,
                                  .k = n,
                                  .a = m.squares.data(),
                                  .b = m.squares.data(),
                                  .alpha = factor_.data(),
                                  .c = m.polynomial.data(),
                                  .d = m.polynomial.data(),
                                  .batch = batch});
    Launch(ScaleKernel<float>, batch * n * k, 1, stream_, kNewtonSchulzA, batch * n * k, m.x.data(),
           m.next.data());
    gemms_.Run(GemmProblem<float>{.m = n,
                                  .n = k,
                                  .k = n,
                                  .a = m.polynomial.data(),
                                  .b = m.x.data(),
                                  .c = m.next.data(),
                                  .d = m.next.data(),
                                  .batch = batch});
    std::swap(m.x, m.next);
  }
}

void MuonStepOnDevice::Iterate(int steps, std::size_t n, std::size_t k, std::size_t batch,
                               Memory<Bf16>* memory) {
  Memory<Bf16>& m = *memory;
  for (int i = 0; i < steps; ++i) {
    gemms_.Run(GemmProblem<Bf16, Bf16>{.m = n,
                                       .n = n,
                                       .k = k,
                                       .a = m.x.data(),
                                       .b = m.x.data(),
                                       .b_transposed = true,
                                       .d = m.squares.data(),
                                       .batch = batch});
    Launch(ScaleKernel<Bf16>, batch * n * n, 1, stream_, kNewtonSchulzC, batch * n * n,
           m.squares.data(), m.scaled.data());
    gemms_.Run(GemmProblem<Bf16, Bf16>{.m = n,
                                       .n = n,
                                       .k = n,
                                       .a = m.scaled.data(),
                                       .b = m.squares.data(),
                                       .d = m.polynomial.data(),
                                       .batch = batch});
    Launch(AddRoundedKernel, batch * n * n, 1, stream_, kNewtonSchulzB, batch * n * n,
           m.squares.data(), m.polynomial.data());
    gemms_.Run(GemmProblem<Bf16, Bf16>{.m = n,
                                       .n = k,
                                       .k = n,
                                       .a = m.polynomial.data(),
                                       .b = m.x.data(),
                                       .d = m.next.data(),
                                       .batch = batch});
    Launch(AddRoundedKernel, batch * n * k, 1, stream_, kNewtonSchulzA, batch * n * k, m.x.data(),
           m.next.data());
    std::swap(m.x, m.next);
  }
}

void MuonStepOnDevice::Run(const Muon& options, const MuonBatch& batch, const float* gradient,
                           float* weight, float* m) {
  const std::size_t rows = batch.rows, cols = batch.cols, size = rows * cols;
  const std::size_t count = batch.offsets.size();
  if (size * count == 0) return;
  offsets_.CopyFrom(batch.offsets, stream_);
  Launch(MomentumKernel, size, count, stream_, options, offsets_.data(), rows, cols, gradient, m,
         direction_.data());
  SumSquares(direction_.data(), size, partials_.data(), stream_, count);
  DivisorKernel<<<static_cast<unsigned>(count), 1, 0, stream_>>>(
      partials_.data(), DivideUp(size, kSquaresChunk), options.bf16, divisors_.data());
  CheckLaunch("MuonStep");
  const auto orthogonal = [&](auto* memory) {
    using T = std::remove_pointer_t<decltype(memory->x.data())>;
    Launch(DivideKernel<T>, size, count, stream_, size, direction_.data(), divisors_.data(),
           memory->x.data());
    Iterate(options.steps, std::min(rows, cols), std::max(rows, cols), count, memory);
    Launch(UpdateKernel<T>, size, count, stream_, options, offsets_.data(), rows, cols,
           memory->x.data(), weight);
  };
  options.bf16 ? orthogonal(&narrow_) : orthogonal(&wide_);
}

extern const DeviceOptimizerRow kDeviceMuon;
const DeviceOptimizerRow kDeviceMuon{"muon", Make};

}  // namespace fp4lab::gpu
