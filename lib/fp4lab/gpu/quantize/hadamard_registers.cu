// Hadamard transforms of 16 to 128 BF16 numbers with any signs, in registers: a lane of a warp
// holds 16 numbers of a group, and the lanes of a group exchange sums by shuffles.
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"
#include "fp4lab/transform/exact_hadamard.h"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 128, kOfLane = 16;

// The calling lane's place in its group of kLanes lanes: its number in the group, and how many
// lanes of the warp neighbouring parts are apart.
struct Part {
  unsigned part, distance;
};

// The sums of a group of 16 * kLanes numbers, 16 of them in `x`. All lanes of the warp call it.
template <unsigned kLanes, class Number>
__device__ void GroupSums(const Part& p, Number (&x)[kOfLane]) {
  Butterflies(x);
#pragma unroll
  for (unsigned stride = 1; stride < kLanes; stride *= 2) {
#pragma unroll
    for (unsigned k = 0; k < kOfLane; ++k) {
      const Number other = __shfl_xor_sync(kAllLanes, x[k], static_cast<int>(stride * p.distance));
      x[k] = (p.part & stride) != 0 ? other - x[k] : x[k] + other;
    }
  }
}

// The biased exponents of a group's largest and smallest nonzero magnitude; 0 and 0 without any.
struct Exponents {
  std::uint32_t high, low;
};
template <unsigned kLanes>
__device__ Exponents ExponentsOf(const Part& p, const float (&v)[kOfLane]) {
  std::uint32_t most = 0, least = 0xFFFFFFFFu;  // least: of |v| - 1 unit, without zeros
#pragma unroll
  for (unsigned k = 0; k < kOfLane; ++k) {
    const std::uint32_t magnitude = __float_as_uint(v[k]) & 0x7FFFFFFFu;
    most = max(most, magnitude);
    least = min(least, magnitude - 1u);
  }
#pragma unroll
  for (unsigned stride = 1; stride < kLanes; stride *= 2) {
    const int mask = static_cast<int>(stride * p.distance);
    most = max(most, __shfl_xor_sync(kAllLanes, most, mask));
    least = min(least, __shfl_xor_sync(kAllLanes, least, mask));
  }
  return {most >> 23, (least + 1u) >> 23};
}

// The plan of the group's sums (hadamard_device.cuh), for any size.
template <unsigned kLanes>
__device__ SumPlan PlanOfGroup(const Exponents& e) {
  constexpr std::uint32_t kGrowth = kLanes == 1 ? 4 : kLanes == 2 ? 5 : kLanes == 4 ? 6 : 7;
  const std::uint32_t span = e.high - e.low;
  if (e.high == 0 && e.low == 0) return {Sums::kNarrow, 0.0f};  // zeros, or subnormals alone
  const bool fits = e.high < 254 - kGrowth - 1 && e.low > 16 && span <= 41 - 2 * kGrowth;
  const Sums sums = !fits ? Sums::kWide : span <= 16 - kGrowth ? Sums::kNarrow : Sums::kSplit;
  return {sums, __uint_as_float((e.high + kGrowth) << 23 | 0x400000u)};
}

// Where a group is in memory: its first element and the distance of neighbours.
struct GroupPlace {
  const Bf16* first;
  std::size_t stride;
};

// Element k of a group with its sign, read from memory: for sums that no float holds.
struct SignedElement {
  GroupPlace place;
  HadamardSigns signs;  // none: the elements as they are

  __device__ float operator()(int k) const {
    const std::uint32_t bits =
        __float_as_uint(__bfloat162float(place.first[place.stride * static_cast<unsigned>(k)]));
    return __uint_as_float(bits ^ (signs.Negates(k) ? 0x80000000u : 0u));
  }
};

// The transform's outputs in `words`, by exact sums of wide fixed point.
template <unsigned kLanes>
__device__ __noinline__ void ExactWords(const SignedElement& element, unsigned part,
                                        std::uint32_t* words) {
  for (unsigned k = 0; k < kOfLane; k += 2) {
    float y[2];
    for (unsigned i = 0; i < 2; ++i) {
      y[i] = ExactHadamardOutput(static_cast<int>(kOfLane * kLanes),
                                 static_cast<int>(kOfLane * part + k + i), element);
    }
    const __nv_bfloat162 pair = __floats2bfloat162_rn(y[0], y[1]);
    words[k / 2] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

// Transforms the lane's 16 numbers v of its group, whose signs have been applied, and packs them as
// BF16, two a word. `mine`: a word with the 16 signs of these numbers to apply afterwards.
// `element`: for groups that only exact sums serve; they read memory that no lane may have
// overwritten. All lanes of the warp call it.
template <unsigned kLanes>
__device__ void TransformWords(const Part& p, const float (&v)[kOfLane],
                               const SignedElement& element, std::uint32_t (&words)[kOfLane / 2]) {
  constexpr int kSize = static_cast<int>(kOfLane * kLanes), kStages = HadamardStages(kSize);
  constexpr bool kExactFactor = HasExactHadamardFactor(kSize);
  float factor = HadamardFactor(kSize);
  const Exponents exponents = ExponentsOf<kLanes>(p, v);
  const SumPlan plan = PlanOfGroup<kLanes>(exponents);
  const bool wide = plan.sums == Sums::kWide;
  float y[kOfLane];
  if (__all_sync(kAllLanes, plan.sums == Sums::kNarrow)) {
#pragma unroll
    for (unsigned k = 0; k < kOfLane; ++k) y[k] = v[k];
    GroupSums<kLanes>(p, y);
  } else {
    float lower[kOfLane];
#pragma unroll
    for (unsigned k = 0; k < kOfLane; ++k) {
      y[k] = plan.sums == Sums::kSplit ? (v[k] + plan.splitter) - plan.splitter : v[k];
      lower[k] = v[k] - y[k];
    }
    GroupSums<kLanes>(p, y);
    GroupSums<kLanes>(p, lower);
#pragma unroll
    for (unsigned k = 0; k < kOfLane; ++k) y[k] = y[k] + lower[k];
  }
  if (__any_sync(kAllLanes, wide)) {
    double sums[kOfLane];
#pragma unroll
    for (unsigned k = 0; k < kOfLane; ++k) sums[k] = v[k];
    GroupSums<kLanes>(p, sums);
    if (wide) {
#pragma unroll
      for (unsigned k = 0; k < kOfLane; ++k) {
        y[k] = static_cast<float>(kExactFactor ? sums[k] * HadamardFactor(kSize) : sums[k]);
      }
      if (kExactFactor) factor = 1.0f;
    }
  }
#pragma unroll
  for (unsigned k = 0; k < kOfLane; k += 2) {  // adding +0 makes a sum of zeros +0
    const __nv_bfloat162 pair =
        __floats2bfloat162_rn(__fmaf_rn(y[k], factor, 0.0f), __fmaf_rn(y[k + 1], factor, 0.0f));
    words[k / 2] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  // Sums of 2^stages BF16 numbers, of 8 bits, are exact in binary64 within this span.
  const bool exact = exponents.high != 0xFF && exponents.high <= exponents.low + 53 - 8 - kStages;
  if (wide && !exact) ExactWords<kLanes>(element, p.part, words);
}

// The lane's 16 signs, in the low half.
__device__ std::uint32_t SignsOf(const HadamardSigns& signs, unsigned part) {
  const std::uint32_t word = part / 2 == 0   ? signs.words[0]
                             : part / 2 == 1 ? signs.words[1]
                             : part / 2 == 2 ? signs.words[2]
                                             : signs.words[3];
  return word >> (part % 2 * 16) & 0xFFFFu;
}

// The sign bits of numbers 2 i and 2 i + 1 in a word of two BF16 numbers.
__device__ std::uint32_t SignBitsOfPair(std::uint32_t signs, unsigned i) {
  const std::uint32_t pair = signs >> (2 * i);
  return (pair & 1u) << 15 | (pair & 2u) << 30;
}

struct GroupJob {
  std::uint32_t rows, cols;
  const Bf16* x;
  Bf16* out;
  HadamardSigns before, after;  // applied before and after the transform
};

// Groups along rows: a lane has 16 neighbours in memory.
template <unsigned kLanes>
__global__ void __launch_bounds__(kThreads) HadamardRowsKernel(GroupJob job) {
  const std::uint32_t count = job.rows * (job.cols / kOfLane);
  const std::uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const Part p{thread % kLanes, 1};
  // Lanes beyond the matrix compute its last group again and store nothing.
  const bool stores = thread < count;
  const std::size_t first = std::size_t{stores ? thread : count - kLanes + p.part} * kOfLane;
  std::uint32_t words[kOfLane / 2];
  cuda::LoadWords<kOfLane / 2>(job.x + first, words);
  const std::uint32_t before = SignsOf(job.before, p.part), after = SignsOf(job.after, p.part);
  float v[kOfLane];
#pragma unroll
  for (unsigned i = 0; i < kOfLane / 2; ++i) {
    const std::uint32_t word = words[i] ^ SignBitsOfPair(before, i);
    v[2 * i] = HalfOf(word, 0);
    v[2 * i + 1] = HalfOf(word, 1);
  }
  const SignedElement element{{job.x + (first - p.part * kOfLane), 1}, job.before};
  TransformWords<kLanes>(p, v, element, words);
#pragma unroll
  for (unsigned i = 0; i < kOfLane / 2; ++i) words[i] ^= SignBitsOfPair(after, i);
  __syncwarp();  // exact sums have read the whole group
  if (stores) cuda::StoreWords(job.out + first, words);
}

// Groups down columns: a lane has 16 rows of two neighbouring columns.
template <unsigned kLanes>
__global__ void __launch_bounds__(kThreads) HadamardColumnsKernel(GroupJob job) {
  constexpr unsigned kPairs = 32 / kLanes;  // of columns, of a warp
  const std::uint32_t warp = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  const std::uint32_t pairs = job.cols / 2, warps = (pairs + kPairs - 1) / kPairs;
  const std::uint32_t group = warp / warps;
  if (group >= job.rows / (kOfLane * kLanes)) return;  // whole warps
  const Part p{lane / kPairs, kPairs};
  const std::uint32_t pair = warp % warps * kPairs + lane % kPairs;
  const bool stores = pair < pairs;
  const std::size_t column = std::size_t{stores ? pair : pairs - 1} * 2;
  const std::size_t top = std::size_t{group} * kOfLane * kLanes;  // the group's first row
  const std::size_t first = (top + p.part * kOfLane) * job.cols + column;
  std::uint32_t loaded[kOfLane], words[2][kOfLane / 2];
  LoadPairs<kOfLane>(job.x + first, job.cols, loaded);
  const std::uint32_t before = SignsOf(job.before, p.part), after = SignsOf(job.after, p.part);
#pragma unroll
  for (unsigned w = 0; w < 2; ++w) {
    float v[kOfLane];
#pragma unroll
    for (unsigned k = 0; k < kOfLane; ++k) {
      v[k] = __uint_as_float(__float_as_uint(HalfOf(loaded[k], w)) ^ (before >> k & 1u) << 31);
    }
    const SignedElement element{{job.x + top * job.cols + column + w, job.cols}, job.before};
    TransformWords<kLanes>(p, v, element, words[w]);
  }
  __syncwarp();  // exact sums have read the whole group
  if (!stores) return;
#pragma unroll
  for (unsigned i = 0; i < kOfLane / 2; ++i) {
    const std::uint32_t signs = SignBitsOfPair(after, i);
    const std::uint32_t a = words[0][i] ^ signs, b = words[1][i] ^ signs;
    std::uint32_t* const to =
        reinterpret_cast<std::uint32_t*>(job.out + first + std::size_t{2 * i} * job.cols);
    to[0] = __byte_perm(a, b, 0x5410);
    to[job.cols / 2] = __byte_perm(a, b, 0x7632);
  }
}

template <unsigned kLanes>
void Launch(const GroupJob& job, bool down_columns, cudaStream_t stream) {
  if (down_columns) {
    const std::size_t warps = DivideUp(job.cols / 2, 32 / kLanes) * (job.rows / (kOfLane * kLanes));
    HadamardColumnsKernel<kLanes><<<Blocks(warps * 32, kThreads), kThreads, 0, stream>>>(job);
  } else {
    const std::size_t lanes = std::size_t{job.rows} * (job.cols / kOfLane);
    HadamardRowsKernel<kLanes><<<Blocks(lanes, kThreads), kThreads, 0, stream>>>(job);
  }
  CheckLaunch("TransformGroups");
}

}  // namespace

bool TransformGroupsInRegisters(const HadamardTransform& transform, HadamardWay way,
                                std::size_t rows, std::size_t cols, bool down_columns,
                                const Bf16* x, Bf16* out, cudaStream_t stream) {
  const std::size_t bytes = down_columns ? 4 : 16;
  if (transform.size < static_cast<int>(kOfLane) || !IsAligned(x, bytes) ||
      !IsAligned(out, bytes)) {
    return false;
  }
  if ((down_columns && cols % 2 != 0) || rows >= 1u << 31 || rows * cols >= std::size_t{1} << 35) {
    return false;
  }
  const bool forth = way == HadamardWay::kForth;
  const GroupJob job{
      static_cast<std::uint32_t>(rows),          static_cast<std::uint32_t>(cols),         x, out,
      forth ? transform.signs : HadamardSigns{}, forth ? HadamardSigns{} : transform.signs};
  switch (transform.size) {
    case 16:
      Launch<1>(job, down_columns, stream);
      return true;
    case 32:
      Launch<2>(job, down_columns, stream);
      return true;
    case 64:
      Launch<4>(job, down_columns, stream);
      return true;
    default:
      Launch<8>(job, down_columns, stream);
      return true;
  }
}

}  // namespace fp4lab::gpu
