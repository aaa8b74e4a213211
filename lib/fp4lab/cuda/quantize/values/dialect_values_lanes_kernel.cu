// Values for GEMMs in dialects with blocks of 64 or 128 elements of one row, BF16 or binary32: the
// lanes of a warp share a block and hold 16 elements each in registers.
#include "fp4lab/cuda/quantize/block_registers.cuh"
#include "fp4lab/cuda/quantize/values/dialect_values.cuh"

namespace fp4lab::cuda {
namespace {

template <class T>
struct LanesJob {
  const T* x = nullptr;
  T* out = nullptr;
  std::uint32_t rows = 0, cols = 0;
  const float* amax = nullptr;
};

__device__ float ValueOf(float x) { return x; }
__device__ float ValueOf(std::uint16_t x) { return __uint_as_float(std::uint32_t{x} << 16); }

// Loads 16 neighbours along the reduction axis, `stride` elements apart; stride 1: from memory that
// is aligned to 16 bytes.
template <bool kTransposed, class T>
__device__ void LoadSixteen(const T* from, std::uint64_t stride, float (&x)[16]) {
  if constexpr (kTransposed) {
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = ValueOf(from[stride * i]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 four = reinterpret_cast<const float4*>(from)[i];
      x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
  } else {
    std::uint32_t words[8];
    LoadWords<8>(from, words);
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = Element(words, i);
  }
}

template <bool kTransposed, class T>
__device__ void StoreSixteen(T* to, std::uint64_t stride, const float (&x)[16]) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 16; ++i) to[stride * i] = x[i];
  } else if constexpr (kTransposed) {
#pragma unroll
    for (int i = 0; i < 16; ++i) to[stride * i] = Bf16Bits(x[i]);
  } else {
    std::uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = Bf16Pair(x[2 * i], x[2 * i + 1]);
    StoreWords<8>(to, words);
  }
}

// The amax of a block as BlockAmax (dialect_block.cuh) has it, from its lanes' elements. All lanes
// of the warp call it.
template <unsigned kLanes, bool kTransposed>
__device__ float AmaxOfLanes(const Dialect& d, const float (&x)[16]) {
  float amax = 0.0f;
  bool nan = false;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    amax = fmaxf(amax, fabsf(x[i]));  // passes over NaN
    nan = nan || x[i] != x[i];
  }
  if (nan && d.nan != NanRule::kElement) amax = __uint_as_float(0x7FC00000u);
  std::uint32_t bits = __float_as_uint(amax);  // a NaN is above Inf
#pragma unroll
  for (unsigned width = 1; width < kLanes; width *= 2) {
    const int distance = static_cast<int>(width * kPartDistance<kLanes, kTransposed>);
    bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, distance));
  }
  return __uint_as_float(bits);
}

template <class T, FormatId kElement, unsigned kLanes, bool kTransposed>
__global__ void __launch_bounds__(kValuesThreads, 4) LaneValuesKernel(Dialect d, LanesJob<T> job) {
  d.element = kElement;  // compile-time constants
  d.rounding = ElementRounding::kNearestEven;
  d.block_rows = 1;
  d.block_cols = static_cast<int>(16 * kLanes);
  const LanePlace lane = LanePlaceOf<kLanes, kTransposed>(blockIdx.x * kValuesThreads + threadIdx.x,
                                                          job.rows, job.cols);
  if (!lane.exists) return;
  const std::uint64_t first = std::uint64_t{lane.segment} * 16u;
  const std::uint64_t place =
      kTransposed ? first * job.rows + lane.row : std::uint64_t{lane.row} * job.cols + first;
  const std::uint64_t stride = kTransposed ? job.rows : 1u;
  float x[16];
  LoadSixteen<kTransposed>(job.x + place, stride, x);
  const TensorScale tensor =
      HasTensorScale(d) ? TensorScaleOf(d, job.amax[d.row_scaled ? lane.row : 0]) : TensorScale{};
  const float b = AmaxOfLanes<kLanes, kTransposed>(d, x);
  const BlockNumbers numbers = NumbersFrom(d, b, ScaleBefore(d, b, tensor), tensor);
  const ElementValues<kElement, ElementRounding::kNearestEven, false> values(d, numbers);
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = values.Of(x[i], 0, 0) * numbers.scale;
  if (lane.stores) StoreSixteen<kTransposed>(job.out + place, stride, x);
}

template <class T, FormatId kElement, unsigned kLanes>
void Launch(const Dialect& d, const SideJob& job, const ValuesJob& values, cudaStream_t stream) {
  const LanesJob<T> own{static_cast<const T*>(job.x), static_cast<T*>(values.values),
                        static_cast<std::uint32_t>(job.rows), static_cast<std::uint32_t>(job.cols),
                        job.side.amax};
  const auto kernel = job.transposed ? LaneValuesKernel<T, kElement, kLanes, true>
                                     : LaneValuesKernel<T, kElement, kLanes, false>;
  const std::size_t threads = ThreadsOfLanes<kLanes>(job.transposed, job.rows, job.cols);
  kernel<<<Blocks(threads, kValuesThreads), kValuesThreads, 0, stream>>>(d, own);
  CheckLaunch("the kernel of dialects' values in lanes");
}

template <class T>
bool LaunchIn(const Dialect& d, const SideJob& job, const ValuesJob& values, cudaStream_t stream) {
  if (d.element == FormatId::kE4M3 && d.block_cols == 128) {
    Launch<T, FormatId::kE4M3, 8>(d, job, values, stream);
  } else if (d.element == FormatId::kE0M3 && d.block_cols == 64) {
    Launch<T, FormatId::kE0M3, 4>(d, job, values, stream);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool LaunchLaneValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                      cudaStream_t stream) {
  const bool takes = d.rounding == ElementRounding::kNearestEven && !Divides(d.factor) &&
                     d.adaptive == Adaptive::kNo && d.statistic == BlockStatistic::kAmax;
  if (!takes || !FitsRegisters(d, job, values)) return false;
  return job.bf16 ? LaunchIn<std::uint16_t>(d, job, values, stream)
                  : LaunchIn<float>(d, job, values, stream);
}

}  // namespace fp4lab::cuda
