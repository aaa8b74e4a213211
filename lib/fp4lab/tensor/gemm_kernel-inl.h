// The two loops that the GEMM spends its time in: packing b, and the register tile.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
#undef FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
#else
#define FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"

#include <hwy/highway.h>

#include "fp4lab/base/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using GemmTag = hn::CappedTag<float, 16>;
using GemmVec = hn::Vec<GemmTag>;

// The register tile: kTileRows rows of c by up to kMaxVectors vectors. With 32 registers 6 x 4
// sums, 4 vectors of b and a broadcast of a fit; with 16 registers 6 x 2. Six rows need only six
// pointers, so that a is read where it lies, whatever its strides.
inline constexpr std::size_t kLanes = hn::MaxLanes(GemmTag());
inline constexpr std::size_t kMaxVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kPanelCols = kMaxVectors * kLanes;

// Columns that a panel with `cols` columns of c occupies: whole vectors.
constexpr std::size_t PanelWidth(std::size_t cols) { return (cols + kLanes - 1) / kLanes * kLanes; }

#if HWY_TARGET != HWY_SCALAR
// Part q (128 bits) of the result is the four floats at from + 4 * q * stride.
template <class D>
HWY_INLINE hn::Vec<D> GatherQuads(D d, const float* from, std::size_t stride) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, GatherQuads(half, from + hn::MaxLanes(half) * stride, stride),
                       GatherQuads(half, from, stride));
  }
}

// out[k * width + n] = from[n * stride + k] for n < kLanes, k < 4: a 4 x 4 transposition in each
// 128-bit part.
HWY_INLINE void TransposeQuads(const float* from, std::size_t stride, float* HWY_RESTRICT out,
                               std::size_t width) {
  const GemmTag d;
  const hn::Repartition<std::uint64_t, GemmTag> pairs;
  const GemmVec r0 = GatherQuads(d, from, stride);
  const GemmVec r1 = GatherQuads(d, from + stride, stride);
  const GemmVec r2 = GatherQuads(d, from + 2 * stride, stride);
  const GemmVec r3 = GatherQuads(d, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, out);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, out + width);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, out + 2 * width);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, out + 3 * width);
}
#endif

// out[k * width + n] = b(n, k) for n < b.rows, zero for b.rows <= n < width = PanelWidth(b.rows).
HWY_NOINLINE void PackPanel(MatrixView<const float> b, float* HWY_RESTRICT out) {
  const GemmTag d;
  const std::size_t width = PanelWidth(b.rows);
  std::size_t done_rows = 0;  // rows packed for k < done_k
  std::size_t done_k = 0;
  if (b.row_stride == 1) {
    done_rows = b.rows / kLanes * kLanes;
    done_k = b.cols;
    for (std::size_t k = 0; k < done_k; ++k) {
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

// What one register tile does: kRows x (vectors * kLanes) elements of c over k in [0, depth).
struct TileWork {
  const float* a;  // element (0, 0) of the rows
  std::size_t a_row_stride, a_k_stride;
  const float* b;  // packed, PanelWidth(cols) floats a step of k
  std::size_t depth;
  std::size_t block;  // 0: one chain of fused multiply-adds
  float* state;       // the running sums, kPanelCols floats a row, between two calls
  bool first, last;   // the first call for these elements starts at +0, the last writes c
  float* c;
  std::size_t c_row_stride, c_col_stride;
  std::size_t cols;  // columns of c, at most vectors * kLanes
  float alpha;
  bool accumulate;
};

template <std::size_t kRows, std::size_t kVectors>
struct RegisterTile {
  GemmVec sum[kRows][kVectors];

  HWY_INLINE void Clear() {
    for (auto& row : sum) {
      for (GemmVec& v : row) v = hn::Zero(GemmTag());
    }
  }
  HWY_INLINE void Load(const float* from) {
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kVectors; ++j) {
        sum[i][j] = hn::Load(GemmTag(), from + i * kPanelCols + j * kLanes);
      }
    }
  }
  HWY_INLINE void Store(float* to) const {
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kVectors; ++j) {
        hn::Store(sum[i][j], GemmTag(), to + i * kPanelCols + j * kLanes);
      }
    }
  }
  HWY_INLINE void AddTo(const float* y) {  // sum = y + sum
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kVectors; ++j) {
        sum[i][j] = hn::Add(hn::Load(GemmTag(), y + i * kPanelCols + j * kLanes), sum[i][j]);
      }
    }
  }
  HWY_INLINE void AddToZero() {  // +0 + -0 = +0
    for (auto& row : sum) {
      for (GemmVec& v : row) v = hn::Add(hn::Zero(GemmTag()), v);
    }
  }

  // sum(i, j) = fma(a(i, k), b(j, k), sum(i, j)) for `depth` ascending k.
  HWY_INLINE void MultiplyAdd(const float* HWY_RESTRICT a, std::size_t row_stride,
                              std::size_t k_stride, const float* HWY_RESTRICT b,
                              std::size_t depth) {
    const GemmTag d;
    const float* rows[kRows];
    for (std::size_t i = 0; i < kRows; ++i) rows[i] = a + i * row_stride;
    std::size_t at = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      GemmVec bk[kVectors];
      for (std::size_t j = 0; j < kVectors; ++j) bk[j] = hn::Load(d, b + j * kLanes);
      for (std::size_t i = 0; i < kRows; ++i) {
        const GemmVec ak = hn::Set(d, rows[i][at]);
        for (std::size_t j = 0; j < kVectors; ++j) sum[i][j] = Fma(d, ak, bk[j], sum[i][j]);
      }
      at += k_stride;
      b += kVectors * kLanes;
    }
  }

  // c = alpha * sum, or c + alpha * sum.
  HWY_INLINE void WriteWhole(const TileWork& w) const {
    const GemmTag d;
    const GemmVec alpha = hn::Set(d, w.alpha);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kVectors; ++j) {
        float* c = w.c + i * w.c_row_stride + j * kLanes;
        const GemmVec y = hn::Mul(alpha, sum[i][j]);
        hn::StoreU(w.accumulate ? hn::Add(hn::LoadU(d, c), y) : y, d, c);
      }
    }
  }
  HWY_INLINE void WritePart(const TileWork& w) const {
    HWY_ALIGN float sums[kRows * kPanelCols];
    Store(sums);
    const std::size_t cols = std::min(w.cols, kVectors * kLanes);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < cols; ++j) {
        float& c = w.c[i * w.c_row_stride + j * w.c_col_stride];
        const float y = w.alpha * sums[i * kPanelCols + j];
        c = w.accumulate ? c + y : y;
      }
    }
  }
};

template <std::size_t kRows, std::size_t kVectors>
HWY_NOINLINE void ComputeTile(const TileWork& w) {
  RegisterTile<kRows, kVectors> tile;
  tile.Clear();
  if (w.block == 0) {
    if (!w.first) tile.Load(w.state);
    tile.MultiplyAdd(w.a, w.a_row_stride, w.a_k_stride, w.b, w.depth);
  } else {
    std::size_t k = 0;
    do {  // depth > 0
      if (k > 0) {
        tile.Store(w.state);
        tile.Clear();
      }
      tile.MultiplyAdd(w.a + k * w.a_k_stride, w.a_row_stride, w.a_k_stride,
                       w.b + k * kVectors * kLanes, std::min(w.block, w.depth - k));
      w.first&& k == 0 ? tile.AddToZero() : tile.AddTo(w.state);
      k += w.block;
    } while (k < w.depth);
  }
  if (!w.last) return tile.Store(w.state);
  w.cols == kVectors* kLanes&& w.c_col_stride == 1 ? tile.WriteWhole(w) : tile.WritePart(w);
}

using ComputeTileFunction = void (*)(const TileWork&);

template <std::size_t kRows>
constexpr std::array<ComputeTileFunction, 4> TilesOfRows() {
  return {ComputeTile<kRows, 1>, ComputeTile<kRows, 2>, ComputeTile < kRows,
          kMaxVectors == 4 ? 3 : 2 >, ComputeTile<kRows, kMaxVectors>};
}

// Computes `rows` <= kTileRows rows as tiles of 6, 4, 2 and 1 rows.
HWY_INLINE void ComputeRows(TileWork w, std::size_t rows) {
  static constexpr std::array<std::array<ComputeTileFunction, 4>, kTileRows + 1> kTiles = {
      {{}, TilesOfRows<1>(), TilesOfRows<2>(), {}, TilesOfRows<4>(), {}, TilesOfRows<6>()}};
  const std::size_t vectors = PanelWidth(w.cols) / kLanes;
  while (rows > 0) {
    const std::size_t step = rows >= 6 ? 6 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    kTiles[step][vectors - 1](w);
    w.a += step * w.a_row_stride;
    w.c += step * w.c_row_stride;
    w.state += step * kPanelCols;
    rows -= step;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
