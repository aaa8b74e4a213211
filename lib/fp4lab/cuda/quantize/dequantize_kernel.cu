// Decodes codes and scales to numbers, in the order of operations of Transformer Engine's
// dequantize kernel.
#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/device/side.cuh"
#include "fp4lab/cuda/quantize/launch.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kElements = 8;  // of a thread, consecutive in a row

struct DequantizeJob {
  unsigned block_rows, block_cols;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  const float* amax;
  std::size_t rows, cols;
  bool bf16;
  void* out;
};

template <FormatId kElement, BlockScale kRule>
__device__ float Decoded(const DequantizeJob& job, std::size_t r, std::size_t c, float amax) {
  constexpr Dialect kDialect = DialectUnder(kRule, kElement, 1, 16);
  std::uint8_t byte = 0;
  if (kRule != BlockScale::kOneBlock) {
    const unsigned block_rows = job.block_rows, block_cols = job.block_cols;
    byte = job.scales[r / block_rows * DivideUp(job.cols, block_cols) + c / block_cols];
  }
  std::uint32_t code = 0;
  if (kElement == FormatId::kE2M1) {
    code = job.codes[r * ((job.cols + 1) / 2) + c / 2] >> (c % 2 * 4) & 0xFu;
  } else {
    code = job.codes[r * job.cols + c];
  }
  return Decode(kElement, code) * DecodeFactor(kDialect, ScaleValueOf(kDialect, byte), amax);
}

template <FormatId kElement, BlockScale kRule>
__global__ void __launch_bounds__(kThreads) DequantizeKernel(DequantizeJob job) {
  const std::size_t groups = DivideUp(job.cols, kElements);
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

template <FormatId kElement, BlockScale kRule>
void Launch(const DequantizeJob& job, cudaStream_t stream) {
  const std::size_t threads = job.rows * DivideUp(job.cols, kElements);
  if (threads == 0) return;
  const auto blocks = Blocks(threads, kThreads);
  DequantizeKernel<kElement, kRule><<<blocks, kThreads, 0, stream>>>(job);
  CheckLaunch("the kernel of decoding");
}

template <FormatId kElement>
void LaunchWide(bool one_block, const DequantizeJob& job, cudaStream_t stream) {
  if (one_block) {
    Launch<kElement, BlockScale::kOneBlock>(job, stream);
  } else {
    Launch<kElement, BlockScale::kFloor>(job, stream);  // all E8M0 rules decode alike
  }
}

}  // namespace

void LaunchDequantize(const Dialect& dialect, const std::uint8_t* codes, const std::uint8_t* scales,
                      const float* amax, std::size_t rows, std::size_t cols, ElementType type,
                      void* out, StreamHandle stream) {
  const DequantizeJob job{.block_rows = static_cast<unsigned>(dialect.block_rows),
                          .block_cols = static_cast<unsigned>(dialect.block_cols),
                          .codes = codes,
                          .scales = scales,
                          .amax = amax,
                          .rows = rows,
                          .cols = cols,
                          .bf16 = type == ElementType::kBf16,
                          .out = out};
  const cudaStream_t native = NativeStream(stream);
  const bool one_block = dialect.block_scale == BlockScale::kOneBlock;
  if (dialect.element == FormatId::kE4M3) {
    LaunchWide<FormatId::kE4M3>(one_block, job, native);
  } else if (dialect.element == FormatId::kE5M2) {
    LaunchWide<FormatId::kE5M2>(one_block, job, native);
  } else if (dialect.block_scale == BlockScale::kFolded) {
    Launch<FormatId::kE2M1, BlockScale::kFolded>(job, native);
  } else {
    Launch<FormatId::kE2M1, BlockScale::kFloor>(job, native);
  }
}

}  // namespace fp4lab::cuda
