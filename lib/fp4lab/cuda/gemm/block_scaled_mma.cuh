// mma.sync.m16n8k64 on E2M1 with block scales, as the instruction and in software. Both forms take
// the same registers of the same lanes.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/chip.cuh"
#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/cuda/gemm/mma_step.h"

namespace fp4lab::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// d += a b^T by the instruction. The scale selectors kByte, kThreadA and kThreadB are immediate
// operands.
template <BlockScaling kScaling, unsigned kByte, unsigned kThreadA, unsigned kThreadB>
__device__ void MmaByInstruction(const std::uint32_t (&a)[kRegistersA],
                                 const std::uint32_t (&b)[kRegistersB], std::uint32_t a_scales,
                                 std::uint32_t b_scales, std::uint32_t* d) {
  if constexpr (kScaling == BlockScaling::kNvfp4) {
    asm volatile(
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col"
        ".f32.e2m1.e2m1.f32.ue4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(a_scales),
          "r"(b_scales), "n"(kByte), "n"(kThreadA), "n"(kThreadB));
  } else {
    asm volatile(
        "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col"
        ".f32.e2m1.e2m1.f32.ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(a_scales),
          "r"(b_scales), "n"(kByte), "n"(kThreadA), "n"(kThreadB));
  }
}

// Access to the registers of all lanes of a warp, by shuffles: all lanes must pass the same reg.
struct ShuffledWarp {
  const std::uint32_t (&a)[kRegistersA];
  const std::uint32_t (&b)[kRegistersB];
  std::uint32_t a_scales, b_scales;

  __device__ std::uint32_t A(unsigned reg, unsigned lane) const {
    const std::uint32_t low = reg % 2 == 0 ? a[0] : a[1], high = reg % 2 == 0 ? a[2] : a[3];
    return __shfl_sync(kAllLanes, reg / 2 == 0 ? low : high, static_cast<int>(lane));
  }
  __device__ std::uint32_t B(unsigned reg, unsigned lane) const {
    return __shfl_sync(kAllLanes, reg == 0 ? b[0] : b[1], static_cast<int>(lane));
  }
  __device__ std::uint32_t ScaleA(unsigned lane) const {
    return __shfl_sync(kAllLanes, a_scales, static_cast<int>(lane));
  }
  __device__ std::uint32_t ScaleB(unsigned lane) const {
    return __shfl_sync(kAllLanes, b_scales, static_cast<int>(lane));
  }
};

// Loads four matrices of 8 rows x 16 bytes from shared memory, one register of each; lane i gives
// the address of row i % 8 of matrix i / 8.
__device__ inline void LoadMatrices(const void* shared, std::uint32_t* r0, std::uint32_t* r1,
                                    std::uint32_t* r2, std::uint32_t* r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(*r0), "=r"(*r1), "=r"(*r2), "=r"(*r3)
               : "r"(SharedAddress(shared))
               : "memory");
}

}  // namespace fp4lab::cuda
