// Softmax cross-entropy in the order of nn/loss.cc.
#include <algorithm>
#include <type_traits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/gpu/gemm/mma.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kHalfWarp;

struct RowSoftmax {
  float max, sum;
};

// Reductions of a row by a half-warp.
__device__ float MaxOfRow(const float* z, std::size_t vocabulary, unsigned lane) {
  float max = __int_as_float(0xFF800000);
  for (std::size_t c = lane; c < vocabulary; c += kHalfWarp) max = z[c] > max ? z[c] : max;
  return MaxOfLanes(max);
}

template <class Value>
__device__ float SumOfRow(std::size_t vocabulary, unsigned lane, const Value& value) {
  float sum = 0.0f;
  for (std::size_t c = lane; c < vocabulary; c += kHalfWarp) sum = sum + value(c);
  return SumOfLanes(sum);
}

// The maximum and the sum of exponentials of a row.
__device__ RowSoftmax SoftmaxOfRow(const float* z, std::size_t vocabulary, unsigned lane) {
  const float max = MaxOfRow(z, vocabulary, lane);
  return {max,
          SumOfRow(vocabulary, lane, [&](std::size_t c) { return ExpNonPositive(z[c] - max); })};
}

__device__ inline double RowLoss(float sum, float target, float max) {
  return fp4lab::Log(sum) - (static_cast<double>(target) - static_cast<double>(max));
}

// A row's factor of the exponentials in the gradient, with the z-loss if there is one.
__device__ inline float FactorOfRow(float scale, const LossOptions& options,
                                    const RowSoftmax& softmax) {
  const float factor = scale * (1.0f / softmax.sum);
  if (!(options.z_loss > 0.0f)) return factor;
  const float lse = static_cast<float>(softmax.max + fp4lab::Log(softmax.sum));
  return factor * (1.0f + 2.0f * options.z_loss * lse);
}

// The gradient of a logit taken back through the soft cap, if there is one, whose result is z.
__device__ inline float BackThroughSoftCap(float gradient, float z, float soft_cap) {
  if (!(soft_cap > 0.0f)) return gradient;
  const float t = z / soft_cap;
  return gradient * (1.0f - t * t);
}

// The gradient of a logit z, taken back through the soft cap if there is one.
__device__ inline float GradientOfLogit(float z, float max, float factor, float scale,
                                        bool is_target, float soft_cap) {
  float gradient = ExpNonPositive(z - max) * factor;
  if (is_target) gradient = gradient - scale;
  return BackThroughSoftCap(gradient, z, soft_cap);
}

__global__ void SoftCapKernel(float cap, std::size_t size, float* logits) {
  const std::size_t i = ThreadIndex();
  if (i >= size) return;
  const float x = logits[i] / cap;
  logits[i] = cap * (1.0f - 2.0f / (Exp(x + x) + 1.0f));
}

__global__ void MultiplyKernel(float factor, std::size_t size, float* logits) {
  const std::size_t i = ThreadIndex();
  if (i < size) logits[i] = factor * logits[i];
}

// If dlogits is null, only the losses are computed.
template <class T>
__global__ void CrossEntropyKernel(const float* logits, const std::uint16_t* targets, float scale,
                                   LossOptions options, float multiplier, std::size_t rows,
                                   std::size_t vocabulary, double* row_loss, T* dlogits) {
  const std::size_t wanted = std::size_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kHalfWarp;
  const std::size_t row = wanted < rows ? wanted : rows - 1;
  const unsigned lane = threadIdx.x % kHalfWarp;
  const float* z = logits + row * vocabulary;
  const std::size_t target = targets[row];
  const RowSoftmax softmax = SoftmaxOfRow(z, vocabulary, lane);
  if (lane == 0) row_loss[row] = RowLoss(softmax.sum, z[target], softmax.max);
  if (dlogits == nullptr || wanted >= rows) return;
  const float factor = FactorOfRow(scale, options, softmax);
  for (std::size_t c = lane; c < vocabulary; c += kHalfWarp) {
    Store(dlogits + row * vocabulary + c,
          multiplier *
              GradientOfLogit(z[c], softmax.max, factor, scale, c == target, options.soft_cap));
  }
}

// ---- With a teacher, whatever the width: a half-warp per row

template <class T>
__global__ void TeacherLossKernel(const float* logits, const std::uint16_t* targets,
                                  float whole_scale, LossOptions options, float multiplier,
                                  DeviceTeacherLoss teacher, std::size_t rows,
                                  std::size_t vocabulary, double* row_loss, T* dlogits) {
  const std::size_t wanted = std::size_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kHalfWarp;
  const std::size_t row = wanted < rows ? wanted : rows - 1, target = targets[row];
  const unsigned lane = threadIdx.x % kHalfWarp;
  const float *const z = logits + row * vocabulary, *const t = teacher.logits + row * vocabulary;
  const RowSoftmax softmax = SoftmaxOfRow(z, vocabulary, lane);
  const float max = softmax.max, teacher_max = MaxOfRow(t, vocabulary, lane);
  const float i = 1.0f / teacher.temperature;
  const auto q = [&](std::size_t c) { return ExpNonPositive((z[c] - max) * i); };
  const auto p = [&](std::size_t c) { return ExpNonPositive((t[c] - teacher_max) * i); };
  const float q_sum = SumOfRow(vocabulary, lane, q), p_sum = SumOfRow(vocabulary, lane, p);
  const float divergence = SumOfRow(vocabulary, lane, [&](std::size_t c) {
    return p(c) * (((t[c] - teacher_max) - (z[c] - max)) * i);
  });
  if (lane == 0) {
    row_loss[row] = RowLoss(softmax.sum, z[target], max);
    teacher.row_kl[row] = static_cast<double>(divergence) / static_cast<double>(p_sum) -
                          fp4lab::Log(p_sum) + fp4lab::Log(q_sum);
  }
  const float scale = whole_scale * (1.0f - teacher.share);
  const float factor = FactorOfRow(scale, options, softmax);
  const float pull = whole_scale * (teacher.share * teacher.temperature);
  const float of_q = pull * (1.0f / q_sum), of_p = pull * (1.0f / p_sum);
  for (std::size_t c = lane; c < vocabulary; c += kHalfWarp) {
    float gradient = GradientOfLogit(z[c], max, factor, scale, c == target, 0.0f);
    gradient = gradient + (q(c) * of_q - p(c) * of_p);
    Store(dlogits + row * vocabulary + c,
          multiplier * BackThroughSoftCap(gradient, z[c], options.soft_cap));
  }
}

// ---- Wide rows: one thread block per row. The first warp holds the 16 virtual lanes and adds the
// exponentials of one piece while the other warps compute the next piece. Successive passes read
// the row from alternating ends, so that the cache holds the elements that a pass reads first.

constexpr int kWideThreads = 768, kWorkers = kWideThreads - 32, kOfWorker = 8;
constexpr int kPiece = kWorkers * kOfWorker;
constexpr std::size_t kWideFrom = 4096;

template <int kThreadsOfBlock>
__device__ float MaxOfBlock(float max) {
  __shared__ float warps[kThreadsOfBlock / 32];
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, max, width);
    max = other > max ? other : max;
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = max;
  __syncthreads();
  max = warps[0];
  for (int i = 1; i < kThreadsOfBlock / 32; ++i) max = warps[i] > max ? warps[i] : max;
  return max;
}

// Reads kRows rows of kHalfWarp numbers, for a warp: thread i gets number i % 16 of each. To
// ldmatrix a row is four lines of 16 bytes, of which thread i gets word i % 4 of line i / 4 % 4.
template <unsigned kRows>
__device__ inline void ReadRows(std::uint32_t rows, float (&x)[kRows]) {
  constexpr unsigned kRowBytes = kHalfWarp * sizeof(float), kRowsOfRead = 4;
  const unsigned line = threadIdx.x / 8 % kRowsOfRead * kRowBytes + threadIdx.x % 4 * 16;
#pragma unroll
  for (unsigned first = 0; first < kRows; first += kRowsOfRead) {
    std::uint32_t words[kRowsOfRead];
    LoadMatrices(rows + first * kRowBytes + line, words);
#pragma unroll
    for (unsigned i = 0; i < kRowsOfRead; ++i) x[first + i] = __uint_as_float(words[i]);
  }
}

template <unsigned kRows>
__device__ inline void AddRows(const float (&x)[kRows], float* sum) {
#pragma unroll
  for (unsigned i = 0; i < kRows; ++i) *sum = *sum + x[i];
}

// Adds `count` numbers in shared memory, number i to the sum of virtual lane i % 16, which thread i
// and thread i + 16 of the warp hold. kRows rows are read while the ones before them are added, so
// that an addition waits for the last one alone. `numbers`: 16-byte aligned.
template <unsigned kRows>
__device__ float AddedToLanes(float sum, const float* numbers, unsigned count) {
  constexpr unsigned kAtOnce = kRows * kHalfWarp;
  constexpr unsigned kBytes = kAtOnce * sizeof(float);
  const unsigned pairs = count / (2 * kAtOnce);
  if (pairs != 0) {
    std::uint32_t rows = cuda::SharedAddress(numbers);
    const std::uint32_t last = rows + (2 * pairs - 1) * kBytes;
    float x[kRows], next[kRows];
    ReadRows(rows, x);
#pragma unroll 1
    for (; rows < last; rows += 2 * kBytes) {
      ReadRows(rows + kBytes, next);
      AddRows(x, &sum);
      ReadRows(min(rows + 2 * kBytes, last), x);  // after the last pair, rows that nobody adds
      AddRows(next, &sum);
    }
  }
  for (unsigned i = pairs * 2 * kAtOnce + threadIdx.x % kHalfWarp; i < count; i += kHalfWarp) {
    sum = sum + numbers[i];
  }
  return sum;
}

// The sum of the first warp's virtual lanes, for all threads of the block, which all call it.
__device__ float SumForBlock(float lane) {
  __shared__ float result;
  if (threadIdx.x < 32) {
    const float sum = SumOfLanes(lane);
    if (threadIdx.x == 0) result = sum;
  }
  __syncthreads();
  return result;
}

__device__ float SumOfExponentials(const float* z, std::size_t vocabulary, float max) {
  __shared__ alignas(16) float pieces[2][kPiece];
  const std::size_t count = DivideUp(vocabulary, kPiece);
  float sum = 0.0f;
  for (std::size_t piece = 0; piece <= count; ++piece) {
    if (threadIdx.x >= 32 && piece < count) {
      const int first = static_cast<int>(threadIdx.x) - 32;
      const std::size_t from = piece * kPiece + first;
      float v[kOfWorker];  // all loaded before the first is used
#pragma unroll
      for (int i = 0; i < kOfWorker; ++i) {
        const std::size_t c = from + i * kWorkers;
        v[i] = z[c < vocabulary ? c : vocabulary - 1];
      }
#pragma unroll
      for (int i = 0; i < kOfWorker; ++i) {
        pieces[piece % 2][first + i * kWorkers] = ExpNonPositive(v[i] - max);
      }
    } else if (threadIdx.x < 32 && piece > 0) {
      const std::size_t left = vocabulary - (piece - 1) * kPiece;
      const unsigned end = left < kPiece ? static_cast<unsigned>(left) : kPiece;
      sum = AddedToLanes<8>(sum, pieces[(piece - 1) % 2], end);
    }
    __syncthreads();
  }
  return SumForBlock(sum);
}

template <class T>
__global__ void __launch_bounds__(kWideThreads, 2)
    WideCrossEntropyKernel(const float* __restrict__ logits, const std::uint16_t* targets,
                           float scale, LossOptions options, float multiplier,
                           std::size_t vocabulary, double* row_loss, T* __restrict__ dlogits) {
  const std::size_t row = blockIdx.x, target = targets[row];
  const float* z = logits + row * vocabulary;
  float max = __int_as_float(0xFF800000);
#pragma unroll 8
  for (std::size_t i = threadIdx.x; i < vocabulary; i += kWideThreads) {
    const float value = z[vocabulary - 1 - i];
    max = value > max ? value : max;
  }
  max = MaxOfBlock<kWideThreads>(max);
  const float sum = SumOfExponentials(z, vocabulary, max);
  if (threadIdx.x == 0) row_loss[row] = RowLoss(sum, z[target], max);
  if (dlogits == nullptr) return;
  const float factor = FactorOfRow(scale, options, {max, sum});
#pragma unroll 8
  for (std::size_t i = threadIdx.x; i < vocabulary; i += kWideThreads) {
    const std::size_t c = vocabulary - 1 - i;
    Store(dlogits + row * vocabulary + c,
          multiplier * GradientOfLogit(z[c], max, factor, scale, c == target, options.soft_cap));
  }
}

// ---- Wide rows that shared memory holds: a thread block reads a row once. Threads replace its
// logits by their exponentials, the first warp adds those as above, and each thread fetches the
// next row into the places of the exponentials that it has used. The other warps of the first
// warp's scheduler wait meanwhile, so that nothing delays an addition.

constexpr int kHeldThreads = 1024, kSchedulers = 4;
constexpr int kHeldWorkers = kHeldThreads / kSchedulers * (kSchedulers - 1), kHeldOfWorker = 8;
constexpr int kHeldPiece = kHeldWorkers * kHeldOfWorker;
constexpr int kHeldAtOnce = 8;  // elements that a thread reads before it stores their gradients
constexpr std::size_t kHeldStatic = 256;  // bytes of shared memory beside the row, at most

// Begins to load kVector logits.
template <int kVector>
__device__ void Fetch(float* held, const float* logits) {
  if constexpr (kVector == 4) {
    cuda::CopyChunk(held, logits, true);
  } else {
    cuda::CopyFloat(held, logits, true);
  }
}

// Replaces the logits of a row by their exponentials. Returns the exponentials' sum.
template <int kVector>
__device__ float SumOfHeld(float* held, unsigned vocabulary, float max) {
  const unsigned warp = threadIdx.x / 32;
  const bool works = warp % kSchedulers != 0;
  const unsigned worker = threadIdx.x - 32 * (warp / kSchedulers + 1);
  const unsigned count = DivideUp(vocabulary, unsigned{kHeldPiece});
  float sum = 0.0f;
  for (unsigned piece = 0; piece <= count; ++piece) {
    if (works && piece < count) {
      const unsigned from = piece * kHeldPiece + worker * kVector;
#pragma unroll
      for (int i = 0; i < kHeldOfWorker / kVector; ++i) {
        const unsigned c = from + i * kHeldWorkers * kVector;
        if (c >= vocabulary) continue;
        const Pack<kVector, float> z = LoadPack<kVector>(held + c);
        float exponentials[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j) exponentials[j] = ExpNonPositive(z.x[j] - max);
        StorePack(held + c, exponentials);
      }
    } else if (threadIdx.x < 32 && piece > 0) {
      const unsigned first = (piece - 1) * kHeldPiece;
      sum = AddedToLanes<16>(sum, held + first, min(first + kHeldPiece, vocabulary) - first);
    }
    __syncthreads();
  }
  return SumForBlock(sum);
}

// One store, by an intrinsic: here the compiler makes kVector stores of StorePack's one.
template <int kVector, class T>
__device__ inline void StoreGradients(T* to, const float (&g)[kVector]) {
  if constexpr (kVector == 1) {
    Store(to, g[0]);
  } else if constexpr (std::is_same_v<T, Bf16>) {
    __stcs(reinterpret_cast<uint2*>(to), uint2{PackBf16(g[0], g[1]), PackBf16(g[2], g[3])});
  } else {
    __stcs(reinterpret_cast<float4*>(to), float4{g[0], g[1], g[2], g[3]});
  }
}

template <int kVector, class T>
__global__ void __launch_bounds__(kHeldThreads, 1)
    HeldCrossEntropyKernel(const float* __restrict__ logits, const std::uint16_t* targets,
                           float scale, LossOptions options, float multiplier, std::size_t rows,
                           unsigned vocabulary, double* row_loss, T* __restrict__ dlogits) {
  extern __shared__ float4 memory[];
  float* const held = reinterpret_cast<float*>(memory);
  constexpr unsigned kStride = kHeldThreads * kVector, kPacks = kHeldAtOnce / kVector;
  const unsigned own = threadIdx.x * kVector;
  std::size_t row = blockIdx.x;
  for (unsigned c = own; c < vocabulary; c += kStride) {
    Fetch<kVector>(held + c, logits + row * vocabulary + c);
  }
  for (; row < rows; row += gridDim.x) {
    cuda::CommitCopies();
    cuda::WaitForCopies<0>();
    float max = __int_as_float(0xFF800000);
#pragma unroll 4
    for (unsigned c = own; c < vocabulary; c += kStride) {
      const Pack<kVector, float> z = LoadPack<kVector>(held + c);
#pragma unroll
      for (int j = 0; j < kVector; ++j) max = z.x[j] > max ? z.x[j] : max;
    }
    max = MaxOfBlock<kHeldThreads>(max);
    const unsigned target = targets[row];
    const float sum = SumOfHeld<kVector>(held, vocabulary, max);
    if (threadIdx.x == kHeldThreads - 1) {
      row_loss[row] = RowLoss(sum, logits[row * vocabulary + target], max);
    }
    const float factor = FactorOfRow(scale, options, {max, sum});
    const std::size_t next = row + gridDim.x;
    for (unsigned first = own; first < vocabulary; first += kPacks * kStride) {
      const auto each = [&](const auto& act) {
#pragma unroll
        for (unsigned i = 0; i < kPacks; ++i) {
          const unsigned c = first + i * kStride;
          if (c < vocabulary) act(i, c);
        }
      };
      if (dlogits != nullptr) {
        Pack<kVector, float> exponentials[kPacks];
        each([&](unsigned i, unsigned c) { exponentials[i] = LoadPack<kVector>(held + c); });
        each([&](unsigned i, unsigned c) {
          float gradients[kVector];
#pragma unroll
          for (int j = 0; j < kVector; ++j) {
            float gradient = exponentials[i].x[j] * factor;
            if (c + j == target) gradient = gradient - scale;
            gradients[j] = multiplier * gradient;
          }
          StoreGradients(dlogits + row * vocabulary + c, gradients);
        });
      }
      if (next < rows) {
        each([&](unsigned, unsigned c) {
          Fetch<kVector>(held + c, logits + next * vocabulary + c);
        });
      }
    }
  }
}

template <class T>
void LaunchCrossEntropy(const float* logits, const std::uint16_t* targets, float scale,
                        const LossOptions& options, float multiplier, std::size_t rows,
                        std::size_t vocabulary, double* row_loss, T* dlogits, cudaStream_t stream) {
  const std::size_t row_bytes = vocabulary * sizeof(float);
  // The soft cap's gradient needs the logits again.
  const bool held = vocabulary >= kWideFrom && options.soft_cap == 0.0f && rows > 0 &&
                    row_bytes + kHeldStatic <= cuda::MostSharedMemory();
  if (held) {
    const auto blocks = std::min(rows, static_cast<std::size_t>(cuda::Multiprocessors()));
    const auto launch = [&](auto vector) {
      const auto kernel = HeldCrossEntropyKernel<vector, T>;
      AllowShared(kernel, row_bytes);
      kernel<<<static_cast<unsigned>(blocks), kHeldThreads, row_bytes, stream>>>(
          logits, targets, scale, options, multiplier, rows, static_cast<unsigned>(vocabulary),
          row_loss, dlogits);
    };
    WithVector(vocabulary, launch, logits);
  } else if (vocabulary >= kWideFrom) {
    WideCrossEntropyKernel<<<static_cast<unsigned>(rows), kWideThreads, 0, stream>>>(
        logits, targets, scale, options, multiplier, vocabulary, row_loss, dlogits);
  } else {
    CrossEntropyKernel<<<Blocks(rows, kRowsPerBlock), kThreads, 0, stream>>>(
        logits, targets, scale, options, multiplier, rows, vocabulary, row_loss, dlogits);
  }
}

// One thread block per chunk: thread i adds rows i, i + 256, ...; then a tree adds the threads'
// sums.
__global__ void SumLossesKernel(const double* row_loss, std::size_t rows, double* sums) {
  __shared__ double lanes[kThreads];
  const std::size_t first = blockIdx.x * kLossChunk;
  double sum = 0.0;
  for (std::size_t i = threadIdx.x; i < kLossChunk && first + i < rows; i += kThreads) {
    sum += row_loss[first + i];
  }
  lanes[threadIdx.x] = sum;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) lanes[threadIdx.x] += lanes[threadIdx.x + width];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = lanes[0];
}

}  // namespace

void SoftCap(float cap, std::size_t size, float* logits, cudaStream_t stream) {
  Expects(cap > 0.0f, "SoftCap: a cap above 0");
  SoftCapKernel<<<Blocks(size, kThreads), kThreads, 0, stream>>>(cap, size, logits);
  CheckLaunch("SoftCap");
}

void MultiplyLogits(float factor, std::size_t size, float* logits, cudaStream_t stream) {
  MultiplyKernel<<<Blocks(size, kThreads), kThreads, 0, stream>>>(factor, size, logits);
  CheckLaunch("MultiplyLogits");
}

void CrossEntropy(const float* logits, const std::uint16_t* targets, std::size_t rows,
                  std::size_t vocabulary, double* row_loss, cudaStream_t stream) {
  LaunchCrossEntropy<float>(logits, targets, 0.0f, {}, 1.0f, rows, vocabulary, row_loss, nullptr,
                            stream);
  CheckLaunch("CrossEntropy");
}

template <class T>
void CrossEntropyGradient(const float* logits, const std::uint16_t* targets, float scale,
                          const LossOptions& options, std::size_t rows, std::size_t vocabulary,
                          double* row_loss, T* dlogits, cudaStream_t stream, float multiplier,
                          const DeviceTeacherLoss& teacher) {
  if (teacher.logits != nullptr) {
    TeacherLossKernel<<<Blocks(rows, kRowsPerBlock), kThreads, 0, stream>>>(
        logits, targets, scale, options, multiplier, teacher, rows, vocabulary, row_loss, dlogits);
    return CheckLaunch("CrossEntropyGradient");
  }
  LaunchCrossEntropy(logits, targets, scale, options, multiplier, rows, vocabulary, row_loss,
                     dlogits, stream);
  CheckLaunch("CrossEntropyGradient");
}

void SumLosses(const double* row_loss, std::size_t rows, double* sums, cudaStream_t stream) {
  SumLossesKernel<<<Blocks(rows, kLossChunk), kThreads, 0, stream>>>(row_loss, rows, sums);
  CheckLaunch("SumLosses");
}

template void CrossEntropyGradient(const float*, const std::uint16_t*, float, const LossOptions&,
                                   std::size_t, std::size_t, double*, float*, cudaStream_t, float,
                                   const DeviceTeacherLoss&);
template void CrossEntropyGradient(const float*, const std::uint16_t*, float, const LossOptions&,
                                   std::size_t, std::size_t, double*, Bf16*, cudaStream_t, float,
                                   const DeviceTeacherLoss&);

}  // namespace fp4lab::gpu
