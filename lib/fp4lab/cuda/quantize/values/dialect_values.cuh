// Parts of the kernels of dialects' values: dialect_values_kernel.cu takes blocks of one row,
// dialect_values_tiles_kernel.cu blocks of several rows, ms_eden_kernel.cu the groups of MS-EDEN.
// Each file compiles on its own, as every kernel stands in it once for each element format.
#pragma once

#include <utility>

#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/quantize/dialect_block.cuh"
#include "fp4lab/cuda/quantize/dialect_values.h"

namespace fp4lab::cuda {

constexpr unsigned kValuesThreads = 128;

inline __device__ void StoreValue(const SideJob& job, void* out, std::size_t place, float value) {
  if (job.bf16) {
    static_cast<std::uint16_t*>(out)[place] = Bf16Bits(value);
  } else {
    static_cast<float*>(out)[place] = value;
  }
}

template <FormatId kElement, unsigned kLanes, bool kQuest>
__global__ void __launch_bounds__(kValuesThreads, 4)
    ValuesKernel(Dialect d, SideJob job, RandomSource source, void* out, float* scales) {
  d.element = kElement;  // a compile-time constant: the compiler drops the tables of formats
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  if (kLanes == 1) d.block_rows = 1;
  const std::size_t thread = std::size_t{blockIdx.x} * kValuesThreads + threadIdx.x;
  if (thread / kLanes >= grid.rows * grid.cols) return;
  const auto lane = static_cast<unsigned>(thread % kLanes);
  const DialectBlock block = BlockAt(grid, job, thread / kLanes);
  const TensorScale tensor = TensorScaleOfBlock(job, d, block);
  const BlockNumbers numbers = Chosen<kLanes, kQuest>(job, d, tensor, block, lane);
  if (scales != nullptr && lane == 0) scales[block.j * grid.rows + block.i] = numbers.scale;
  const float factor = scales != nullptr ? 1.0f : numbers.scale;
  const int bits = RandomBitsOf(d.rounding);
  for (std::size_t r = block.r0 + lane; r < block.r0 + block.rows; r += kLanes) {
    for (std::size_t c = block.c0; c < block.c0 + block.cols; ++c) {
      const std::uint32_t random =
          bits == 0 ? 0 : source.Bits(bits, r * job.cols + c, job.rows, job.cols);
      const std::uint32_t code = QuantizedElement(d, numbers, tensor, job.Element(r, c), random);
      StoreValue(job, out, job.Place(r, c), Decode(kElement, code) * factor);
    }
  }
}

template <FormatId kElement, unsigned kLanes>
void LaunchValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                  cudaStream_t stream) {
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  const std::size_t threads = grid.rows * grid.cols * kLanes;
  if (threads == 0) return;
  const unsigned launched = Blocks(threads, kValuesThreads);
  const auto launch = [&](auto kernel) {
    kernel<<<launched, kValuesThreads, 0, stream>>>(d, job, values.source, values.values,
                                                    values.scales);
  };
  d.statistic == BlockStatistic::kQuest ? launch(ValuesKernel<kElement, kLanes, true>)
                                        : launch(ValuesKernel<kElement, kLanes, false>);
  CheckLaunch("the kernel of dialects' values");
}

// Calls launch.operator()<format>() for the dialect's element format, a row of kFormats.
template <class LaunchOf>
void ForElement(FormatId element, const LaunchOf& launch) {
  const auto one = [&]<std::size_t kRow>() {
    if constexpr (IsValueElement(kFormats[kRow].id)) {
      if (element == kFormats[kRow].id) launch.template operator()<kFormats[kRow].id>();
    }
  };
  [&]<std::size_t... kRows>(std::index_sequence<kRows...>) {
    (one.template operator()<kRows>(), ...);
  }
  (std::make_index_sequence<kFormats.size()>());
}

// Launch a kernel in registers if one takes this matrix and dialect: a thread has a block, or the
// lanes of a warp share a longer one, which LaunchRegisterValues tries last.
bool LaunchRegisterValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                          cudaStream_t stream);
bool LaunchLaneValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                      cudaStream_t stream);
// The same for tiles of 128 x 128.
bool LaunchWholeTiles(const Dialect& d, const SideJob& job, const ValuesJob& values,
                      cudaStream_t stream);
void LaunchTileValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                      cudaStream_t stream);
void LaunchMsEden(const Dialect& d, const SideJob& job, const ValuesJob& values,
                  cudaStream_t stream);

}  // namespace fp4lab::cuda
