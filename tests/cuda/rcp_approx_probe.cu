// Measures rcp.approx.ftz.f32: compares it with the correctly rounded reciprocal for every positive
// binary32 number, and records the block formulas that use the instruction (dialects
// nvfp4.flashinfer and nvfp4.cutlass.epilogue).
//   nvcc -std=c++20 -O2 --fmad=false -arch=native tests/cuda/rcp_approx_probe.cu -o probe
//   ./probe blocks.bin
// Prints counts as JSON; blocks.bin holds records of 6 binary32 numbers: S, b, then t and e of
// nvfp4.flashinfer, then t and e of nvfp4.cutlass.epilogue. e follows from s, the E4M3 value of t
// rounded to nearest.
#include <cuda_fp8.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

__device__ float RcpApprox(float a) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
__device__ float E4m3Value(float t) { return static_cast<float>(__nv_fp8_e4m3(t)); }

// Slots of `counts`:
//   0 .. 6            -3 .. 3 binary32 steps from the rounded reciprocal, normal arguments
//   kBeyond           more than 3 steps
//   kMoreThanUnit     results more than 1 ulp from the exact reciprocal
//   kFlushed          arguments whose rounded reciprocal is subnormal and whose result is 0
//   kNotFlushed       the same with another result
//   kSubnormalNotInf  subnormal arguments whose result is not Inf
//   kPowerInexact     powers of two whose result is not the rounded reciprocal
enum : int {
  kBeyond = 7,
  kMoreThanUnit,
  kFlushed,
  kNotFlushed,
  kSubnormalNotInf,
  kPowerInexact,
  kAll
};

__global__ void CountSteps(unsigned long long* counts) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < (std::uint64_t{1} << 31); i += stride) {
    const auto bits = static_cast<std::uint32_t>(i);
    if (bits == 0 || bits >= 0x7F800000u) continue;
    const float a = __uint_as_float(bits);
    const float approximate = RcpApprox(a);
    if (bits < 0x800000u) {
      if (__float_as_uint(approximate) != 0x7F800000u) atomicAdd(&counts[kSubnormalNotInf], 1ull);
      continue;
    }
    const float nearest = __frcp_rn(a);
    if (nearest < 0x1p-126f) {
      atomicAdd(&counts[approximate == 0.0f ? kFlushed : kNotFlushed], 1ull);
      continue;
    }
    const int steps = static_cast<int>(__float_as_uint(approximate) - __float_as_uint(nearest));
    const int slot = steps < -3 || steps > 3 ? kBeyond : steps + 3;
    if (slot != 3) atomicAdd(&counts[slot], 1ull);
    const double exact = 1.0 / static_cast<double>(a);
    const double unit = ldexp(1.0, ilogb(exact) - 23);
    if (fabs(static_cast<double>(approximate) - exact) > unit) {
      atomicAdd(&counts[kMoreThanUnit], 1ull);
    }
    if ((bits & 0x7FFFFFu) == 0 && steps != 0) atomicAdd(&counts[kPowerInexact], 1ull);
  }
}

struct Block {
  float encode, amax;
  float flashinfer_t, flashinfer_e, cutlass_t, cutlass_e;
};

__global__ void Blocks(Block* blocks, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Block& block = blocks[i];
  block.flashinfer_t = block.encode * (block.amax * RcpApprox(6.0f));
  block.flashinfer_e = block.amax != 0.0f
                           ? RcpApprox(E4m3Value(block.flashinfer_t) * RcpApprox(block.encode))
                           : 0.0f;
  block.cutlass_t = block.amax * (block.encode * RcpApprox(6.0f));
  block.cutlass_e = fminf(block.encode * RcpApprox(E4m3Value(block.cutlass_t)), 3.402823466e38f);
}

bool Ok(cudaError_t status) {
  if (status == cudaSuccess) return true;
  std::fprintf(stderr, "error: %s\n", cudaGetErrorString(status));
  return false;
}

float FromBits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: probe blocks.bin\n");
    return 2;
  }
  unsigned long long* counts = nullptr;
  if (!Ok(cudaMallocManaged(&counts, kAll * sizeof *counts))) return 1;
  std::memset(counts, 0, kAll * sizeof *counts);
  CountSteps<<<2048, 256>>>(counts);
  if (!Ok(cudaDeviceSynchronize())) return 1;

  constexpr int kBlocks = 4096;
  Block* blocks = nullptr;
  if (!Ok(cudaMallocManaged(&blocks, kBlocks * sizeof *blocks))) return 1;
  std::uint64_t state = 1;
  for (int i = 0; i < kBlocks; ++i) {
    const auto next = [&state] {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      return static_cast<std::uint32_t>(state >> 33);
    };
    // The tensor's amax: BF16, exponents -60 to 59 or, in every 8th block, any normal exponent. b:
    // BF16, from 2^-24 of the amax up to the amax.
    const std::uint32_t exponent = i % 8 == 0 ? 1 + next() % 254 : 67 + next() % 120;
    const std::uint32_t amax_bits = (exponent << 23 | (next() & 0x7FFFFFu)) & 0xFFFF0000u;
    const std::uint32_t down = next() % 24 << 23;
    const std::uint32_t b_bits = amax_bits > down + 0x800000u ? amax_bits - down : amax_bits;
    const float amax = FromBits(amax_bits);
    const std::uint32_t mixed = (b_bits & 0xFF800000u) | (next() & 0x7F0000u);
    blocks[i].amax = mixed <= amax_bits ? FromBits(mixed) : amax;
    blocks[i].encode = 2688.0f / amax;
  }
  Blocks<<<(kBlocks + 255) / 256, 256>>>(blocks, kBlocks);
  if (!Ok(cudaDeviceSynchronize())) return 1;
  std::FILE* file = std::fopen(argv[1], "wb");
  if (file == nullptr || std::fwrite(blocks, sizeof *blocks, kBlocks, file) != kBlocks) return 1;
  std::fclose(file);

  cudaDeviceProp device;
  if (!Ok(cudaGetDeviceProperties(&device, 0))) return 1;
  std::printf("{\"device\": \"%s\",\n \"steps_from_rounded\": {", device.name);
  for (int steps = -3; steps <= 3; ++steps) {
    if (steps != 0) std::printf("\"%d\": %llu, ", steps, counts[steps + 3]);
  }
  std::printf(
      "\"beyond\": %llu},\n \"more_than_one_ulp\": %llu,\n \"flushed\": %llu, "
      "\"not_flushed\": %llu, \"subnormal_argument_not_inf\": %llu, "
      "\"power_of_two_inexact\": %llu}\n",
      counts[kBeyond], counts[kMoreThanUnit], counts[kFlushed], counts[kNotFlushed],
      counts[kSubnormalNotInf], counts[kPowerInexact]);
  return 0;
}
