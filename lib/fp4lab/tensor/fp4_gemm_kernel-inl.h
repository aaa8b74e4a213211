// The loop that the FP4 GEMM spends its time in: block sums in integers, a tile of c in registers.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
#undef FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
#else
#define FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <hwy/highway.h>

#include "fp4lab/tensor/fp4_gemm_dot-inl.h"
#include "fp4lab/tensor/repeat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// What one register tile does: kRows x (kVectors * kLanes) elements of c over `blocks` blocks of k.
struct Fp4Work {
  const std::uint8_t* a;                    // codes of the first row, four bytes of k together
  std::size_t a_row_stride, a_quad_stride;  // bytes from row to row, from quad to quad
  const float* a_scales;
  std::size_t a_scale_row_stride, a_scale_block_stride;
  const std::uint8_t* b;  // a packed panel, see PackFp4Panel
  std::size_t blocks;
  float* state;      // the running sums, kFp4PanelCols floats a row, between two calls
  bool first, last;  // the first call for these elements starts at +0, the last writes c
  float* c;
  std::size_t c_row_stride, c_col_stride;
  std::size_t cols;  // columns of c, at most kVectors * kLanes
  float alpha;
  bool accumulate;
};

template <std::size_t kRows, std::size_t kVectors>
struct Fp4Tile {
  Fp4Vec sum[kRows][kVectors];

  // Calls f(row, vector, place in rows of kFp4PanelCols) for each sum.
  template <class F>
  static HWY_INLINE void ForEach(F f) {
    Repeat<kRows * kVectors>([&f](auto index) HWY_ATTR {
      constexpr std::size_t kIndex = index, kRow = kIndex / kVectors, kVector = kIndex % kVectors;
      f(std::integral_constant<std::size_t, kRow>(), std::integral_constant<std::size_t, kVector>(),
        kRow * kFp4PanelCols + kVector * kFp4Lanes);
    });
  }
  HWY_INLINE void Start(const Fp4Work& w) {
    ForEach([this](auto i, auto j, auto) HWY_ATTR { sum[i][j] = hn::Zero(Fp4Tag()); });
    if (w.first) return;
    ForEach([this, &w](auto i, auto j, auto at)
                HWY_ATTR { sum[i][j] = hn::Load(Fp4Tag(), w.state + at); });
  }
  HWY_INLINE void Store(float* to) const {
    ForEach([this, to](auto i, auto j, auto at)
                HWY_ATTR { hn::Store(sum[i][j], Fp4Tag(), to + at); });
  }

  // One block: sum(i, j) = fma(dot(i, j), sa(i) * sb(j), sum(i, j)).
  template <std::size_t kQuads>
  HWY_INLINE void AddBlock(const Fp4Work& w, const std::uint8_t* const (&rows)[kRows],
                           std::size_t at, const float* a_scales, const std::uint8_t* b) {
    constexpr std::size_t kWidth = kVectors * kFp4Lanes * 4;  // bytes of a line of the panel
    const std::uint8_t* const tail = b + kQuads * kWidth;
    DotSum dot[kRows][kVectors];
    ForEach([&](auto i, auto j, auto) HWY_ATTR { dot[i][j] = StartDot(tail + 4 * j * kFp4Lanes); });
    Repeat<kQuads>([&](auto) HWY_ATTR {
      DotBytes bytes[kVectors];
      Repeat<kVectors>([&](auto j) HWY_ATTR { bytes[j] = LoadDotBytes(b + 4 * j * kFp4Lanes); });
      Repeat<kRows>([&](auto i) HWY_ATTR {
        const DotCodes codes = BroadcastQuad(rows[i] + at);
        Repeat<kVectors>([&](auto j) HWY_ATTR { dot[i][j] = AddDot(dot[i][j], codes, bytes[j]); });
      });
      at += w.a_quad_stride;
      b += kWidth;
    });
    const float* const b_scales = reinterpret_cast<const float*>(tail + kWidth);
    Fp4Vec sb[kVectors];
    Repeat<kVectors>([&](auto j)
                         HWY_ATTR { sb[j] = hn::Load(Fp4Tag(), b_scales + j * kFp4Lanes); });
    Repeat<kRows>([&](auto i) HWY_ATTR {
      const Fp4Vec sa = hn::Set(Fp4Tag(), a_scales[i * w.a_scale_row_stride]);
      Repeat<kVectors>([&](auto j) HWY_ATTR {
        sum[i][j] = AddExact(FinishDot(dot[i][j]), hn::Mul(sa, sb[j]), sum[i][j]);
      });
    });
  }

  // c = alpha * sum, or c + alpha * sum.
  template <bool kAccumulate>
  HWY_INLINE void WriteWhole(float* c, std::size_t row_stride, float alpha) const {
    const Fp4Tag d;
    const Fp4Vec factor = hn::Set(d, alpha);
    Repeat<kRows>([&](auto i) HWY_ATTR {
      Repeat<kVectors>([&](auto j) HWY_ATTR {
        const Fp4Vec y = hn::Mul(factor, sum[i][j]);
        float* const to = c + j * kFp4Lanes;
        hn::StoreU(kAccumulate ? hn::Add(hn::LoadU(d, to), y) : y, d, to);
      });
      c += row_stride;
    });
  }
  HWY_INLINE void WritePart(const Fp4Work& w) const {
    HWY_ALIGN float sums[kRows * kFp4PanelCols];
    Store(sums);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < std::min(w.cols, kVectors * kFp4Lanes); ++j) {
        float& c = w.c[i * w.c_row_stride + j * w.c_col_stride];
        const float y = w.alpha * sums[i * kFp4PanelCols + j];
        c = w.accumulate ? c + y : y;
      }
    }
  }
  HWY_INLINE void Finish(const Fp4Work& w) const {
    if (!w.last) {
      Store(w.state);
    } else if (w.cols == kVectors * kFp4Lanes && w.c_col_stride == 1) {
      if (w.accumulate) return WriteWhole<true>(w.c, w.c_row_stride, w.alpha);
      WriteWhole<false>(w.c, w.c_row_stride, w.alpha);
    } else {
      WritePart(w);
    }
  }
};

template <std::size_t kQuads, std::size_t kRows, std::size_t kVectors>
HWY_NOINLINE void ComputeFp4Tile(const Fp4Work& w) {
  Fp4Tile<kRows, kVectors> tile;
  tile.Start(w);
  const std::uint8_t* rows[kRows];
  Repeat<kRows>([&](auto i) HWY_ATTR { rows[i] = w.a + i * w.a_row_stride; });
  std::size_t at = 0;
  const float* a_scales = w.a_scales;
  const std::uint8_t* b = w.b;
  for (std::size_t i = 0; i < w.blocks; ++i) {
    tile.template AddBlock<kQuads>(w, rows, at, a_scales, b);
    at += kQuads * w.a_quad_stride;
    a_scales += w.a_scale_block_stride;
    b += (kQuads + 2) * kVectors * kFp4Lanes * 4;
  }
  tile.Finish(w);
}

using ComputeFp4TileFunction = void (*)(const Fp4Work&);

template <std::size_t kQuads, std::size_t kVectors, std::size_t... kRows>
constexpr std::array<ComputeFp4TileFunction, sizeof...(kRows)> Fp4TilesOf(
    std::index_sequence<kRows...>) {
  return {ComputeFp4Tile<kQuads, kRows + 1, kVectors>...};
}
template <std::size_t kQuads, std::size_t... kVectors>
constexpr auto Fp4Tiles(std::index_sequence<kVectors...>) {
  return std::array{Fp4TilesOf<kQuads, kVectors + 1>(std::make_index_sequence<kFp4TileRows>())...};
}

// The tile function for blocks of 16 or 32 and `rows` rows by up to `cols` columns.
HWY_INLINE ComputeFp4TileFunction Fp4TileFunction(std::size_t block, std::size_t rows,
                                                  std::size_t cols) {
  static constexpr std::array kTiles = {Fp4Tiles<4>(std::make_index_sequence<kFp4TileVectors>()),
                                        Fp4Tiles<8>(std::make_index_sequence<kFp4TileVectors>())};
  return kTiles[block == 32 ? 1 : 0][(cols + kFp4Lanes - 1) / kFp4Lanes - 1][rows - 1];
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
