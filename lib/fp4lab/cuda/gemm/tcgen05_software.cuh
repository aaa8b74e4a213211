// The functions of tcgen05.cuh in software: tensor memory is an array in shared memory, and
// operands are found through their descriptors, field by field as the tables of the PTX ISA name
// them. All 128 threads of the thread block make each call, thread i for lane i.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/cuda/gemm/mma_step.h"
#include "fp4lab/cuda/gemm/tcgen05_descriptor.h"

namespace fp4lab::cuda {

// The fields of a shared memory descriptor, in bytes. sound: K-major without swizzle.
struct SharedMatrixFields {
  std::uint32_t start, leading, stride;
  bool sound;
};
constexpr SharedMatrixFields ReadSharedMatrix(std::uint64_t d) {
  const auto field = [d](int first) {
    return static_cast<std::uint32_t>(d >> first & 0x3FFFu) << 4;
  };
  return {field(0), field(16), field(32), d >> 46 == 1};
}
constexpr std::uint32_t CoreAddress(const SharedMatrixFields& m, std::uint32_t row,
                                    std::uint32_t byte) {
  return m.start + row / 8 * m.stride + row % 8 * 16 + byte / 16 * m.leading + byte % 16;
}

struct InstructionFields {
  std::uint32_t m, n, a_id, b_id;
  BlockScaling scaling;
  bool sound;  // dense E2M1 x E2M1, k = 64, no operand negated or transposed
};
constexpr InstructionFields ReadInstruction(std::uint32_t d) {
  return {.m = (d >> 27 & 3u) * 128,
          .n = (d >> 17 & 0x3Fu) * 8,
          .a_id = d >> 29 & 3u,
          .b_id = d >> 4 & 3u,
          .scaling = (d >> 23 & 1u) != 0 ? BlockScaling::kMxfp4 : BlockScaling::kNvfp4,
          .sound = (d & 0x8701F04Fu) == 0 && (d >> 7 & 7u) == 1 && (d >> 10 & 3u) == 1};
}

// Tensor memory of kColumns columns. Its address is kBase, because a real allocation need not start
// at column 0.
template <unsigned kColumns>
class SoftwareTensorMemory {
 public:
  static constexpr bool kOneThread = false;  // all threads issue
  static constexpr unsigned kLanes = 128, kBase = 32, kBytes = kLanes * kColumns * 4;

  __device__ explicit SoftwareTensorMemory(std::uint32_t* cells) : cells_(cells) {}

  __device__ void Allocate(std::uint32_t* address) const {
    if (threadIdx.x == 0) *address = kBase;
  }
  __device__ void Free(std::uint32_t) const {}

  __device__ void Load(std::uint32_t address, std::uint32_t (&x)[8]) const {
    for (unsigned i = 0; i < 8; ++i) x[i] = Cell(address + i, threadIdx.x % kWarp);
  }
  __device__ void Store(std::uint32_t address, const std::uint32_t (&x)[8]) const {
    for (unsigned i = 0; i < 8; ++i) Cell(address + i, threadIdx.x % kWarp) = x[i];
  }

  // Copies 32 rows of 16 bytes to each quarter of the lanes.
  __device__ void CopyScales(std::uint32_t tensor, std::uint64_t shared) const {
    const SharedMatrixFields m = ReadSharedMatrix(shared);
    for (unsigned column = 0; column < 4; ++column) {
      const std::uint32_t word = SharedWord(CoreAddress(m, threadIdx.x % 32, column * 4));
      Cell(tensor + column, threadIdx.x) = m.sound ? word : 0xFFFFFFFFu;
    }
    __syncthreads();
  }

  // Each thread computes its row of d. Descriptors that contradict the name of the instruction give
  // NaN.
  template <BlockScaling kScaling>
  __device__ void Multiply(std::uint32_t d, std::uint64_t a, std::uint64_t b,
                           std::uint32_t descriptor, std::uint32_t a_scales, std::uint32_t b_scales,
                           bool accumulate) const {
    const InstructionFields f = ReadInstruction(descriptor);
    const SharedMatrixFields a_matrix = ReadSharedMatrix(a), b_matrix = ReadSharedMatrix(b);
    const bool sound =
        f.sound && f.m == kLanes && f.scaling == kScaling && a_matrix.sound && b_matrix.sound;
    const unsigned row = threadIdx.x, quarter = row / 32 * 32;
    const std::uint32_t x_scales = ScaleWord(a_scales, row, quarter) >> f.a_id * 8;
#pragma unroll 1
    for (unsigned col = 0; col < f.n; ++col) {
      // Row `row` of a is decoded for every column: kept decoded, it would not fit the registers.
      std::uint32_t x[kRegistersRow], y[kRegistersRow];
#pragma unroll
      for (unsigned w = 0; w < kRegistersRow; ++w) {
        x[w] = SharedWord(CoreAddress(a_matrix, row, w * 4));
        y[w] = SharedWord(CoreAddress(b_matrix, col, w * 4));
      }
      const std::uint32_t y_scales = ScaleWord(b_scales, col, quarter) >> f.b_id * 8;
      std::uint32_t& out = Cell(d + col, row);
      const std::uint32_t c = accumulate ? out : 0;
      out = sound ? MmaElement<kScaling>(x, y, x_scales, y_scales, c) : kMmaNan;
    }
    __syncthreads();
  }

  __device__ void CommitTo(std::uint64_t* barrier) const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(
                     SharedAddress(barrier))
                 : "memory");
  }
  __device__ void FenceBeforeBarrier() const {}
  __device__ void FenceAfterBarrier() const {}

 private:
  __device__ static std::uint32_t SharedWord(std::uint32_t address) {
    return *static_cast<const std::uint32_t*>(__cvta_shared_to_generic(address));
  }
  __device__ std::uint32_t& Cell(std::uint32_t address, unsigned lane) const {
    return cells_[((address & 0xFFFFu) - kBase) * kLanes + (address >> 16) + lane];
  }
  __device__ std::uint32_t ScaleWord(std::uint32_t address, unsigned row, unsigned quarter) const {
    const ScalePlace place = PlaceOfScale(row, 0);
    return Cell(address + place.column, quarter + place.lane);
  }

  std::uint32_t* cells_;
};

}  // namespace fp4lab::cuda
