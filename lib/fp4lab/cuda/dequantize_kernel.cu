// Codes and scales back to numbers, in the order of Transformer Engine's dequantize kernel.
#include "fp4lab/block/scale_rules.h"
#include "fp4lab/cuda/check.cuh"
#include "fp4lab/cuda/launch.h"
#include "fp4lab/cuda/side.cuh"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kElements = 8;  // a thread's: consecutive ones of a row

struct DequantizeJob {
  BlockFormat format;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  const float* amax;
  std::size_t rows, cols;
  bool bf16;
  void* out;
};

template <FormatId kElement, ScaleRule kRule>
__device__ float Decoded(const DequantizeJob& job, std::size_t r, std::size_t c, float amax) {
  const BlockFormat format{kElement, kRule == ScaleRule::kNvfp4 ? FormatId::kE4M3 : FormatId::kE8M0,
                           job.format.block_rows, job.format.block_cols, kRule};
  std::uint8_t byte = 0;
  if (kRule != ScaleRule::kTensor) {
    const auto block_rows = static_cast<unsigned>(format.block_rows);
    const auto block_cols = static_cast<unsigned>(format.block_cols);
    byte = job.scales[r / block_rows * ((job.cols + block_cols - 1) / block_cols) + c / block_cols];
  }
  std::uint32_t code = 0;
  if (kElement == FormatId::kE2M1) {
    code = job.codes[r * ((job.cols + 1) / 2) + c / 2] >> (c % 2 * 4) & 0xFu;
  } else {
    code = job.codes[r * job.cols + c];
  }
  return Decode(kElement, code) * DecodeFactor(format, byte, amax);
}

template <FormatId kElement, ScaleRule kRule>
__global__ void __launch_bounds__(kThreads) DequantizeKernel(DequantizeJob job) {
  const std::size_t groups = (job.cols + kElements - 1) / kElements;
  const std::size_t id = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t row = id / groups, first = id % groups * kElements;
  if (row >= job.rows) return;
  const float amax = job.amax == nullptr ? 0.0f : *job.amax;
  for (std::size_t c = first; c < min(first + kElements, job.cols); ++c) {
    const float y = Decoded<kElement, kRule>(job, row, c, amax);
    if (job.bf16) {
      static_cast<std::uint16_t*>(job.out)[row * job.cols + c] = Bf16Bits(y);
    } else {
      static_cast<float*>(job.out)[row * job.cols + c] = y;
    }
  }
}

template <FormatId kElement, ScaleRule kRule>
void Launch(const DequantizeJob& job, cudaStream_t stream) {
  const std::size_t threads = job.rows * ((job.cols + kElements - 1) / kElements);
  if (threads == 0) return;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  DequantizeKernel<kElement, kRule><<<blocks, kThreads, 0, stream>>>(job);
  CheckLaunch("the kernel of decoding");
}

template <FormatId kElement>
void LaunchWide(const DequantizeJob& job, cudaStream_t stream) {
  if (job.format.rule == ScaleRule::kTensor) {
    Launch<kElement, ScaleRule::kTensor>(job, stream);
  } else {
    Launch<kElement, ScaleRule::kFloor>(job, stream);  // all E8M0 rules decode alike
  }
}

}  // namespace

void LaunchDequantize(const BlockFormat& format, const std::uint8_t* codes,
                      const std::uint8_t* scales, const float* amax, std::size_t rows,
                      std::size_t cols, ElementType type, void* out, StreamHandle stream) {
  const DequantizeJob job{format, codes, scales, amax, rows, cols, type == ElementType::kBf16, out};
  const cudaStream_t native = NativeStream(stream);
  if (format.element == FormatId::kE4M3) {
    LaunchWide<FormatId::kE4M3>(job, native);
  } else if (format.element == FormatId::kE5M2) {
    LaunchWide<FormatId::kE5M2>(job, native);
  } else if (format.rule == ScaleRule::kNvfp4) {
    Launch<FormatId::kE2M1, ScaleRule::kNvfp4>(job, native);
  } else {
    Launch<FormatId::kE2M1, ScaleRule::kFloor>(job, native);
  }
}

}  // namespace fp4lab::cuda
