// Packing for the GEMM: panels of b, whole vectors wide, and strips of a.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_GEMM_PACK_INL_H_
#undef FP4LAB_TENSOR_GEMM_PACK_INL_H_
#else
#define FP4LAB_TENSOR_GEMM_PACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/matrix.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "fp4lab/base/simd/transpose-inl.h"
#include "fp4lab/tensor/sum_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The register tile: kTileRows rows of c by up to kMaxVectors vectors. 32 registers hold 6 x 4
// sums, 4 vectors of b and a broadcast of a; 16 registers hold 6 x 2 sums. Six rows need only six
// pointers, so that a is read in place, whatever its strides.
inline constexpr std::size_t kMaxVectors = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kPanelCols = kMaxVectors * kLanes;

// The width of a panel of `cols` columns: whole vectors.
constexpr std::size_t PanelWidth(std::size_t cols) { return RoundUp(cols, kLanes); }

// Prefetch distance of packing, in rows: the hardware prefetcher does not follow short rows that
// lie far apart.
inline constexpr std::size_t kPrefetchRows = 16;

HWY_INLINE void PrefetchRow(const float* row, std::size_t size) {
  for (std::size_t i = 0; i < size; i += 16) hwy::Prefetch(row + i);
}

// Packs a panel: out[k * width + n] = b(n, k) for n < b.rows, zero for b.rows <= n < width, with
// width = PanelWidth(b.rows).
HWY_NOINLINE void PackPanel(MatrixView<const float> b, float* HWY_RESTRICT out) {
  const GemmTag d;
  const std::size_t width = PanelWidth(b.rows);
  std::size_t done_rows = 0;  // rows packed for k < done_k
  std::size_t done_k = 0;
  if (b.row_stride == 1) {
    done_rows = b.rows / kLanes * kLanes;
    done_k = b.cols;
    for (std::size_t k = 0; k < done_k; ++k) {
      if (k + kPrefetchRows < done_k) PrefetchRow(&b(0, k + kPrefetchRows), b.rows);
      for (std::size_t n = 0; n < done_rows; n += kLanes) {
        hn::Store(hn::LoadU(d, &b(n, k)), d, out + k * width + n);
      }
    }
  }
#if HWY_TARGET != HWY_SCALAR
  if (b.row_stride != 1 && b.col_stride == 1) {
    done_rows = b.rows / kLanes * kLanes;
    done_k = b.cols / 4 * 4;
    for (std::size_t n = 0; n < done_rows; n += kLanes) {
      for (std::size_t k = 0; k < done_k; k += 4) {
        TransposeQuads(&b(n, k), b.row_stride, out + k * width + n, width);
      }
    }
  }
#endif
  for (std::size_t k = 0; k < b.cols; ++k) {
    for (std::size_t n = k < done_k ? done_rows : 0; n < width; ++n) {
      out[k * width + n] = n < b.rows ? b(n, k) : 0.0f;
    }
  }
}

// Packs strips of kTileRows rows: out[(i * a.cols + k) * kTileRows + r] = a(i * kTileRows + r, k).
// a must have unit stride from row to row; the last rows that do not fill a strip are left out.
HWY_NOINLINE void PackStrips(MatrixView<const float> a, float* HWY_RESTRICT out) {
  const std::size_t strips = a.rows / kTileRows;
  for (std::size_t k = 0; k < a.cols; ++k) {
    const float* HWY_RESTRICT from = a.data + k * a.col_stride;
    if (k + kPrefetchRows < a.cols) PrefetchRow(from + kPrefetchRows * a.col_stride, a.rows);
    for (std::size_t i = 0; i < strips; ++i) {
      std::memcpy(out + (i * a.cols + k) * kTileRows, from + i * kTileRows,
                  kTileRows * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_GEMM_PACK_INL_H_
