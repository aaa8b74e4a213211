// Hadamard transforms of 16 to 128 BF16 numbers with any signs, on tensor cores. A warp transforms
// eight chunks of 128 numbers, which are one group or several. One product m16n8k16 sums over four
// bits of a number's place in its chunk, for all chunks of the warp. Eight products serve the other
// three bits, over which a thread sums the results in its registers.
//
// Tensor cores align their terms to the largest and cut off what lies below its 24th bit. So a sum
// is exact, in any order, if all terms are multiples of a number that is 2^-24 of a bound of all
// partial sums. A chunk whose numbers span too many binades is split into two or three parts, each
// with exact sums.
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/cuda/device/amax.cuh"
#include "fp4lab/gpu/gemm/mma.cuh"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"
#include "fp4lab/transform/exact_hadamard.h"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 128, kChunk = 128, kProducts = 8;

// The numbers of the eight chunks of a warp as B of its products, and sums as their C.
using Numbers = std::uint32_t[kProducts][2];
using ChunkSums = float[kProducts][4];

// Where the product's index m of an output, and k of an input, lie in a number's place in the
// chunk. Stages: the bits of the number of a product over which a transform sums.
struct AlongRows {  // bits 0, 3, 4 and 5; the number of the product has bits 1, 2 and 6
  static __device__ unsigned PlaceOfOutput(unsigned m) { return m >> 3 | (m & 7) << 3; }
  static __device__ unsigned PlaceOfInput(unsigned k) {
    return (k & 1) | (k >> 1 & 3) << 3 | k >> 3 << 5;
  }
  static constexpr unsigned Stages(int size) { return size == 128 ? 7 : 3; }
};
struct DownColumns {  // bits 0 to 3; the number of the product has bits 4 to 6
  static __device__ unsigned PlaceOfOutput(unsigned m) { return m; }
  static __device__ unsigned PlaceOfInput(unsigned k) { return k; }
  static constexpr unsigned Stages(int size) { return static_cast<unsigned>(size) / 16 - 1; }
};

// Element (m, k) of the products' matrix as BF16: a sign of the Hadamard matrix, or 0 between
// different groups.
template <int kSize, class Layout>
__device__ std::uint32_t MatrixElement(unsigned m, unsigned k) {
  constexpr unsigned kInGroup = kSize - 1;
  const unsigned output = Layout::PlaceOfOutput(m), input = Layout::PlaceOfInput(k);
  if (((output ^ input) & ~kInGroup) != 0) return 0u;
  return __popc(output & input & kInGroup) % 2 == 0 ? 0x3F80u : 0xBF80u;
}
template <int kSize, class Layout>
__device__ FragmentA Matrix() {
  FragmentA a;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned m = threadIdx.x % 32 / 4 + i % 2 * 8, k = threadIdx.x % 4 * 2 + i / 2 * 8;
    a.x[i] = MatrixElement<kSize, Layout>(m, k) | MatrixElement<kSize, Layout>(m, k + 1) << 16;
  }
  return a;
}

template <unsigned kStages>
__device__ void SumsOf(const FragmentA& matrix, const Numbers& numbers, ChunkSums& y) {
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
    FragmentC c{};
    Multiply(matrix, numbers[q][0], numbers[q][1], &c);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) y[q][i] = c.x[i];
  }
#pragma unroll
  for (unsigned bit = 1; bit < kProducts; bit *= 2) {
    if ((kStages & bit) == 0) continue;
#pragma unroll
    for (unsigned q = 0; q < kProducts; ++q) {
      if ((q & bit) != 0) continue;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const float a = y[q][i], b = y[q | bit][i];
        y[q][i] = a + b;
        y[q | bit][i] = a - b;
      }
    }
  }
}

// How the sums of a chunk are made: of its numbers in `parts` parts. 0: none of these is exact.
struct ChunkPlan {
  unsigned parts;
  float splitter;  // (v + splitter) - splitter is the first part of v
};

// `most`, `least`: the chunk's largest and smallest nonzero magnitude as bits of BF16. First parts
// are multiples of 2^-24 of the largest possible sum, so later parts may reach down as many bits
// again. The sum of three parts is exact in binary64.
template <int kSize>
__device__ ChunkPlan PlanOfChunk(std::uint32_t most, std::uint32_t least) {
  constexpr std::uint32_t kGrowth = HadamardStages(kSize);
  const std::uint32_t high = most >> 7, low = least >> 7, span = high - low;
  if (most == 0) return {1, 0.0f};
  // Infinities, sums that may overflow, and parts that may be subnormal.
  const bool fits = high < 254 - kGrowth - 1 && low > 16 && span <= 53 - 8 - kGrowth;
  const unsigned parts = !fits ? 0 : span <= 16 - kGrowth ? 1 : span <= 41 - 2 * kGrowth ? 2 : 3;
  return {parts, __uint_as_float((high + kGrowth) << 23 | 0x400000u)};
}

// The largest and the smallest nonzero magnitude of many BF16 numbers. Adding 2^15 - 1 to a 16-bit
// field never carries and makes 0 the largest signed number, so zeros do not count.
class Magnitudes {
 public:
  __device__ void Add(std::uint32_t pair) {
    const std::uint32_t magnitudes = pair & 0x7FFF7FFFu;
    most_ = __vmaxu2(most_, magnitudes);
    least_ = __vmins2(least_, magnitudes + 0x7FFF7FFFu);
  }
  // The plan of the chunk that four neighbouring lanes share.
  template <int kSize>
  __device__ ChunkPlan Plan() const {
    const std::uint32_t unsigned_least = least_ ^ 0x80008000u;
    std::uint32_t most = max(most_ & 0xFFFFu, most_ >> 16);
    std::uint32_t least = min(unsigned_least & 0xFFFFu, unsigned_least >> 16) + 1;
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      most = max(most, __shfl_xor_sync(kAllLanes, most, distance));
      least = min(least, __shfl_xor_sync(kAllLanes, least, distance));
    }
    return PlanOfChunk<kSize>(most, least);
  }

 private:
  std::uint32_t most_ = 0, least_ = 0x7FFF7FFFu;
};

// Takes the parts of numbers above the last bit that (v + splitter) keeps. BF16 holds both parts.
__device__ void Split(float splitter, Numbers& rest, Numbers& part) {
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const float2 v = UnpackBf16(rest[q][i]);
      const float2 first = {(v.x + splitter) - splitter, (v.y + splitter) - splitter};
      part[q][i] = PackBf16(first.x, first.y);
      rest[q][i] = PackBf16(v.x - first.x, v.y - first.y);
    }
  }
}

// The sums of the warp's chunks, rounded to binary32; those of a chunk without parts are arbitrary.
template <int kSize, unsigned kStages>
__device__ void RoundedSums(const FragmentA& matrix, const ChunkPlan& plan, Numbers& numbers,
                            ChunkSums& y) {
  const unsigned parts = __reduce_max_sync(kAllLanes, plan.parts);
  if (parts <= 1) return SumsOf<kStages>(matrix, numbers, y);
  Numbers part;
  Split(plan.splitter, numbers, part);
  if (parts == 2) {
    ChunkSums lower;
    SumsOf<kStages>(matrix, part, y);
    SumsOf<kStages>(matrix, numbers, lower);
#pragma unroll
    for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) y[q][i] = y[q][i] + lower[q][i];
    }
    return;
  }
  double total[kProducts][4] = {};
  const auto add = [&](const Numbers& of) {
    SumsOf<kStages>(matrix, of, y);
#pragma unroll
    for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) total[q][i] += y[q][i];
    }
  };
  add(part);
  // What is left is at most 2^-24 of the largest possible sum.
  Split(plan.splitter * (static_cast<float>(kSize) * 0x1p-24f), numbers, part);
  add(part);
  add(numbers);
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) y[q][i] = static_cast<float>(total[q][i]);
  }
}

// Outputs as BF16, a in the low half. Adding +0 makes a sum of zeros +0.
template <int kSize>
__device__ std::uint32_t OutputPair(float a, float b) {
  constexpr float kFactor = HadamardFactor(kSize);
  return PackBf16(__fmaf_rn(a, kFactor, 0.0f), __fmaf_rn(b, kFactor, 0.0f));
}

// A chunk in memory, for sums that no product makes: element k with its sign.
struct SignedChunk {
  const Bf16* first;
  std::size_t stride;
  HadamardSigns signs;

  __device__ float operator()(unsigned k) const {
    const std::uint32_t bits = __float_as_uint(__bfloat162float(first[stride * k]));
    return __uint_as_float(bits ^ (signs.Negates(static_cast<int>(k)) ? 0x80000000u : 0u));
  }
};
template <int kSize>
__device__ __noinline__ std::uint32_t ExactOutput(const SignedChunk& chunk, unsigned place) {
  const unsigned first = place / kSize * kSize;
  const float y = ExactHadamardOutput(kSize, static_cast<int>(place - first), [&](int k) {
    return chunk(first + static_cast<unsigned>(k));
  });
  return __float_as_uint(RoundToBf16(y)) >> 16;
}

// The sign bits of numbers `first` and `first` + 1 in a word of two BF16 numbers.
__device__ std::uint32_t SignBitsOfPair(std::uint32_t signs, unsigned first) {
  return ((signs >> first & 3u) * 0x40008000u) & 0x80008000u;
}

// The largest magnitude of many BF16 numbers; NaN is passed over.
class LargestOutput {
 public:
  __device__ void Add(std::uint32_t pair) {
    const std::uint32_t magnitudes = pair & 0x7FFF7FFFu;
    asm("max.bf16x2 %0, %0, %1;" : "+r"(largest_) : "r"(magnitudes));
  }
  __device__ float Value() const { return fmaxf(HalfOf(largest_, 0), HalfOf(largest_, 1)); }

 private:
  std::uint32_t largest_ = 0;
};

struct ChunkJob {
  std::size_t rows, cols;
  const Bf16* x;
  Bf16* out;
  HadamardSigns before, after;  // of a chunk, applied before and after the transform
  std::uint32_t* amax;          // raised to the bits of the outputs' amax; may be null
  bool writes_four;             // down columns: whether four columns are aligned for one store
};

// Chunks of 128 neighbours in memory. A lane reads and writes eight neighbours at a time.
template <int kSize>
__global__ void __launch_bounds__(kThreads, 4) HadamardRowsKernel(ChunkJob job) {
  constexpr unsigned kWords = 4;  // of eight neighbours
  const unsigned lane = threadIdx.x % 32, of_four = lane % 4, of_eight = lane / 4;
  const std::size_t count = job.rows * job.cols;
  const std::size_t warp = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  const auto chunk_at = [&](unsigned i) { return (warp * 8 + i) * kChunk; };
  Numbers numbers;
  Magnitudes magnitudes;
#pragma unroll
  for (unsigned v = 0; v < 4; ++v) {
    const std::size_t place = chunk_at(of_eight) + v * 32 + of_four * 8;
    std::uint32_t words[kWords] = {};
    if (place < count) cuda::LoadWords<kWords>(job.x + place, words);
    const std::uint32_t signs = job.before.words[v] >> (8 * of_four);
#pragma unroll
    for (unsigned w = 0; w < kWords; ++w) {
      magnitudes.Add(words[w]);
      numbers[v / 2 * kWords + w][v % 2] = words[w] ^ SignBitsOfPair(signs, 2 * w);
    }
  }
  const ChunkPlan plan = magnitudes.Plan<kSize>();
  const std::uint32_t inexact = __ballot_sync(kAllLanes, plan.parts == 0);
  ChunkSums y;
  RoundedSums<kSize, AlongRows::Stages(kSize)>(Matrix<kSize, AlongRows>(), plan, numbers, y);
  std::uint32_t words[2][2][kWords];  // of chunks 2 * of_four and the next, of both their halves
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned chunk = 2 * of_four + i;
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned first = half * 64 + of_eight * 8;
#pragma unroll
      for (unsigned w = 0; w < kWords; ++w) {
        const auto& sums = y[half * kWords + w];
        words[i][half][w] = OutputPair<kSize>(sums[i], sums[i + 2]);
      }
      if ((inexact >> (4 * chunk) & 1u) != 0 && chunk_at(chunk) + first < count) {
        const SignedChunk elements{job.x + chunk_at(chunk), 1, job.before};
#pragma unroll
        for (unsigned w = 0; w < kWords; ++w) {
          words[i][half][w] = ExactOutput<kSize>(elements, first + 2 * w) |
                              ExactOutput<kSize>(elements, first + 2 * w + 1) << 16;
        }
      }
    }
  }
  __syncwarp();  // exact sums have read whole chunks
  LargestOutput largest;
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const std::size_t place = chunk_at(2 * of_four + i) + half * 64 + of_eight * 8;
      const std::uint32_t signs = job.after.words[half * 2 + of_eight / 4] >> (of_eight % 4 * 8);
#pragma unroll
      for (unsigned w = 0; w < kWords; ++w) {
        largest.Add(words[i][half][w]);
        words[i][half][w] ^= SignBitsOfPair(signs, 2 * w);
      }
      if (place < count) cuda::StoreWords(job.out + place, words[i][half]);
    }
  }
  if (job.amax != nullptr) cuda::StoreBlockAmax<kThreads>(largest.Value(), job.amax);
}

// Chunks of 128 rows of one column. A lane reads two neighbouring columns and writes four.
template <int kSize>
__global__ void __launch_bounds__(kThreads, 3) HadamardColumnsKernel(ChunkJob job) {
  const unsigned lane = threadIdx.x % 32, of_four = lane % 4, of_eight = lane / 4;
  const std::size_t pairs = job.cols / 2, warps = DivideUp(pairs, std::size_t{8});
  const std::size_t warp = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  const std::size_t top = warp / warps * kChunk, first_pair = warp % warps * 8;
  const auto exists = [&](std::size_t row, std::size_t pair) {
    return row < job.rows && pair < pairs;
  };
  Numbers numbers[2];  // of both columns
  Magnitudes magnitudes;
  const std::size_t own_pair = first_pair + of_eight;
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned first = q * 16 + i * 8 + of_four * 2;
      std::uint32_t words[2];
#pragma unroll
      for (unsigned k = 0; k < 2; ++k) {
        const std::size_t row = top + first + k;
        words[k] =
            exists(row, own_pair)
                ? *reinterpret_cast<const std::uint32_t*>(job.x + row * job.cols + 2 * own_pair)
                : 0u;
        magnitudes.Add(words[k]);
      }
      const std::uint32_t signs =
          SignBitsOfPair(job.before.words[q / 2], q % 2 * 16 + i * 8 + of_four * 2);
      numbers[0][q][i] = __byte_perm(words[0], words[1], 0x5410) ^ signs;
      numbers[1][q][i] = __byte_perm(words[0], words[1], 0x7632) ^ signs;
    }
  }
  const ChunkPlan plan = magnitudes.Plan<kSize>();
  const std::uint32_t inexact = __ballot_sync(kAllLanes, plan.parts == 0);
  const FragmentA matrix = Matrix<kSize, DownColumns>();
  std::uint32_t of_column[2][kProducts][2];  // of pairs 2 * of_four and the next, one column each
#pragma unroll
  for (unsigned column = 0; column < 2; ++column) {
    ChunkSums y;
    RoundedSums<kSize, DownColumns::Stages(kSize)>(matrix, plan, numbers[column], y);
#pragma unroll
    for (unsigned q = 0; q < kProducts; ++q) {
      of_column[column][q][0] = OutputPair<kSize>(y[q][0], y[q][1]);
      of_column[column][q][1] = OutputPair<kSize>(y[q][2], y[q][3]);
    }
  }
  const std::size_t out_pair = first_pair + 2 * of_four;
  std::uint32_t words[kProducts][2][2];  // of a row; two columns each
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t a = of_column[0][q][half], b = of_column[1][q][half];
      words[q][half][0] = __byte_perm(a, b, 0x5410);
      words[q][half][1] = __byte_perm(a, b, 0x7632);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    if ((inexact >> (4 * (2 * of_four + i)) & 1u) == 0) continue;
#pragma unroll
    for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned place = q * 16 + half * 8 + of_eight;
        if (!exists(top + place, out_pair + i)) continue;
        const SignedChunk even{job.x + top * job.cols + 2 * (out_pair + i), job.cols, job.before};
        const SignedChunk odd{even.first + 1, job.cols, job.before};
        words[q][half][i] = ExactOutput<kSize>(even, place) | ExactOutput<kSize>(odd, place) << 16;
      }
    }
  }
  __syncwarp();  // exact sums have read whole chunks
  LargestOutput largest;
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned place = q * 16 + half * 8 + of_eight;
      const bool negates = (job.after.words[q / 2] >> (place % 32) & 1u) != 0;
      std::uint32_t(&pair)[2] = words[q][half];
#pragma unroll
      for (std::uint32_t& word : pair) {
        largest.Add(word);
        if (negates) word ^= 0x80008000u;
      }
      if (!exists(top + place, out_pair)) continue;
      Bf16* const to = job.out + (top + place) * job.cols + 2 * out_pair;
      if (job.writes_four) {
        *reinterpret_cast<uint2*>(to) = {pair[0], pair[1]};
      } else {
        reinterpret_cast<std::uint32_t*>(to)[0] = pair[0];
        if (out_pair + 1 < pairs) reinterpret_cast<std::uint32_t*>(to)[1] = pair[1];
      }
    }
  }
  if (job.amax != nullptr) cuda::StoreBlockAmax<kThreads>(largest.Value(), job.amax);
}

template <int kSize>
void Launch(const ChunkJob& job, bool down_columns, cudaStream_t stream) {
  if (down_columns) {
    const std::size_t warps =
        DivideUp(job.cols / 2, std::size_t{8}) * DivideUp(job.rows, std::size_t{kChunk});
    HadamardColumnsKernel<kSize><<<Blocks(warps * 32, kThreads), kThreads, 0, stream>>>(job);
  } else {
    const std::size_t warps = DivideUp(job.rows * job.cols, std::size_t{8 * kChunk});
    HadamardRowsKernel<kSize><<<Blocks(warps * 32, kThreads), kThreads, 0, stream>>>(job);
  }
  CheckLaunch("TransformGroups");
}

// The signs of a chunk, which consists of groups of `size`.
HadamardSigns SignsOfChunk(const HadamardTransform& transform) {
  auto words = transform.signs.words;
  if (transform.size == 16) words[0] = (words[0] & 0xFFFFu) * 0x10001u;
  if (transform.size <= 32) words[1] = words[0];
  if (transform.size <= 64) words[2] = words[0], words[3] = words[1];
  return {words};
}

}  // namespace

bool TransformGroupsOnTensorCores(const HadamardTransform& transform, HadamardWay way,
                                  std::size_t rows, std::size_t cols, bool down_columns,
                                  const Bf16* x, Bf16* out, std::uint32_t* amax,
                                  cudaStream_t stream) {
  const std::size_t bytes = down_columns ? 4 : 16;
  if (transform.size < 16 || !IsAligned(x, bytes) || !IsAligned(out, bytes)) return false;
  if ((down_columns && cols % 2 != 0) || rows * cols >= std::size_t{1} << 40) return false;
  const HadamardSigns signs = SignsOfChunk(transform), none;
  const bool forth = way == HadamardWay::kForth;
  if (amax != nullptr) Check(cudaMemsetAsync(amax, 0, sizeof *amax, stream), "memset");
  const ChunkJob job{rows,
                     cols,
                     x,
                     out,
                     forth ? signs : none,
                     forth ? none : signs,
                     amax,
                     cols % 4 == 0 && IsAligned(out, 8)};
  switch (transform.size) {
    case 16:
      Launch<16>(job, down_columns, stream);
      return true;
    case 32:
      Launch<32>(job, down_columns, stream);
      return true;
    case 64:
      Launch<64>(job, down_columns, stream);
      return true;
    default:
      Launch<128>(job, down_columns, stream);
      return true;
  }
}

}  // namespace fp4lab::gpu
