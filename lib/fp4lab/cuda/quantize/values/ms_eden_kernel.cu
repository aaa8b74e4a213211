// Values for GEMMs in dialects with the correction of MS-EDEN.
#include <type_traits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/quantize/block_registers.cuh"
#include "fp4lab/cuda/quantize/values/dialect_values.cuh"
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
// blocks make a group, a lane of a warp each, and add up through shared memory.
constexpr unsigned kParts = kMsEdenGroup / 16;

// The terms of the two sums of a group, by which its lanes exchange them. The padding puts the four
// groups of a warp into different banks of shared memory.
struct GroupProducts {
  float squares[16][kParts], products[16][kParts], padding[kParts];
};

// The correction of the group of the calling lane, whose block `part` has elements x with
// `values`. All lanes of the warp call it. The sums are those of MsEdenSums: virtual lane k of
// base/simd/reduce.h adds element k of each block.
template <bool kTransposed>
__device__ float CorrectionOf(const float (&x)[16], const float (&values)[16],
                              const TensorScale& tensor, unsigned part, GroupProducts* group) {
#pragma unroll
  for (unsigned k = 0; k < 16; ++k) {
    group->squares[k][part] = x[k] * x[k];
    group->products[k][part] = x[k] * (values[k] * tensor.decode);
  }
  __syncwarp();
  const auto total = [&](const float(&terms)[16][kParts]) {
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (unsigned b = 0; b < kParts; ++b) {
      low = low + terms[part][b];
      high = high + terms[part + 8][b];
    }
    float sum = low + high;
#pragma unroll
    for (unsigned width = kParts / 2; width > 0; width /= 2) {
      sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, width * kPartDistance<kParts, kTransposed>);
    }
    return sum;
  };
  const float squares = total(group->squares);
  return MsEdenCorrection(squares, total(group->products));
}

// Among dialects that divide, the kernel takes Quartet II's, which rounds ties away from 0; the
// others round to even.
template <bool kDivides>
constexpr ElementRounding kRegistersRounding =
    kDivides ? ElementRounding::kTiesAway : ElementRounding::kNearestEven;
template <bool kDivides>
using RegistersFormulas = std::conditional_t<kDivides, QuartetFormulas<Adaptive::kNo>, AnyFormulas>;

template <bool kDivides, bool kAdaptive, bool kTransposed>
__global__ void __launch_bounds__(kValuesThreads, 4)
    MsEdenRegistersKernel(Dialect d, RegisterJob job, RandomSource source) {
  using Values = ElementValues<FormatId::kE2M1, kRegistersRounding<kDivides>, kDivides>;
  __shared__ GroupProducts groups[kValuesThreads / kParts];
  RegistersFormulas<kDivides>::Set(&d);  // compile-time constants
  d.element = FormatId::kE2M1;
  d.rounding = kRegistersRounding<kDivides>;
  d.block_rows = 1;
  d.block_cols = 16;
  const LanePlace lane = LanePlaceOf<kParts, kTransposed>(blockIdx.x * kValuesThreads + threadIdx.x,
                                                          job.rows, job.cols);
  if (!lane.exists) return;
  const std::uint64_t element = std::uint64_t{lane.row} * job.cols + lane.segment * 16u;
  const RegisterPlace place{
      lane.row, element,
      kTransposed ? std::uint64_t{lane.segment} * 16u * job.rows + lane.row : element};
  std::uint32_t words[8];
  LoadBlock<16, kTransposed>(job, place, words);
  const TensorScale tensor =
      HasTensorScale(d) ? TensorScaleOf(d, job.amax[d.row_scaled ? lane.row : 0]) : TensorScale{};
  const BlockNumbers numbers = ChosenOfWords<Values, 16, kAdaptive, false>(d, tensor, words);
  const Values values(d, numbers);
  float x[16], rounded[16], scaled[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    x[i] = Element(words, i);
    rounded[i] = values.Of(x[i], 0, 0);
    scaled[i] = rounded[i] * numbers.scale;
  }
  constexpr unsigned kGroups = 32 / kParts;  // of a warp
  const unsigned own = threadIdx.x / 32 * kGroups +
                       (kTransposed ? threadIdx.x % kGroups : threadIdx.x % 32 / kParts);
  const float correction = CorrectionOf<kTransposed>(x, scaled, tensor, lane.part, &groups[own]);
  const std::uint64_t block = std::uint64_t{lane.row} * (job.cols / 16) + lane.segment;
  const std::uint32_t bits = ScaleBits(ScaleSource(source), block);
  const float scale = ScaleValueOf(d, CorrectedScaleByte(d, numbers.scale, correction, bits));
#pragma unroll
  for (int i = 0; i < 8; ++i)
    words[i] = Bf16Pair(rounded[2 * i] * scale, rounded[2 * i + 1] * scale);
  if (lane.stores) StoreBlock<16, kTransposed>(job, place, words);
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
  const std::size_t threads = ThreadsOfLanes<kParts>(job.transposed, job.rows, job.cols);
  const auto launch = [&]<bool kDivides, bool kAdaptive>() {
    const auto kernel = job.transposed ? MsEdenRegistersKernel<kDivides, kAdaptive, true>
                                       : MsEdenRegistersKernel<kDivides, kAdaptive, false>;
    kernel<<<Blocks(threads, kValuesThreads), kValuesThreads, 0, stream>>>(d, own, values.source);
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
