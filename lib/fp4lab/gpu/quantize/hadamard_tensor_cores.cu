// Hadamard transforms of 16 to 128 BF16 numbers with any signs, on tensor cores. A warp transforms
// eight chunks of 128 numbers, which are one group or several. One product m16n8k16 sums over four
// bits of a number's place in its chunk, for all chunks of the warp. Eight products serve the other
// three bits, over which a thread sums the results in its registers.
//
// Tensor cores align their terms to the largest and cut off what lies below its 24th bit. So a sum
// is exact, in any order, if all terms are multiples of a number that is 2^-24 of a bound of all
// partial sums. The numbers of a chunk that span too many binades are added in parts by magnitude,
// each with exact sums.
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/gpu/gemm/mma.cuh"
#include "fp4lab/gpu/quantize/hadamard.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"
#include "fp4lab/transform/exact_hadamard.h"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 128, kChunk = 128, kProducts = 8;

using cuda::AsPair, cuda::AsWord;

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

template <class Act>
__device__ void ForSums(const Act& act) {
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) act(q, i);
  }
}

// How the sums of a chunk are made: of all numbers, of two or three parts by magnitude, of many
// parts (WideSums), or one by one (ExactOutputs).
enum class Way : std::uint8_t { kExact, kOne, kTwo, kThree, kWide };  // ordered for a maximum
struct ChunkPlan {
  Way way;
  std::uint32_t high, low;  // the exponent fields of the largest and the smallest magnitude but 0
};

// Binades of BF16 numbers that are multiples of 2^-24 of their largest possible sum.
template <int kSize>
constexpr std::uint32_t kBinades = 17 - HadamardStages(kSize);

// Binades that three parts serve, so that what the sum of the first two loses and the third part's
// sum together fit into binary32. In units of 2^high, for groups of 2^g numbers: the loss is at
// most 2^(g - 23), the third sum is below 2^(3 g - 33), and both are multiples of 2^(-6 - binades).
template <int kSize>
constexpr std::uint32_t kBinadesOfThree = kSize == 16 ? 36 : 3 * kBinades<kSize> - 1;

// The least magnitude of part `part` of a chunk, as bits of BF16.
template <int kSize>
__device__ std::uint32_t LeastOfPart(std::uint32_t high, std::uint32_t part) {
  const std::uint32_t binades = kBinades<kSize> * (part + 1);
  return high >= binades ? (high + 1 - binades) << 7 : 0u;
}

// `most`, `least`: the chunk's largest and smallest nonzero magnitude as bits of BF16.
template <int kSize>
__device__ ChunkPlan PlanOfChunk(std::uint32_t most, std::uint32_t least) {
  constexpr std::uint32_t kWideBinades = 80;
  const std::uint32_t high = most >> 7, low = least >> 7, binades = high - low + 1;
  if (most == 0) return {Way::kOne, 0, 0};
  const bool fits = high < 254 - HadamardStages(kSize) && low > 16;  // no overflow, no subnormals
  if (fits && binades <= kBinades<kSize>) return {Way::kOne, high, low};
  if (fits && binades <= 2 * kBinades<kSize>) return {Way::kTwo, high, low};
  if (fits && binades <= kBinadesOfThree<kSize>) return {Way::kThree, high, low};
  return {high < 255 && binades <= kWideBinades ? Way::kWide : Way::kExact, high, low};
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

// Moves the numbers whose magnitude is at least `least` from `rest` to `part`.
__device__ void Split(std::uint32_t least, Numbers& rest, Numbers& part) {
  const __nv_bfloat162 bound = AsPair(least * 0x10001u);
#pragma unroll
  for (unsigned q = 0; q < kProducts; ++q) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const std::uint32_t mask = __hge2_mask(AsPair(rest[q][i] & 0x7FFF7FFFu), bound);
      part[q][i] = rest[q][i] & mask;
      rest[q][i] = rest[q][i] & ~mask;
    }
  }
}

// high + low + x, rounded to binary64 in two numbers. Exact for sums of fewer than 106 bits.
__device__ void AddTo(double& high, double& low, double x) {
  const double sum = high + x, other = sum - high;
  low += (high - (sum - other)) + (x - other);
  high = sum + low;
  low = low - (high - sum);
}
// (high + low) * scale, a power of 2, rounded once to binary32.
__device__ float RoundedOnce(double high, double low, double scale) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(high));
  // To odd: then the cast rounds as if it saw all bits.
  const bool moves = low != 0.0 && bits % 2 == 0;
  const std::uint64_t odd = (low < 0.0) == (high < 0.0) ? bits + 1 : bits - 1;
  return static_cast<float>(__longlong_as_double(static_cast<long long>(moves ? odd : bits)) *
                            scale);
}

// The sums of chunks of up to 80 binades, of as many parts as the warp's chunks need. With an exact
// factor they are multiplied by it. Out of line and with its arguments in memory: the rare case
// would need registers.
template <int kSize, unsigned kStages>
__device__ __noinline__ void WideSums(FragmentA matrix, ChunkPlan plan, std::uint32_t* numbers,
                                      float* y) {
  constexpr unsigned kShift = 64;  // takes numbers away from subnormals and overflow
  const bool raises = plan.low <= 16, lowers = plan.high >= 200;  // 80 binades reach only one
  const __nv_bfloat162 shift = cuda::PairOf(raises ? 0x1p64f : lowers ? 0x1p-64f : 1.0f);
  const std::uint32_t high = plan.high + (raises ? kShift : 0) - (lowers ? kShift : 0);
  Numbers rest;
#pragma unroll
  for (unsigned i = 0; i < 2 * kProducts; ++i) {
    rest[i / 2][i % 2] = AsWord(__hmul2(AsPair(numbers[i]), shift));
  }
  const std::uint32_t binades = plan.way == Way::kExact ? 0 : plan.high - plan.low + 1;
  const std::uint32_t most = __reduce_max_sync(kAllLanes, binades);
  double upper[kProducts * 4] = {}, lower[kProducts * 4] = {};
#pragma unroll 1
  for (std::uint32_t part = 0; part * kBinades<kSize> < most; ++part) {
    const bool is_last = (part + 1) * kBinades<kSize> >= most;
    Numbers of_part;
    Split(is_last ? 0 : LeastOfPart<kSize>(high, part), rest, of_part);
    ChunkSums sums;
    SumsOf<kStages>(matrix, of_part, sums);
#pragma unroll
    for (unsigned i = 0; i < kProducts * 4; ++i) AddTo(upper[i], lower[i], sums[i / 4][i % 4]);
  }
  const double back = raises ? 0x1p-64 : lowers ? 0x1p64 : 1.0;
  const double factor = HasExactHadamardFactor(kSize) ? HadamardFactor(kSize) : 1.0f;
  double scales[2];  // of the chunks of this lane's outputs
#pragma unroll
  for (unsigned n = 0; n < 2; ++n) {
    scales[n] = factor * __shfl_sync(kAllLanes, back, 4 * (2 * (threadIdx.x % 4) + n));
  }
#pragma unroll
  for (unsigned i = 0; i < kProducts * 4; ++i)
    y[i] = RoundedOnce(upper[i], lower[i], scales[i % 2]);
}

// The sums of the warp's chunks, rounded to binary32; those of a chunk of Way::kExact are
// arbitrary. Returns their factor.
template <int kSize, unsigned kStages>
__device__ float RoundedSums(const FragmentA& matrix, const ChunkPlan& plan, Numbers& numbers,
                             ChunkSums& y) {
  constexpr float kFactor = HadamardFactor(kSize);
  const auto way = static_cast<Way>(__reduce_max_sync(kAllLanes, static_cast<unsigned>(plan.way)));
  if (way <= Way::kOne) {
    SumsOf<kStages>(matrix, numbers, y);
    return kFactor;
  }
  if (way <= Way::kThree) {
    Numbers part;
    ChunkSums lower;
    Split(LeastOfPart<kSize>(plan.high, 0), numbers, part);
    SumsOf<kStages>(matrix, part, y);
    if (way == Way::kTwo) {
      SumsOf<kStages>(matrix, numbers, lower);
      ForSums([&](unsigned q, unsigned i) { y[q][i] = y[q][i] + lower[q][i]; });
      return kFactor;
    }
    Split(LeastOfPart<kSize>(plan.high, 1), numbers, part);
    SumsOf<kStages>(matrix, part, lower);
    ForSums([&](unsigned q, unsigned i) {  // what the sum loses stays in `lower`
      const float a = y[q][i], b = lower[q][i], sum = a + b, other = sum - a;
      lower[q][i] = (a - (sum - other)) + (b - other);
      y[q][i] = sum;
    });
    ChunkSums least;
    SumsOf<kStages>(matrix, numbers, least);
    // The inner sum is exact: see kBinadesOfThree.
    ForSums([&](unsigned q, unsigned i) { y[q][i] = y[q][i] + (lower[q][i] + least[q][i]); });
    return kFactor;
  }
  std::uint32_t copies[2 * kProducts];
  float sums[4 * kProducts];
#pragma unroll
  for (unsigned i = 0; i < 2 * kProducts; ++i) copies[i] = numbers[i / 2][i % 2];
  WideSums<kSize, kStages>(matrix, plan, copies, sums);
#pragma unroll
  for (unsigned i = 0; i < 4 * kProducts; ++i) y[i / 4][i % 4] = sums[i];
  return HasExactHadamardFactor(kSize) ? 1.0f : kFactor;
}

// Outputs as BF16, a in the low half. Adding +0 makes a sum of zeros +0.
__device__ std::uint32_t OutputPair(float a, float b, float factor) {
  return PackBf16(__fmaf_rn(a, factor, 0.0f), __fmaf_rn(b, factor, 0.0f));
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
// `count` words of two outputs of a chunk from place on, `step` apart: of one chunk (`odd` is
// null), or of two, an output of each in a word. Words from `count` to kProducts * 2 become 0 in
// the second case. Out of line: the rare case would need registers.
template <int kSize>
__device__ __noinline__ void ExactOutputs(const SignedChunk& even, const SignedChunk* odd,
                                          unsigned place, unsigned step, unsigned count,
                                          std::uint32_t* words) {
  const auto output = [](const SignedChunk& chunk, unsigned at) {
    const unsigned first = at / kSize * kSize;
    const float y = ExactHadamardOutput(kSize, static_cast<int>(at - first), [&](int k) {
      return chunk(first + static_cast<unsigned>(k));
    });
    return __float_as_uint(RoundToBf16(y)) >> 16;
  };
  for (unsigned i = 0; i < 2 * count; ++i) {
    const SignedChunk& chunk = odd != nullptr && i % 2 != 0 ? *odd : even;
    const std::uint32_t bits = output(chunk, place + (odd != nullptr ? i / 2 : i) * step);
    words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
  }
  for (unsigned i = count; odd != nullptr && i < kProducts * 2; ++i) words[i] = 0;
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
  // Raises *amax to the largest magnitude of the warp. A warp reads *amax first, perhaps an earlier
  // and smaller value, since most warps have nothing to raise.
  __device__ void Raise(std::uint32_t* amax) const {
    const float own = fmaxf(HalfOf(largest_, 0), HalfOf(largest_, 1));
    const std::uint32_t bits = __reduce_max_sync(kAllLanes, __float_as_uint(own));
    if (threadIdx.x % 32 == 0 && bits > *amax) atomicMax(amax, bits);
  }

 private:
  std::uint32_t largest_ = 0;
};

struct ChunkJob {
  std::uint32_t rows, cols;
  const Bf16* x;
  Bf16* out;
  HadamardSigns before, after;  // of a chunk, applied before and after the transform
  bool signs_after;             // whether `after` has any
  std::uint32_t* amax;          // raised to the bits of the outputs' amax; may be null
  bool writes_four;             // down columns: whether four columns are aligned for one store
};

// Chunks of 128 neighbours in memory. A lane reads and writes eight neighbours at a time.
template <int kSize>
__global__ void __launch_bounds__(kThreads, 4) HadamardRowsKernel(ChunkJob job) {
  constexpr unsigned kWords = 4;  // of eight neighbours
  const unsigned lane = threadIdx.x % 32, of_four = lane % 4, of_eight = lane / 4;
  const std::size_t count = std::size_t{job.rows} * job.cols;
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
  const std::uint32_t inexact = __ballot_sync(kAllLanes, plan.way == Way::kExact);
  ChunkSums y;
  const float factor =
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
        words[i][half][w] = OutputPair(sums[i], sums[i + 2], factor);
      }
      if ((inexact >> (4 * chunk) & 1u) != 0 && chunk_at(chunk) + first < count) {
        std::uint32_t exact[kWords];
        ExactOutputs<kSize>({job.x + chunk_at(chunk), 1, job.before}, nullptr, first, 1, kWords,
                            exact);
#pragma unroll
        for (unsigned w = 0; w < kWords; ++w) words[i][half][w] = exact[w];
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
  if (job.amax != nullptr) largest.Raise(job.amax);
}

// The signs of the rows that the lanes of a warp read, gathered: word t serves lanes 4 n + t. Rows
// 8 j + 2 t and the next have bit j of the word's lower and of its upper half.
struct GatheredSigns {
  std::uint32_t words[4];

  // The sign bits of pair j in a word of two BF16 numbers.
  static __device__ std::uint32_t OfPair(std::uint32_t word, unsigned j) {
    return word << (15 - j) & 0x80008000u;
  }
};
GatheredSigns Gathered(const HadamardSigns& signs) {
  GatheredSigns gathered{};
  for (unsigned k = 0; k < kChunk; ++k) {
    const bool negates = signs.Negates(static_cast<int>(k));
    gathered.words[k % 8 / 2] |= static_cast<std::uint32_t>(negates) << (k / 8 + k % 2 * 16);
  }
  return gathered;
}

// Chunks of 128 rows of one column. A lane reads two neighbouring columns and writes four.
// kWhole: the matrix consists of whole chunks of whole warps.
template <int kSize, bool kWhole>
__global__ void __launch_bounds__(kThreads, 4)
    HadamardColumnsKernel(ChunkJob job, GatheredSigns before) {
  const unsigned lane = threadIdx.x % 32, of_four = lane % 4, of_eight = lane / 4;
  const std::uint32_t pairs = job.cols / 2, warps = DivideUp(pairs, 8u);
  const std::uint32_t warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
  const std::uint32_t top = warp / warps * kChunk, first_pair = warp % warps * 8;
  const auto exists = [&](std::uint32_t row, std::uint32_t pair) {
    return kWhole || (row < job.rows && pair < pairs);
  };
  Numbers numbers[2];  // of both columns
  Magnitudes magnitudes;
  const std::uint32_t own_pair = first_pair + of_eight;
  const std::uint32_t signs = before.words[of_four];
  const Bf16* from = job.x + std::size_t{top + of_four * 2} * job.cols + 2 * own_pair;
#pragma unroll
  for (unsigned j = 0; j < 2 * kProducts; ++j) {
    std::uint32_t words[2];
#pragma unroll
    for (unsigned k = 0; k < 2; ++k) {
      const bool inside = exists(top + j * 8 + of_four * 2 + k, own_pair);
      words[k] = inside ? *reinterpret_cast<const std::uint32_t*>(from + k * job.cols) : 0u;
      magnitudes.Add(words[k]);
    }
    from += std::size_t{job.cols} * 8;
    const std::uint32_t of_pair = GatheredSigns::OfPair(signs, j);
    numbers[0][j / 2][j % 2] = __byte_perm(words[0], words[1], 0x5410) ^ of_pair;
    numbers[1][j / 2][j % 2] = __byte_perm(words[0], words[1], 0x7632) ^ of_pair;
  }
  const ChunkPlan plan = magnitudes.Plan<kSize>();
  const std::uint32_t inexact = __ballot_sync(kAllLanes, plan.way == Way::kExact);
  const FragmentA matrix = Matrix<kSize, DownColumns>();
  std::uint32_t of_column[2][kProducts][2];  // of pairs 2 * of_four and the next, one column each
#pragma unroll
  for (unsigned column = 0; column < 2; ++column) {
    ChunkSums y;
    const float factor =
        RoundedSums<kSize, DownColumns::Stages(kSize)>(matrix, plan, numbers[column], y);
#pragma unroll
    for (unsigned q = 0; q < kProducts; ++q) {
      of_column[column][q][0] = OutputPair(y[q][0], y[q][1], factor);
      of_column[column][q][1] = OutputPair(y[q][2], y[q][3], factor);
    }
  }
  const std::uint32_t out_pair = first_pair + 2 * of_four;
  std::uint32_t words[kProducts * 2][2];  // of a row; two columns each
#pragma unroll
  for (unsigned i = 0; i < kProducts * 2; ++i) {
    const std::uint32_t a = of_column[0][i / 2][i % 2], b = of_column[1][i / 2][i % 2];
    words[i][0] = __byte_perm(a, b, 0x5410);
    words[i][1] = __byte_perm(a, b, 0x7632);
  }
#pragma unroll
  for (unsigned n = 0; n < 2; ++n) {
    const bool is_exact = (inexact >> (4 * (2 * of_four + n)) & 1u) != 0;
    if (!is_exact || !exists(top, out_pair + n)) continue;
    const SignedChunk even{job.x + std::size_t{top} * job.cols + 2 * (out_pair + n), job.cols,
                           job.before};
    const SignedChunk odd{even.first + 1, job.cols, job.before};
    const unsigned count = DivideUp(min(job.rows - top, kChunk) - of_eight, 8u);
    std::uint32_t exact[kProducts * 2];
    ExactOutputs<kSize>(even, &odd, of_eight, 8, count, exact);
#pragma unroll
    for (unsigned i = 0; i < kProducts * 2; ++i) words[i][n] = exact[i];
  }
  __syncwarp();  // exact sums have read whole chunks
  LargestOutput largest;
  Bf16* to = job.out + std::size_t{top + of_eight} * job.cols + 2 * out_pair;
#pragma unroll
  for (unsigned i = 0; i < kProducts * 2; ++i) {
    std::uint32_t(&pair)[2] = words[i];
    largest.Add(pair[0]);
    largest.Add(pair[1]);
    if (job.signs_after) {
      const std::uint32_t place = i * 8 + of_eight;
      const bool negates = (job.after.words[i / 4] >> (place % 32) & 1u) != 0;
      if (negates) pair[0] ^= 0x80008000u, pair[1] ^= 0x80008000u;
    }
    if (exists(top + i * 8 + of_eight, out_pair)) {
      if (kWhole || job.writes_four) {
        *reinterpret_cast<uint2*>(to) = {pair[0], pair[1]};
      } else {
        reinterpret_cast<std::uint32_t*>(to)[0] = pair[0];
        if (out_pair + 1 < pairs) reinterpret_cast<std::uint32_t*>(to)[1] = pair[1];
      }
    }
    to += std::size_t{job.cols} * 8;
  }
  if (job.amax != nullptr) largest.Raise(job.amax);
}

template <int kSize>
void Launch(const ChunkJob& job, bool down_columns, cudaStream_t stream) {
  if (down_columns) {
    const std::size_t warps =
        std::size_t{DivideUp(job.cols / 2, 8u)} * DivideUp(job.rows, std::uint32_t{kChunk});
    const bool whole = job.cols % 16 == 0 && job.rows % kChunk == 0 &&
                       warps % (kThreads / 32) == 0 && job.writes_four;
    const auto kernel =
        whole ? HadamardColumnsKernel<kSize, true> : HadamardColumnsKernel<kSize, false>;
    kernel<<<Blocks(warps * 32, kThreads), kThreads, 0, stream>>>(job, Gathered(job.before));
  } else {
    const std::size_t warps = DivideUp(std::size_t{job.rows} * job.cols, std::size_t{8 * kChunk});
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
  if (down_columns && cols % 2 != 0) return false;
  if (rows >= 1u << 31 || cols >= 1u << 31 || rows * cols >= std::size_t{1} << 40) return false;
  const HadamardSigns signs = SignsOfChunk(transform), none;
  const bool forth = way == HadamardWay::kForth;
  if (amax != nullptr) Check(cudaMemsetAsync(amax, 0, sizeof *amax, stream), "memset");
  const ChunkJob job{static_cast<std::uint32_t>(rows),
                     static_cast<std::uint32_t>(cols),
                     x,
                     out,
                     forth ? signs : none,
                     forth ? none : signs,
                     !forth,
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
