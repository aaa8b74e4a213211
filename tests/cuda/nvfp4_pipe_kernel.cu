// A CUDA kernel that `fp4lab verify` judges: NVFP4 1x16 by Transformer Engine's formulas, run as
//
//   fp4lab cases --dialect nvfp4.te | ./nvfp4_pipe_kernel | fp4lab verify --dialect nvfp4.te
//
// The program reads the stream that lib/fp4lab/judge/cases/case_stream.h describes and shares no
// code with fp4lab: the conversions are NVIDIA's own (cuda_fp4.h, cuda_fp8.h), which fall back to
// software below sm_100. Built with -use_fast_math it is the wrong kernel of
// tools/kernel-differs.md.
//
//   nvcc -std=c++17 -O2 --fmad=false -arch=sm_90a -o nvfp4_pipe_kernel nvfp4_pipe_kernel.cu
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <cfloat>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr unsigned kBlock = 16;

void Check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "nvfp4_pipe_kernel: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// max |x| over elements that are not NaN, as float bits: non-negative floats order as integers.
__global__ void TensorAmax(const float* x, unsigned count, unsigned* amax) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && x[i] == x[i]) atomicMax(amax, __float_as_uint(fabsf(x[i])));
}

// One thread a block of 16 columns.
__global__ void Quantize(const float* x, unsigned rows, unsigned cols, const unsigned* amax_bits,
                         std::uint8_t* codes, std::uint8_t* scales) {
  const unsigned blocks = (cols + kBlock - 1) / kBlock;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * blocks) return;
  const unsigned row = i / blocks, first = i % blocks * kBlock;
  const unsigned width = min(kBlock, cols - first);
  const float* in = x + std::size_t{row} * cols + first;

  const float amax = __uint_as_float(*amax_bits);
  float encode = amax == 0.0f ? 1.0f : fminf(2688.0f / amax, FLT_MAX);
  if (encode == 0.0f) encode = 1.0f;
  const float decode = 1.0f / encode;

  float block_amax = 0.0f;
  for (unsigned c = 0; c < width; ++c) block_amax = fmaxf(block_amax, fabsf(in[c]));
  const float before = fminf(block_amax * (encode * (1.0f / 6.0f)), FLT_MAX);
  const __nv_fp8_storage_t byte = __nv_cvt_float_to_fp8(before, __NV_SATFINITE, __NV_E4M3);
  scales[i] = byte;
  const float scale = __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)));
  const float factor = fminf(1.0f / (scale * decode), FLT_MAX);

  std::uint8_t* out = codes + std::size_t{row} * ((cols + 1) / 2) + first / 2;
  for (unsigned c = 0; c < width; c += 2) {
    const float low = in[c] * factor, high = c + 1 < width ? in[c + 1] * factor : 0.0f;
    out[c / 2] = __nv_cvt_float2_to_fp4x2(make_float2(low, high), __NV_E2M1, cudaRoundNearest);
  }
}

template <class T>
T* OnDevice(std::size_t count) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, (count > 0 ? count : 1) * sizeof(T)));
  Check(cudaMemset(memory, 0, (count > 0 ? count : 1) * sizeof(T)));
  return static_cast<T*>(memory);
}

template <class T>
void ReadAll(T* out, std::size_t count) {
  if (std::fread(out, sizeof(T), count, stdin) == count) return;
  std::fprintf(stderr, "nvfp4_pipe_kernel: the stream of cases is cut short\n");
  std::exit(1);
}

struct CaseHeader {
  std::uint32_t index, check, rows, cols, random;
};

std::vector<float> ReadElements(std::size_t count, bool bf16) {
  std::vector<float> x(count);
  if (!bf16) {
    ReadAll(x.data(), count);
    return x;
  }
  std::vector<std::uint16_t> bits(count);
  ReadAll(bits.data(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits[i]) << 16;
    std::memcpy(&x[i], &wide, 4);
  }
  return x;
}

void Answer(const CaseHeader& header, const std::vector<float>& x) {
  const unsigned rows = header.rows, cols = header.cols, count = rows * cols;
  const unsigned blocks = rows * ((cols + kBlock - 1) / kBlock);
  const std::size_t code_bytes = std::size_t{rows} * ((cols + 1) / 2);
  float* input = OnDevice<float>(count);
  unsigned* amax = OnDevice<unsigned>(1);
  auto* codes = OnDevice<std::uint8_t>(code_bytes);
  auto* scales = OnDevice<std::uint8_t>(blocks);
  Check(cudaMemcpy(input, x.data(), count * sizeof(float), cudaMemcpyHostToDevice));
  if (count > 0) {
    TensorAmax<<<(count + 255) / 256, 256>>>(input, count, amax);
    Quantize<<<(blocks + 127) / 128, 128>>>(input, rows, cols, amax, codes, scales);
    Check(cudaGetLastError());
  }
  std::vector<std::uint8_t> bytes(code_bytes + blocks);
  float tensor_scale = 0.0f;
  Check(cudaMemcpy(bytes.data(), codes, code_bytes, cudaMemcpyDeviceToHost));
  Check(cudaMemcpy(bytes.data() + code_bytes, scales, blocks, cudaMemcpyDeviceToHost));
  Check(cudaMemcpy(&tensor_scale, amax, 4, cudaMemcpyDeviceToHost));
  const std::uint32_t head[] = {header.index, header.check, static_cast<std::uint32_t>(code_bytes),
                                blocks, 1};
  std::fwrite(head, 4, 5, stdout);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fwrite(&tensor_scale, 4, 1, stdout);
  for (void* memory : {static_cast<void*>(input), static_cast<void*>(amax),
                       static_cast<void*>(codes), static_cast<void*>(scales)}) {
    Check(cudaFree(memory));
  }
}

}  // namespace

int main() {
  char line[512];
  if (std::fgets(line, sizeof(line), stdin) == nullptr ||
      std::strncmp(line, "fp4lab-cases 1 ", 15) != 0) {
    std::fprintf(stderr, "nvfp4_pipe_kernel: stdin holds no stream of fp4lab cases\n");
    return 1;
  }
  const bool bf16 = std::strstr(line, "dtype=bf16") != nullptr;
  std::printf("fp4lab-answers 1\n");
  CaseHeader header;
  while (std::fread(&header, sizeof(header), 1, stdin) == 1) {
    const std::vector<float> x = ReadElements(std::size_t{header.rows} * header.cols, bf16);
    if (header.random == 0) {
      Answer(header, x);
      continue;
    }
    std::vector<std::uint16_t> random(x.size());  // this kernel rounds to nearest only
    ReadAll(random.data(), random.size());
    const std::uint32_t declined[] = {header.index, header.check, 0, 0, 0};
    std::fwrite(declined, 4, 5, stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
