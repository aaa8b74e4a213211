// Values for GEMMs in dialects with the correction of MS-EDEN.
#include <type_traits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/quantize/values/dialect_values.cuh"
#include "fp4lab/cuda/quantize/values/round_words.cuh"
#include "fp4lab/quantize/ms_eden.h"

namespace fp4lab::cuda {
namespace {

// The number of MS-EDEN's groups in a row: kMsEdenGroup elements each, the last group the rest of
// the row.
__host__ __device__ std::size_t GroupsOfRow(std::size_t cols) {
  return DivideUp(cols, kMsEdenGroup);
}

// One thread for each group quantizes it twice: first for the sums of the correction, then under
// the corrected scales.
template <FormatId kElement>
__global__ void __launch_bounds__(kValuesThreads, 4)
    MsEdenKernel(Dialect d, SideJob job, RandomSource source, void* out) {
  d.element = kElement;
  d.block_rows = 1;
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  const std::size_t groups = GroupsOfRow(job.cols);
  const std::size_t thread = std::size_t{blockIdx.x} * kValuesThreads + threadIdx.x;
  if (thread >= job.rows * groups) return;
  const std::size_t r = job.transposed ? thread % job.rows : thread / groups;
  const std::size_t group = job.transposed ? thread / job.rows : thread % groups;
  const std::size_t in_group = kMsEdenGroup / grid.block_cols;
  const std::size_t first = group * in_group, last = min(first + in_group, grid.cols);
  const int bits = RandomBitsOf(d.rounding);
  const RandomSource scales = ScaleSource(source);
  MsEdenSums sums;
  float correction = 1.0f;
  // One loop runs both passes: a function with two call sites is called, not inlined, and the call
  // spills registers to memory.
  for (const bool corrects : {false, true}) {
    for (std::size_t j = first; j < last; ++j) {
      const std::size_t c0 = j * grid.block_cols, cols = min(grid.block_cols, job.cols - c0);
      const DialectBlock block{r, j, r, c0, 1, cols};
      const TensorScale tensor = TensorScaleOfBlock(job, d, block);
      const BlockNumbers numbers = Chosen<1, true>(job, d, tensor, block, 0);
      float scale = numbers.scale;
      if (corrects) {
        const std::uint32_t scale_bits = ScaleBits(scales, r * grid.cols + j);
        scale = ScaleValueOf(d, CorrectedScaleByte(d, scale, correction, scale_bits));
      }
      for (std::size_t c = c0; c < c0 + cols; ++c) {
        const std::uint32_t random =
            bits == 0 ? 0 : source.CounterBits(bits, r * job.cols + c, job.cols);
        const float x = job.Element(r, c);
        const float value =
            Decode(kElement, QuantizedElement(d, numbers, tensor, x, random)) * scale;
        if (corrects) {
          StoreValue(job, out, job.Place(r, c), value);
        } else {
          sums.Add(x, value, tensor);
        }
      }
    }
    correction = sums.Correction();
  }
}

// The same in registers, for BF16 matrices of whole groups and blocks of 16: kParts neighbouring
// blocks make a group.
constexpr unsigned kParts = kMsEdenGroup / 16;

// The groups of a thread block, kGroups of a matrix's rows or of neighbouring columns, in shared
// memory: elements and values, and what their blocks share. The padding puts what a warp reads or
// writes at once into different banks.
template <unsigned kGroups>
struct alignas(16) Groups {
  struct alignas(16) Words {
    std::uint32_t parts[kParts][12], padding[8];
  };
  Words x[kGroups], values[kGroups];
  PhiloxBlock fields[kGroups];  // of the scales' random bits
  float corrections[kGroups];
};

// The correction of a group, for each of the eight neighbouring lanes that call it together. The
// sums are those of MsEdenSums: virtual lane k of base/simd/reduce.h adds element k of each block.
// Lane `lane` has virtual lanes 2 * lane and the next.
template <class Words>
__device__ float CorrectionOf(const Words& x, const Words& values, float decode, unsigned lane) {
  float squares[2] = {}, products[2] = {};
#pragma unroll
  for (unsigned b = 0; b < kParts; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float element = HalfOf(x.parts[b][lane], half);
      const float value = HalfOf(values.parts[b][lane], half);
      squares[half] = squares[half] + element * element;
      products[half] = products[half] + element * (value * decode);
    }
  }
  const auto total = [](float(&sums)[2]) {  // virtual lane k and k + 8, then 4, 2, 1
#pragma unroll
    for (unsigned width = kParts / 2; width > 0; width /= 2) {
#pragma unroll
      for (float& sum : sums) sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, width);
    }
    return sums[0] + sums[1];
  };
  const float of_squares = total(squares);
  return MsEdenCorrection(of_squares, total(products));
}

// Among dialects that divide, the kernel takes Quartet II's, which rounds ties away from 0; the
// others round to even.
template <bool kDivides>
constexpr ElementRounding kRegistersRounding =
    kDivides ? ElementRounding::kTiesAway : ElementRounding::kNearestEven;
template <bool kDivides>
using RegistersFormulas = std::conditional_t<kDivides, QuartetFormulas<Adaptive::kNo>, AnyFormulas>;

// Loads the blocks of a lane: one of a row, or those of two neighbouring columns.
template <unsigned kColumns>
__device__ void LoadBlocks(const std::uint16_t* from, std::size_t stride,
                           std::uint32_t (&words)[kColumns][8]) {
  if constexpr (kColumns == 1) {
    LoadWords<8>(from, words[0]);
  } else {
    std::uint32_t lines[16];
#pragma unroll
    for (unsigned i = 0; i < 16; ++i) {
      lines[i] = *reinterpret_cast<const std::uint32_t*>(from + i * stride);
    }
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      words[0][i] = __byte_perm(lines[2 * i], lines[2 * i + 1], 0x5410);
      words[1][i] = __byte_perm(lines[2 * i], lines[2 * i + 1], 0x7632);
    }
  }
}
template <unsigned kColumns>
__device__ void StoreBlocks(std::uint16_t* to, std::size_t stride,
                            const std::uint32_t (&words)[kColumns][8]) {
  if constexpr (kColumns == 1) {
    StoreWords(to, words[0]);
  } else {
#pragma unroll
    for (unsigned i = 0; i < 16; ++i) {
      *reinterpret_cast<std::uint32_t*>(to + i * stride) =
          __byte_perm(words[0][i / 2], words[1][i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
}

// A thread has one block of a row, or those of two neighbouring columns. Eight neighbouring threads
// have a row's group; threads of eight parts of the thread block have two columns' groups.
template <bool kDivides, bool kAdaptive, bool kTransposed>
__global__ void __launch_bounds__(kValuesThreads, kAdaptive ? 3 : 4)
    MsEdenRegistersKernel(const __grid_constant__ Dialect argument, RegisterJob job,
                          RandomSource source) {
  constexpr unsigned kColumns = kTransposed ? 2 : 1, kPlaces = kValuesThreads / kParts;
  constexpr unsigned kGroups = kPlaces * kColumns;
  __shared__ Groups<kGroups> groups;
  Dialect d = argument;
  RegistersFormulas<kDivides>::Set(&d);  // compile-time constants
  d.element = FormatId::kE2M1;
  d.rounding = kRegistersRounding<kDivides>;
  d.block_rows = 1;
  d.block_cols = 16;
  const unsigned part = kTransposed ? threadIdx.x / kPlaces : threadIdx.x % kParts;
  const unsigned own = kTransposed ? threadIdx.x % kPlaces : threadIdx.x / kParts;
  const std::uint32_t in_row = job.cols / kMsEdenGroup, lines = job.rows / kColumns;
  // The group of a place of the thread block; places beyond the matrix have no group.
  const auto group_of = [&](unsigned at) {
    struct Place {
      std::uint32_t row, group;
      bool exists;
    };
    if constexpr (kTransposed) {
      const std::uint32_t across = DivideUp(lines, kPlaces);
      const std::uint32_t line = blockIdx.x % across * kPlaces + at;
      return Place{line * kColumns, blockIdx.x / across, line < lines};
    } else {
      const std::uint32_t id = blockIdx.x * kPlaces + at;
      return Place{id / in_row, id % in_row, id < lines * in_row};
    }
  };
  const auto tensor_of = [&](std::uint32_t row) {
    return HasTensorScale(d) ? TensorScaleOf(d, job.amax[d.row_scaled ? row : 0]) : TensorScale{};
  };
  // Group `column` * kPlaces + p of the thread block: that of place p in this of its columns.
  const auto [row, group, exists] = group_of(own);
  const std::uint64_t first = std::uint64_t{group} * kMsEdenGroup + part * 16u;
  const std::uint64_t place =
      kTransposed ? first * job.rows + row : std::uint64_t{row} * job.cols + first;
  std::uint32_t words[kColumns][8] = {};
  BlockNumbers numbers[kColumns];
  if (exists) {
    LoadBlocks<kColumns>(job.x + place, job.rows, words);
#pragma unroll
    for (unsigned column = 0; column < kColumns; ++column) {
      const unsigned id = column * kPlaces + own;
      StoreWords(groups.x[id].parts[part], words[column]);
      std::uint32_t rounded[8], scaled[8];
      numbers[column] = RoundWords<kRegistersRounding<kDivides>, kDivides, 16, kAdaptive>(
          d, argument, tensor_of(row + column), words[column], rounded);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        words[column][i] = rounded[i];
        scaled[i] = TimesScale(d, rounded[i], numbers[column].scale);
      }
      StoreWords(groups.values[id].parts[part], scaled);
    }
  }
  const RandomSource random = ScaleSource(source);
  const bool philox = random.generator == RandomGenerator::kPhilox;
  const auto first_block = [&](std::uint32_t of_row, std::uint32_t of_group) {
    return (std::uint64_t{of_row} * in_row + of_group) * kParts;
  };
  if (philox && threadIdx.x < kGroups) {
    const auto of = group_of(threadIdx.x % kPlaces);
    groups.fields[threadIdx.x] =
        random.stream.Block(first_block(of.row + threadIdx.x / kPlaces, of.group) / 8);
  }
  __syncthreads();
#pragma unroll
  for (unsigned column = 0; column < kColumns; ++column) {
    const unsigned at = threadIdx.x / kParts, id = column * kPlaces + at;
    const std::uint32_t of_row = min(group_of(at).row, job.rows - kColumns) + column;
    const float correction = CorrectionOf(groups.x[id], groups.values[id], tensor_of(of_row).decode,
                                          threadIdx.x % kParts);
    if (threadIdx.x % kParts == 0) groups.corrections[id] = correction;
  }
  __syncthreads();
  if (!exists) return;
#pragma unroll
  for (unsigned column = 0; column < kColumns; ++column) {
    const unsigned id = column * kPlaces + own;
    const std::uint32_t bits = philox ? groups.fields[id][part / 2] >> (part % 2 * 16) & 0xFFFFu
                                      : ScaleBits(random, first_block(row + column, group) + part);
    const float scale = CorrectedScale(d, numbers[column].scale, groups.corrections[id], bits);
#pragma unroll
    for (int i = 0; i < 8; ++i) words[column][i] = TimesScale(d, words[column][i], scale);
  }
  StoreBlocks<kColumns>(job.out + place, job.rows, words);
}

// Launches the kernel in registers if it takes this matrix and dialect.
bool LaunchInRegisters(const Dialect& d, const SideJob& job, const ValuesJob& values,
                       cudaStream_t stream) {
  RegisterJob own;
  const bool adaptive = d.adaptive != Adaptive::kNo, divides = Divides(d.factor);
  const ElementRounding rounding = divides ? kRegistersRounding<true> : kRegistersRounding<false>;
  const bool takes = d.element == FormatId::kE2M1 && d.rounding == rounding && d.block_cols == 16 &&
                     d.statistic == BlockStatistic::kAmax &&
                     (!divides || Has<RegistersFormulas<true>>(d)) && job.cols % kMsEdenGroup == 0;
  if (!takes || !FitsRegisters(d, job, values, &own)) return false;
  if (job.transposed &&
      (job.rows % 2 != 0 || !IsAligned(job.x, 4) || !IsAligned(values.values, 4))) {
    return false;
  }
  const std::size_t in_row = job.cols / kMsEdenGroup;
  constexpr std::size_t kPlaces = kValuesThreads / kParts;
  const std::size_t blocks = job.transposed ? DivideUp(job.rows / 2, kPlaces) * in_row
                                            : DivideUp(job.rows * in_row, kPlaces);
  const auto launch = [&]<bool kDivides, bool kAdaptive>() {
    const auto kernel = job.transposed ? MsEdenRegistersKernel<kDivides, kAdaptive, true>
                                       : MsEdenRegistersKernel<kDivides, kAdaptive, false>;
    kernel<<<static_cast<unsigned>(blocks), kValuesThreads, 0, stream>>>(d, own, values.source);
  };
  if (divides) {
    launch.template operator()<true, false>();
  } else if (adaptive) {
    launch.template operator()<false, true>();
  } else {
    launch.template operator()<false, false>();
  }
  CheckLaunch("the kernel of MS-EDEN in registers");
  return true;
}

}  // namespace

void LaunchMsEden(const Dialect& d, const SideJob& job, const ValuesJob& values,
                  cudaStream_t stream) {
  const std::size_t threads = job.rows * GroupsOfRow(job.cols);
  if (threads == 0 || LaunchInRegisters(d, job, values, stream)) return;
  const unsigned launched = Blocks(threads, kValuesThreads);
  ForElement(d.element, [&]<FormatId kElement>() {
    MsEdenKernel<kElement>
        <<<launched, kValuesThreads, 0, stream>>>(d, job, values.source, values.values);
  });
  CheckLaunch("the kernel of MS-EDEN");
}

}  // namespace fp4lab::cuda
