// Warp-level BF16 matrix products (PTX ISA, mma.sync.m16n8k16 and ldmatrix): sm_80 and later.
#pragma once

#include <cstdint>

#include "fp4lab/gpu/kernels/math.cuh"

namespace fp4lab::gpu {

// Fragments, with g = lane / 4 and t = lane % 4 ("2t.." stands for the pair 2t, 2t + 1):
//   A (16, 16):  x[0] = (g, 2t..)      x[1] = (g + 8, 2t..)
//                x[2] = (g, 2t + 8..)  x[3] = (g + 8, 2t + 8..)
//   B (16, 8):   x[0] = (2t.., g)      x[1] = (2t + 8.., g)
//   C (16, 8):   x[0], x[1] = (g, 2t..)   x[2], x[3] = (g + 8, 2t..)
struct FragmentA {
  std::uint32_t x[4];
};
// Two B fragments side by side: (16, 16).
struct FragmentB2 {
  std::uint32_t x[4];
};
struct FragmentC {
  float x[4];
};

// c = c + a b, where b (16, 8) is one half of a FragmentB2.
__device__ inline void Multiply(const FragmentA& a, std::uint32_t b0, std::uint32_t b1,
                                FragmentC* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c->x[0]), "+f"(c->x[1]), "+f"(c->x[2]), "+f"(c->x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}
__device__ inline void Multiply(const FragmentA& a, const FragmentB2& b, FragmentC* c) {
  Multiply(a, b.x[0], b.x[1], c);
  Multiply(a, b.x[2], b.x[3], c + 1);
}

// Loads four 8x8 matrices. `address`: this lane's row of 16 bytes in shared memory.
__device__ inline void LoadMatrices(std::uint32_t address, std::uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}
__device__ inline void LoadMatricesTransposed(std::uint32_t address, std::uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

// Stores four 8x8 matrices (sm_90 and later); `address` as above.
__device__ inline void StoreMatrices(std::uint32_t address, const std::uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
__device__ inline void StoreMatricesTransposed(std::uint32_t address, const std::uint32_t (&x)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
      : "memory");
}

// Loads a warp's 16 rows of a matrix in global memory as A fragments of 16 columns each; rows from
// `end` on are zeros. `row` is the first of this lane's two rows, row and row + 8.
template <int kCount>
__device__ inline void LoadRows(const Bf16* from, std::size_t stride, int row, int end,
                                FragmentA (&a)[kCount]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool inside = row + 8 * half < end;
    const Bf16* at = from + (inside ? row + 8 * half : 0) * stride + threadIdx.x % 4 * 2;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const auto low = *reinterpret_cast<const std::uint32_t*>(at + k * 16);
      const auto high = *reinterpret_cast<const std::uint32_t*>(at + k * 16 + 8);
      a[k].x[half] = inside ? low : 0;
      a[k].x[half + 2] = inside ? high : 0;
    }
  }
}

__device__ inline float2 UnpackBf16(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}
// Rounds two neighbouring C fragments (16, 16) to BF16 as the A of the next product.
__device__ inline FragmentA AsA(const FragmentC& left, const FragmentC& right) {
  return {{PackBf16(left.x[0], left.x[1]), PackBf16(left.x[2], left.x[3]),
           PackBf16(right.x[0], right.x[1]), PackBf16(right.x[2], right.x[3])}};
}

}  // namespace fp4lab::gpu
