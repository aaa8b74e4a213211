// Values for GEMMs in dialects with the correction of MS-EDEN.
#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/quantize/dialect_values.cuh"
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

}  // namespace

void LaunchMsEden(const Dialect& d, const SideJob& job, const ValuesJob& values,
                  cudaStream_t stream) {
  const std::size_t threads = job.rows * GroupsOfRow(job.cols);
  if (threads == 0) return;
  const unsigned launched = Blocks(threads, kValuesThreads);
  ForElement(d.element, [&]<FormatId kElement>() {
    MsEdenKernel<kElement>
        <<<launched, kValuesThreads, 0, stream>>>(d, job, values.source, values.values);
  });
  CheckLaunch("the kernel of MS-EDEN");
}

}  // namespace fp4lab::cuda
