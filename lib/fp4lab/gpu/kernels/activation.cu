// Activations with the arithmetic of nn/activation.cc, element by element.
#include <type_traits>

#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256, kMeasuredThreads = 128;

constexpr float kGeluLinear = 1.5957691216057308f;
constexpr float kGeluCubic = 0.07135481627159526f;

__device__ inline float Relu(float x) { return x < 0.0f ? 0.0f : x; }

__device__ inline float ActivateOne(Activation activation, float x) {
  if (activation == Activation::kSquaredRelu) {
    const float v = Relu(x);
    return v * v;
  }
  return x * Sigmoid(x * (kGeluLinear + kGeluCubic * (x * x)));
}

__device__ inline float ActivateOneBackward(Activation activation, float x, float dy) {
  if (activation == Activation::kSquaredRelu) {
    const float v = Relu(x);
    return dy * (v + v);
  }
  const float cubic = kGeluCubic * (x * x);
  const float s = Sigmoid(x * (kGeluLinear + cubic));
  const float inner = kGeluLinear + 3.0f * cubic;
  const float change = (s * (1.0f - s)) * (x * inner);
  return dy * (s + change);
}

template <int kVector, class T>
__global__ void ActivateKernel(Activation activation, const float* up, std::size_t size, T* out) {
  const std::size_t i = ThreadIndex() * kVector;
  if (i >= size) return;
  const Pack<kVector, float> x = LoadPack<kVector>(up + i);
  float y[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) y[j] = ActivateOne(activation, x.x[j]);
  StorePack<kVector>(out + i, y);
}

template <int kVector, class T>
__global__ void ActivateBackwardKernel(Activation activation, const float* up, const float* dy,
                                       std::size_t size, T* d_up) {
  const std::size_t i = ThreadIndex() * kVector;
  if (i >= size) return;
  const Pack<kVector, float> x = LoadPack<kVector>(up + i), g = LoadPack<kVector>(dy + i);
  float y[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) y[j] = ActivateOneBackward(activation, x.x[j], g.x[j]);
  StorePack<kVector>(d_up + i, y);
}

template <int kVector, class T>
__global__ void SwigluKernel(const float* up, std::size_t rows, std::size_t ffn, T* out) {
  const std::size_t i = ThreadIndex() * kVector, row = i / ffn, c = i % ffn;
  if (row >= rows) return;
  const Pack<kVector, float> gate = LoadPack<kVector>(up + row * 2 * ffn + c);
  const Pack<kVector, float> value = LoadPack<kVector>(up + row * 2 * ffn + ffn + c);
  float y[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) y[j] = (gate.x[j] * Sigmoid(gate.x[j])) * value.x[j];
  StorePack<kVector>(out + i, y);
}

template <int kVector, class T>
__global__ void SwigluBackwardKernel(const float* up, const float* dy, std::size_t rows,
                                     std::size_t ffn, T* d_up) {
  const std::size_t i = ThreadIndex() * kVector, row = i / ffn, c = i % ffn;
  if (row >= rows) return;
  const std::size_t at = row * 2 * ffn + c;
  const Pack<kVector, float> gate = LoadPack<kVector>(up + at);
  const Pack<kVector, float> value = LoadPack<kVector>(up + at + ffn);
  const Pack<kVector, float> grad = LoadPack<kVector>(dy + i);
  float dgate[kVector], dvalue[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const float s = Sigmoid(gate.x[j]), silu = gate.x[j] * s;
    const float slope = s + silu * (1.0f - s);
    dgate[j] = (grad.x[j] * value.x[j]) * slope;
    dvalue[j] = grad.x[j] * silu;
  }
  StorePack<kVector>(d_up + at, dgate);
  StorePack<kVector>(d_up + at + ffn, dvalue);
}

// ---- Activations with amax: a thread has two columns of 16 rows and reads all before it writes
// one

template <Activation kActivation>
struct Activated {
  const float* up;

  using Read = float2;
  __device__ Read Load(std::size_t i) const { return *reinterpret_cast<const float2*>(up + i); }
  __device__ float2 operator()(const Read& x) const {
    return {ActivateOne(kActivation, x.x), ActivateOne(kActivation, x.y)};
  }
};

template <Activation kActivation>
struct ActivatedBackward {
  const float *up, *dy;

  struct Read {
    float2 x, g;
  };
  __device__ Read Load(std::size_t i) const {
    return {*reinterpret_cast<const float2*>(up + i), *reinterpret_cast<const float2*>(dy + i)};
  }
  __device__ float2 operator()(const Read& r) const {
    return {ActivateOneBackward(kActivation, r.x.x, r.g.x),
            ActivateOneBackward(kActivation, r.x.y, r.g.y)};
  }
};

template <bool kTransforms, class Source>
__global__ void __launch_bounds__(kMeasuredThreads)
    MeasuredKernel(Source source, std::size_t rows, std::size_t cols, Bf16* out,
                   AmaxPlaces places) {
  const auto across = static_cast<unsigned>(cols / 2);
  const auto units = across * static_cast<unsigned>(rows / kAmaxRows);
  const unsigned i = blockIdx.x * kMeasuredThreads + threadIdx.x;
  float before = 0.0f, after = 0.0f;
  if (i < units) {
    const std::size_t first = std::size_t{i / across} * kAmaxRows * cols + i % across * 2;
    typename Source::Read read[kAmaxRows];
    std::uint32_t pairs[kAmaxRows];
#pragma unroll
    for (int k = 0; k < kAmaxRows; ++k) read[k] = source.Load(first + k * cols);
#pragma unroll
    for (int k = 0; k < kAmaxRows; ++k) {
      const float2 y = source(read[k]);
      pairs[k] = PackBf16(y.x, y.y);
    }
#pragma unroll
    for (int k = 0; k < kAmaxRows; ++k) {
      *reinterpret_cast<std::uint32_t*>(out + first + k * cols) = pairs[k];
    }
    MeasurePairs<kTransforms>(pairs, &before, &after);
  }
  cuda::StoreBlockAmax<kMeasuredThreads>(before, places.plain);
  if (kTransforms) cuda::StoreBlockAmax<kMeasuredThreads>(after, places.transformed);
}

template <class Source, class T>
void LaunchMeasured(const Source& source, std::size_t rows, std::size_t cols, T* out,
                    const AmaxPlaces& amax, cudaStream_t stream) {
  Expects((std::is_same_v<T, Bf16> && rows % kAmaxRows == 0 && cols % 2 == 0),
          "AmaxPlaces: BF16, whole groups of 16 rows, pairs of columns");
  if constexpr (std::is_same_v<T, Bf16>) {
    const unsigned blocks = Blocks(rows / kAmaxRows * (cols / 2), kMeasuredThreads);
    amax.transformed != nullptr ? MeasuredKernel<true>
        <<<blocks, kMeasuredThreads, 0, stream>>>(source, rows, cols, out, amax)
                                : MeasuredKernel<false>
        <<<blocks, kMeasuredThreads, 0, stream>>>(source, rows, cols, out, amax);
  }
  CheckLaunch("Activate");
}

}  // namespace

template <class T>
void Activate(Activation activation, const float* up, std::size_t rows, std::size_t ffn, T* out,
              cudaStream_t stream, const AmaxPlaces& amax) {
  if (MeasuredBy(activation, amax).plain != nullptr) {
    activation == Activation::kGelu
        ? LaunchMeasured(Activated<Activation::kGelu>{up}, rows, ffn, out, amax, stream)
        : LaunchMeasured(Activated<Activation::kSquaredRelu>{up}, rows, ffn, out, amax, stream);
    return;
  }
  const std::size_t size = rows * ffn;
  const bool wide = ffn % 4 == 0;
  const unsigned blocks = Blocks(size, wide ? 4 * kThreads : kThreads);
  if (activation == Activation::kSwiglu) {
    wide ? SwigluKernel<4><<<blocks, kThreads, 0, stream>>>(up, rows, ffn, out)
         : SwigluKernel<1><<<blocks, kThreads, 0, stream>>>(up, rows, ffn, out);
  } else {
    wide ? ActivateKernel<4><<<blocks, kThreads, 0, stream>>>(activation, up, size, out)
         : ActivateKernel<1><<<blocks, kThreads, 0, stream>>>(activation, up, size, out);
  }
  CheckLaunch("Activate");
}

template <class T>
void ActivateBackward(Activation activation, const float* up, const float* dy, std::size_t rows,
                      std::size_t ffn, T* d_up, cudaStream_t stream, const AmaxPlaces& amax) {
  if (MeasuredBy(activation, amax).plain != nullptr) {
    activation == Activation::kGelu
        ? LaunchMeasured(ActivatedBackward<Activation::kGelu>{up, dy}, rows, ffn, d_up, amax,
                         stream)
        : LaunchMeasured(ActivatedBackward<Activation::kSquaredRelu>{up, dy}, rows, ffn, d_up, amax,
                         stream);
    return;
  }
  const std::size_t size = rows * ffn;
  const bool wide = ffn % 4 == 0;
  const unsigned blocks = Blocks(size, wide ? 4 * kThreads : kThreads);
  if (activation == Activation::kSwiglu) {
    wide ? SwigluBackwardKernel<4><<<blocks, kThreads, 0, stream>>>(up, dy, rows, ffn, d_up)
         : SwigluBackwardKernel<1><<<blocks, kThreads, 0, stream>>>(up, dy, rows, ffn, d_up);
  } else {
    wide
        ? ActivateBackwardKernel<4><<<blocks, kThreads, 0, stream>>>(activation, up, dy, size, d_up)
        : ActivateBackwardKernel<1>
        <<<blocks, kThreads, 0, stream>>>(activation, up, dy, size, d_up);
  }
  CheckLaunch("ActivateBackward");
}

template void Activate(Activation, const float*, std::size_t, std::size_t, float*, cudaStream_t,
                       const AmaxPlaces&);
template void Activate(Activation, const float*, std::size_t, std::size_t, Bf16*, cudaStream_t,
                       const AmaxPlaces&);
template void ActivateBackward(Activation, const float*, const float*, std::size_t, std::size_t,
                               float*, cudaStream_t, const AmaxPlaces&);
template void ActivateBackward(Activation, const float*, const float*, std::size_t, std::size_t,
                               Bf16*, cudaStream_t, const AmaxPlaces&);

}  // namespace fp4lab::gpu
