// Matrix products of a warpgroup (4 warps): A (64, k) in registers or shared memory, B in shared
// memory; each warp has 16 rows of the result. Hopper uses wgmma (PTX ISA, "Asynchronous Warpgroup
// Level Matrix Multiply"), other chips use mma.sync over the same tiles; both add a 16-deep product
// at a time to binary32 sums.
#pragma once

#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/gpu/gemm/mma.cuh"

namespace fp4lab::gpu {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kTile = 64;    // rows of a tile

// kTile rows of kDim BF16 elements in shared memory, in panels of up to 64 columns. The 16-byte
// pieces of a row are permuted by wgmma's swizzle of 128, 64 or 32 bytes, which also makes ldmatrix
// free of bank conflicts.
template <int kDim>
struct alignas(1024) Tile {
  static constexpr int kPanel = kDim < 64 ? kDim : 64;
  static constexpr int kRowBytes = 2 * kPanel;
  static constexpr int kPanelBytes = kTile * kRowBytes;
  static constexpr unsigned kSwizzle = kRowBytes == 128 ? 0x70u : kRowBytes == 64 ? 0x30u : 0x10u;
  static constexpr std::uint64_t kMode = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;

  Bf16 x[kTile * kDim];

  __device__ std::uint32_t Address() const { return cuda::SharedAddress(x); }
  // The offset of an element in bytes, swizzled.
  __device__ static unsigned Offset(int row, int column) {
    const unsigned at = static_cast<unsigned>(column / kPanel * kPanelBytes + row * kRowBytes +
                                              column % kPanel * 2);
    return at ^ (at >> 3 & kSwizzle);
  }
  // The wgmma matrix descriptor of the tile from (row, column) on, given by its unswizzled address.
  // The stride is 8 rows; one instruction does not read beyond a panel.
  __device__ std::uint64_t Descriptor(int row, int column) const {
    const unsigned from = Address() + static_cast<unsigned>(column / kPanel * kPanelBytes +
                                                            row * kRowBytes + column % kPanel * 2);
    constexpr std::uint64_t kStride = 8 * kRowBytes, kLeading = kPanelBytes;
    return (from & 0x3FFFFu) >> 4 | kLeading >> 4 << 16 | kStride >> 4 << 32 | kMode << 62;
  }

  // Begins to load rows [first, first + kTile) of a matrix whose rows are `stride` apart; rows from
  // `end` on are zeros. All kThreads threads call Load, then CommitCopies.
  template <int kThreads>
  __device__ void Load(const Bf16* from, std::size_t stride, int first, int end) {
    constexpr int kPieces = kDim / 8;  // 16 bytes each
#pragma unroll
    for (int i = 0; i < kTile * kPieces; i += kThreads) {
      const int piece = i + static_cast<int>(threadIdx.x);
      if (kTile * kPieces % kThreads != 0 && piece >= kTile * kPieces) return;
      const int row = piece / kPieces, column = piece % kPieces * 8;
      const bool inside = first + row < end;
      const Bf16* source = from + (inside ? first + row : 0) * stride + column;
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(Address() + Offset(row, column)),
          "l"(source), "r"(inside ? 16 : 0)
          : "memory");
    }
  }
};

// Waits until all loads of all threads but each one's last kLeft groups have arrived and wgmma can
// read them.
template <int kLeft = 0>
__device__ inline void WaitForLoads() {
  cuda::WaitForCopies<kLeft>();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
}

// ---- One instruction: c (64, kCols) += a (64, 16) b

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int kCols, bool kTransposed>
__device__ inline void MultiplyGroup(const FragmentA& a, std::uint64_t b, FragmentC* c) {
  static_assert(kCols == 16 || kCols == 32 || kCols == 64);
  if constexpr (kCols == 16) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, 1, 1, 1, %13;"
        : "+f"(c[0].x[0]), "+f"(c[0].x[1]), "+f"(c[0].x[2]), "+f"(c[0].x[3]), "+f"(c[1].x[0]),
          "+f"(c[1].x[1]), "+f"(c[1].x[2]), "+f"(c[1].x[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "n"(kTransposed ? 1 : 0));
  } else if constexpr (kCols == 32) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, 1, 1, 1, %21;"
        : "+f"(c[0].x[0]), "+f"(c[0].x[1]), "+f"(c[0].x[2]), "+f"(c[0].x[3]), "+f"(c[1].x[0]),
          "+f"(c[1].x[1]), "+f"(c[1].x[2]), "+f"(c[1].x[3]), "+f"(c[2].x[0]), "+f"(c[2].x[1]),
          "+f"(c[2].x[2]), "+f"(c[2].x[3]), "+f"(c[3].x[0]), "+f"(c[3].x[1]), "+f"(c[3].x[2]),
          "+f"(c[3].x[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "n"(kTransposed ? 1 : 0));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, 1, 1, 1, %37;"
        : "+f"(c[0].x[0]), "+f"(c[0].x[1]), "+f"(c[0].x[2]), "+f"(c[0].x[3]), "+f"(c[1].x[0]),
          "+f"(c[1].x[1]), "+f"(c[1].x[2]), "+f"(c[1].x[3]), "+f"(c[2].x[0]), "+f"(c[2].x[1]),
          "+f"(c[2].x[2]), "+f"(c[2].x[3]), "+f"(c[3].x[0]), "+f"(c[3].x[1]), "+f"(c[3].x[2]),
          "+f"(c[3].x[3]), "+f"(c[4].x[0]), "+f"(c[4].x[1]), "+f"(c[4].x[2]), "+f"(c[4].x[3]),
          "+f"(c[5].x[0]), "+f"(c[5].x[1]), "+f"(c[5].x[2]), "+f"(c[5].x[3]), "+f"(c[6].x[0]),
          "+f"(c[6].x[1]), "+f"(c[6].x[2]), "+f"(c[6].x[3]), "+f"(c[7].x[0]), "+f"(c[7].x[1]),
          "+f"(c[7].x[2]), "+f"(c[7].x[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "n"(kTransposed ? 1 : 0));
  }
}

// c (64, 64) += a (64, 16) b^T, with a and b in shared memory.
__device__ inline void MultiplyGroup(std::uint64_t a, std::uint64_t b, FragmentC* c) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;"
      : "+f"(c[0].x[0]), "+f"(c[0].x[1]), "+f"(c[0].x[2]), "+f"(c[0].x[3]), "+f"(c[1].x[0]),
        "+f"(c[1].x[1]), "+f"(c[1].x[2]), "+f"(c[1].x[3]), "+f"(c[2].x[0]), "+f"(c[2].x[1]),
        "+f"(c[2].x[2]), "+f"(c[2].x[3]), "+f"(c[3].x[0]), "+f"(c[3].x[1]), "+f"(c[3].x[2]),
        "+f"(c[3].x[3]), "+f"(c[4].x[0]), "+f"(c[4].x[1]), "+f"(c[4].x[2]), "+f"(c[4].x[3]),
        "+f"(c[5].x[0]), "+f"(c[5].x[1]), "+f"(c[5].x[2]), "+f"(c[5].x[3]), "+f"(c[6].x[0]),
        "+f"(c[6].x[1]), "+f"(c[6].x[2]), "+f"(c[6].x[3]), "+f"(c[7].x[0]), "+f"(c[7].x[1]),
        "+f"(c[7].x[2]), "+f"(c[7].x[3])
      : "l"(a), "l"(b));
}
// c (64, 128) = a (64, 16) b, added to c if `adds`, with a and b in shared memory. A turned operand
// has its reduction axis along the tile's rows; b is two tiles that follow each other.
template <bool kATurned, bool kBTurned>
__device__ inline void MultiplyWide(std::uint64_t a, std::uint64_t b, bool adds,
                                    FragmentC (&c)[16]) {
  asm volatile(
      "{.reg .pred adds;\n"
      "setp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, adds, 1, 1, %67, %68;}"
      : "+f"(c[0].x[0]), "+f"(c[0].x[1]), "+f"(c[0].x[2]), "+f"(c[0].x[3]), "+f"(c[1].x[0]),
        "+f"(c[1].x[1]), "+f"(c[1].x[2]), "+f"(c[1].x[3]), "+f"(c[2].x[0]), "+f"(c[2].x[1]),
        "+f"(c[2].x[2]), "+f"(c[2].x[3]), "+f"(c[3].x[0]), "+f"(c[3].x[1]), "+f"(c[3].x[2]),
        "+f"(c[3].x[3]), "+f"(c[4].x[0]), "+f"(c[4].x[1]), "+f"(c[4].x[2]), "+f"(c[4].x[3]),
        "+f"(c[5].x[0]), "+f"(c[5].x[1]), "+f"(c[5].x[2]), "+f"(c[5].x[3]), "+f"(c[6].x[0]),
        "+f"(c[6].x[1]), "+f"(c[6].x[2]), "+f"(c[6].x[3]), "+f"(c[7].x[0]), "+f"(c[7].x[1]),
        "+f"(c[7].x[2]), "+f"(c[7].x[3]), "+f"(c[8].x[0]), "+f"(c[8].x[1]), "+f"(c[8].x[2]),
        "+f"(c[8].x[3]), "+f"(c[9].x[0]), "+f"(c[9].x[1]), "+f"(c[9].x[2]), "+f"(c[9].x[3]),
        "+f"(c[10].x[0]), "+f"(c[10].x[1]), "+f"(c[10].x[2]), "+f"(c[10].x[3]), "+f"(c[11].x[0]),
        "+f"(c[11].x[1]), "+f"(c[11].x[2]), "+f"(c[11].x[3]), "+f"(c[12].x[0]), "+f"(c[12].x[1]),
        "+f"(c[12].x[2]), "+f"(c[12].x[3]), "+f"(c[13].x[0]), "+f"(c[13].x[1]), "+f"(c[13].x[2]),
        "+f"(c[13].x[3]), "+f"(c[14].x[0]), "+f"(c[14].x[1]), "+f"(c[14].x[2]), "+f"(c[14].x[3]),
        "+f"(c[15].x[0]), "+f"(c[15].x[1]), "+f"(c[15].x[2]), "+f"(c[15].x[3])
      : "l"(a), "l"(b), "r"(adds ? 1 : 0), "n"(kATurned ? 1 : 0), "n"(kBTurned ? 1 : 0));
}
#endif

// ---- Products over a tile. Callers pass all registers of the operands and sums to BeginProducts
// and FinishProducts and do not touch them in between.

// Keeps the compiler from moving a write of the registers below, or a read above, this point.
template <int kCount>
__device__ inline void Settle(FragmentC (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(c[i].x[j])::"memory");
  }
}
template <int kCount>
__device__ inline void Settle(FragmentA (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i].x[j])::"memory");
  }
}

template <class... Registers>
__device__ inline void BeginProducts(Registers&... registers) {
  if constexpr (kHasWgmma) {
    (Settle(registers), ...);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
}

template <class... Registers>
__device__ inline void FinishProducts(Registers&... registers) {
  if constexpr (kHasWgmma) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile(
        "wgmma.commit_group.sync.aligned;\n"
        "wgmma.wait_group.sync.aligned 0;" ::
            : "memory");
#endif
    (Settle(registers), ...);
  }
}

// c (64, kCols) += a (64, kDim) times rows [row, row + kCols) of the tile, transposed.
template <int kCols, int kDim>
__device__ inline void AddTimesRows(const FragmentA (&a)[kDim / 16], const Tile<kDim>& tile,
                                    int row, FragmentC (&c)[kCols / 8]) {
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    MultiplyGroup<kCols, false>(a[k / 16], tile.Descriptor(row, k), c);
#else
#pragma unroll
    for (int n = 0; n < kCols; n += 16) {
      const int lane = threadIdx.x % 32;
      FragmentB2 b;
      LoadMatrices(tile.Address() +
                       Tile<kDim>::Offset(row + n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8),
                   b.x);
      Multiply(a[k / 16], b, c + n / 8);
    }
#endif
  }
}

// c (64, 64) += the rows of tile `a`, which the warpgroup owns, times those of `b`, transposed.
template <int kDim>
__device__ inline void AddTimesTile(const Tile<kDim>& a, const Tile<kDim>& b,
                                    FragmentC (&c)[kTile / 8]) {
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    MultiplyGroup(a.Descriptor(0, k), b.Descriptor(0, k), c);
#else
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
    FragmentA rows;
    LoadMatrices(a.Address() + Tile<kDim>::Offset(warp * 16 + lane % 16, k + lane / 16 * 8),
                 rows.x);
#pragma unroll
    for (int n = 0; n < kTile; n += 16) {
      FragmentB2 columns;
      LoadMatrices(
          b.Address() + Tile<kDim>::Offset(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8),
          columns.x);
      Multiply(rows, columns, c + n / 8);
    }
#endif
  }
}

// c (64, kDim) += p (64, kRows) times rows [row, row + kRows) of the tile.
template <int kRows, int kDim>
__device__ inline void AddProduct(const FragmentA (&p)[kRows / 16], const Tile<kDim>& tile, int row,
                                  FragmentC (&c)[kDim / 8]) {
#pragma unroll
  for (int k = 0; k < kRows; k += 16) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int kPanel = Tile<kDim>::kPanel;
#pragma unroll
    for (int n = 0; n < kDim; n += kPanel) {
      MultiplyGroup<kPanel, true>(p[k / 16], tile.Descriptor(row + k, n), c + n / 8);
    }
#else
#pragma unroll
    for (int n = 0; n < kDim; n += 16) {
      const int lane = threadIdx.x % 32;
      FragmentB2 b;
      LoadMatricesTransposed(
          tile.Address() +
              Tile<kDim>::Offset(row + k + lane / 8 % 2 * 8 + lane % 8, n + lane / 16 * 8),
          b.x);
      Multiply(p[k / 16], b, c + n / 8);
    }
#endif
  }
}

}  // namespace fp4lab::gpu
