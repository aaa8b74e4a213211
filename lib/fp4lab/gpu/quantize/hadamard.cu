#include <algorithm>
#include <type_traits>

#include "fp4lab/base/error.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/quantize/dialect_operand.cuh"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/transform/exact_hadamard.h"

namespace fp4lab::gpu {
namespace {

// A thread block transforms kGroups neighbouring groups as binary64 in shared memory, one group per
// column of the tile.
constexpr unsigned kThreads = 256, kGroups = 32;

// The layout of the groups in x: Place is the index of element k of group g.
struct Groups {
  std::size_t count, cols;
  unsigned size;
  bool down_columns;

  __device__ std::size_t Place(std::size_t g, unsigned k) const {
    return down_columns ? (g / cols * size + k) * cols + g % cols : g * size + k;
  }
};

// Item i of a thread block's kGroups * size elements; consecutive items are neighbours in memory.
struct Item {
  unsigned group, k;
};
__device__ Item ItemOf(const Groups& groups, unsigned i) {
  return groups.down_columns ? Item{i % kGroups, i / kGroups}
                             : Item{i / groups.size, i % groups.size};
}

// The biased exponents of a group's largest and smallest nonzero magnitude.
struct Span {
  unsigned top, bottom;

  // Whether sums of 2^stages BF16 values with exponents in this span are exact in binary64: a value
  // has 8 bits, and the sum adds `stages` bits. False for groups with NaN or Inf.
  __device__ bool IsExact(unsigned stages) const {
    return top != 0xFF && top <= bottom + 53 - 8 - stages;
  }
};

using Tile = double[kMaxHadamardSize][kGroups + 1];

// x with a flipped sign bit, also if x is NaN.
__device__ float Negated(float x) { return __uint_as_float(__float_as_uint(x) ^ 0x80000000u); }

// log2 of the transform's size, the factor of its outputs, and whether that factor is a power of
// two; computed once on the host.
struct Factor {
  unsigned stages;
  float value;
  bool is_exact;
};
Factor FactorOf(int size) {
  return {static_cast<unsigned>(HadamardStages(size)), HadamardFactor(size),
          HasExactHadamardFactor(size)};
}

// Output j of a group g whose sums are not exact in binary64. The tile holds the group's elements
// with their signs applied.
__device__ __noinline__ float WideOutput(const Tile& tile, unsigned size, unsigned g, unsigned j) {
  const auto value = [&](int k) { return static_cast<float>(tile[k][g]); };
  return ExactHadamardOutput(static_cast<int>(size), static_cast<int>(j), value);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    HadamardKernel(HadamardTransform transform, HadamardWay way, Groups groups, Factor factor,
                   const T* x, T* out) {
  __shared__ Tile tile;
  __shared__ Span spans[kGroups];
  if (threadIdx.x < kGroups) spans[threadIdx.x] = {0, 0xFF};
  __syncthreads();
  const std::size_t first = std::size_t{blockIdx.x} * kGroups;
  const unsigned items = kGroups * groups.size;
  for (unsigned i = threadIdx.x; i < items; i += kThreads) {
    const auto [g, k] = ItemOf(groups, i);
    if (first + g >= groups.count) continue;
    float v = Load(x + groups.Place(first + g, k));
    if (way == HadamardWay::kForth && transform.signs.Negates(static_cast<int>(k))) v = Negated(v);
    const unsigned magnitude = __float_as_uint(v) & 0x7FFFFFFFu;
    atomicMax(&spans[g].top, magnitude >> 23);
    if (magnitude != 0) atomicMin(&spans[g].bottom, magnitude >> 23);
    tile[k][g] = v;
  }
  __syncthreads();
  for (unsigned stride = 1; stride < groups.size; stride *= 2) {
    for (unsigned i = threadIdx.x; i < items / 2; i += kThreads) {
      const unsigned g = i % kGroups, pair = i / kGroups;
      if (first + g >= groups.count || !spans[g].IsExact(factor.stages)) continue;
      const unsigned k = pair / stride * 2 * stride + pair % stride;
      const double a = tile[k][g], b = tile[k + stride][g];
      tile[k][g] = a + b;
      tile[k + stride][g] = a - b;
    }
    __syncthreads();
  }
  for (unsigned i = threadIdx.x; i < items; i += kThreads) {
    const auto [g, k] = ItemOf(groups, i);
    if (first + g >= groups.count) continue;
    float y;
    if (spans[g].IsExact(factor.stages)) {  // + 0.0 turns -0 into +0
      y = static_cast<float>(tile[k][g] * (factor.is_exact ? factor.value : 1.0f) + 0.0);
      if (!factor.is_exact) y *= factor.value;
    } else {
      y = WideOutput(tile, groups.size, g, k);
    }
    y = RoundToBf16(y);
    if (way == HadamardWay::kBack && transform.signs.Negates(static_cast<int>(k))) y = Negated(y);
    Store(out + groups.Place(first + g, k), y);
  }
}

}  // namespace

template <class T>
void TransformGroups(const HadamardTransform& transform, HadamardWay way, std::size_t rows,
                     std::size_t cols, bool down_columns, const T* x, T* out, std::uint32_t* amax,
                     cudaStream_t stream, const std::optional<TensorDecode>& decode) {
  const auto size = static_cast<std::size_t>(transform.size);
  Expects(std::find(kHadamardSizes.begin(), kHadamardSizes.end(), transform.size) !=
              kHadamardSizes.end(),
          "a Hadamard transform of size 2, 4, 8, 16, 32, 64 or 128");
  Expects((down_columns ? rows : cols) % size == 0, "the axis is a multiple of the size");
  const Groups groups{rows * cols / size, cols, static_cast<unsigned>(size), down_columns};
  if (groups.count != 0) {
    if constexpr (std::is_same_v<T, Bf16>) {
      if (TransformGroupsOnTensorCores(transform, way, rows, cols, down_columns, x, out, amax,
                                       stream, decode)) {
        return;
      }
    }
    if (decode) {
      DecodeValues<T>(decode->dialect, true, decode->amax, nullptr, {}, rows, cols, x, out, stream);
      x = out;
    }
    HadamardKernel<<<Blocks(groups.count, kGroups), kThreads, 0, stream>>>(
        transform, way, groups, FactorOf(transform.size), x, out);
    CheckLaunch("TransformGroups");
  }
  if (amax != nullptr) {
    cuda::Amax(MatrixOf(out, rows, cols), reinterpret_cast<float*>(amax), false, stream);
  }
}

template void TransformGroups(const HadamardTransform&, HadamardWay, std::size_t, std::size_t, bool,
                              const float*, float*, std::uint32_t*, cudaStream_t,
                              const std::optional<TensorDecode>&);
template void TransformGroups(const HadamardTransform&, HadamardWay, std::size_t, std::size_t, bool,
                              const Bf16*, Bf16*, std::uint32_t*, cudaStream_t,
                              const std::optional<TensorDecode>&);

}  // namespace fp4lab::gpu
