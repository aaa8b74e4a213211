// Fills matrices in device memory with the elements of generate.h.
#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/quantize/generate.h"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    GenerateKernel(Distribution distribution, RandomStream stream, std::size_t count, bool bf16,
                   void* x) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const std::uint32_t bits = GeneratedBits(distribution, stream, i);
    if (bf16) {
      static_cast<std::uint16_t*>(x)[i] = static_cast<std::uint16_t>(bits >> 16);
    } else {
      static_cast<std::uint32_t*>(x)[i] = bits;
    }
  }
}

}  // namespace

void Generate(Distribution distribution, const RandomStream& stream, const DeviceMatrix& x,
              StreamHandle handle) {
  const std::size_t count = x.rows * x.cols;
  if (count == 0) return;
  const std::size_t wanted = DivideUp(count, kThreads);
  const auto blocks = static_cast<unsigned>(wanted < 65536 ? wanted : 65536);
  GenerateKernel<<<blocks, kThreads, 0, NativeStream(handle)>>>(
      distribution, stream, count, x.type == ElementType::kBf16, const_cast<void*>(x.data));
  CheckLaunch("the kernel of test matrices");
}

}  // namespace fp4lab::cuda
