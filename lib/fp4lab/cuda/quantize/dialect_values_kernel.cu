// Values for GEMMs in every dialect: any shape, either direction, BF16 or binary32.
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/quantize/dialect_block.cuh"
#include "fp4lab/cuda/quantize/dialect_values.h"
#include "fp4lab/quantize/ms_eden.h"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = 128;

__device__ void StoreValue(const SideJob& job, void* out, std::size_t place, float value) {
  if (job.bf16) {
    static_cast<std::uint16_t*>(out)[place] = Bf16Bits(value);
  } else {
    static_cast<float*>(out)[place] = value;
  }
}

template <FormatId kElement, unsigned kLanes, bool kQuest>
__global__ void __launch_bounds__(kThreads, 4)
    ValuesKernel(Dialect d, SideJob job, RandomSource source, void* out) {
  d.element = kElement;  // a compile-time constant: the compiler drops the tables of formats
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  if (kLanes == 1) d.block_rows = 1;
  const std::size_t thread = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread / kLanes >= grid.rows * grid.cols) return;
  const auto lane = static_cast<unsigned>(thread % kLanes);
  const DialectBlock block = BlockAt(grid, job, thread / kLanes);
  const TensorScale tensor = TensorScaleOfBlock(job, d, block);
  const BlockNumbers numbers = Chosen<kLanes, kQuest>(job, d, tensor, block, lane);
  const int bits = RandomBitsOf(d.rounding);
  for (std::size_t r = block.r0 + lane; r < block.r0 + block.rows; r += kLanes) {
    for (std::size_t c = block.c0; c < block.c0 + block.cols; ++c) {
      const std::uint32_t random =
          bits == 0 ? 0 : source.Bits(bits, r * job.cols + c, job.rows, job.cols);
      const std::uint32_t code = QuantizedElement(d, numbers, tensor, job.Element(r, c), random);
      StoreValue(job, out, job.Place(r, c), Decode(kElement, code) * numbers.scale);
    }
  }
}

// The number of MS-EDEN's groups in a row: kMsEdenGroup elements each, the last group the rest of
// the row.
__host__ __device__ std::size_t GroupsOfRow(std::size_t cols) {
  return DivideUp(cols, kMsEdenGroup);
}

// One thread for each group quantizes it twice: first for the sums of the correction, then under
// the corrected scales.
template <FormatId kElement>
__global__ void __launch_bounds__(kThreads, 4)
    MsEdenKernel(Dialect d, SideJob job, RandomSource source, void* out) {
  d.element = kElement;
  d.block_rows = 1;
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  const std::size_t groups = GroupsOfRow(job.cols);
  const std::size_t thread = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
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

template <FormatId kElement>
void LaunchMsEden(const Dialect& d, const SideJob& job, const ValuesJob& values,
                  cudaStream_t stream) {
  const std::size_t threads = job.rows * GroupsOfRow(job.cols);
  if (threads == 0) return;
  const unsigned launched = Blocks(threads, kThreads);
  MsEdenKernel<kElement><<<launched, kThreads, 0, stream>>>(d, job, values.source, values.values);
  CheckLaunch("the kernel of MS-EDEN");
}

template <FormatId kElement, unsigned kLanes>
void Launch(const Dialect& d, const SideJob& job, const ValuesJob& values, cudaStream_t stream) {
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  const std::size_t threads = grid.rows * grid.cols * kLanes;
  if (threads == 0) return;
  const unsigned launched = Blocks(threads, kThreads);
  const auto launch = [&](auto kernel) {
    kernel<<<launched, kThreads, 0, stream>>>(d, job, values.source, values.values);
  };
  d.statistic == BlockStatistic::kQuest ? launch(ValuesKernel<kElement, kLanes, true>)
                                        : launch(ValuesKernel<kElement, kLanes, false>);
  CheckLaunch("the kernel of dialects' values");
}

template <FormatId kElement>
void LaunchFor(const Dialect& d, const SideJob& job, const ValuesJob& values, cudaStream_t stream) {
  if (d.unbias == Unbias::kMsEden) return LaunchMsEden<kElement>(d, job, values, stream);
  if (d.block_rows <= 1) return Launch<kElement, 1>(d, job, values, stream);
  d.block_rows <= 16 ? Launch<kElement, 16>(d, job, values, stream)
                     : Launch<kElement, 32>(d, job, values, stream);
}

// Launches the kernel for the dialect's element format, a row of kFormats.
template <std::size_t... kRows>
void LaunchElement(const Dialect& d, const SideJob& job, const ValuesJob& values,
                   cudaStream_t stream, std::index_sequence<kRows...>) {
  const auto launch = [&]<std::size_t kRow>() {
    if constexpr (IsValueElement(kFormats[kRow].id)) {
      if (d.element == kFormats[kRow].id) LaunchFor<kFormats[kRow].id>(d, job, values, stream);
    }
  };
  (launch.template operator()<kRows>(), ...);
}

}  // namespace

void QuantizeToValues(const Dialect& dialect, const ValuesJob& values, StreamHandle stream) {
  Expects(CanQuantizeToValues(dialect), "a dialect whose values a kernel gives");
  Expects(!HasTensorScale(dialect) || values.amax != nullptr, "the format needs the tensor's amax");
  Expects(Feeds(values.source.generator, dialect), "the generator gives the bits of the rounding");
  QuantizedSide side;
  side.amax = values.amax;
  const SideJob job = JobOf(values.x, side, values.transposed);
  LaunchElement(dialect, job, values, NativeStream(stream),
                std::make_index_sequence<kFormats.size()>());
}

}  // namespace fp4lab::cuda
