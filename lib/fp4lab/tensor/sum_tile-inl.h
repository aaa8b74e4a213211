// A tile of c in registers: the sums of the inner loops of both GEMMs, and their output to c.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_SUM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_TENSOR_SUM_TILE_INL_H_
#undef FP4LAB_TENSOR_SUM_TILE_INL_H_
#else
#define FP4LAB_TENSOR_SUM_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <hwy/highway.h>

#include "fp4lab/tensor/repeat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using GemmTag = hn::CappedTag<float, 16>;
using GemmVec = hn::Vec<GemmTag>;
inline constexpr std::size_t kLanes = hn::MaxLanes(GemmTag());

// The output of a tile's sums.
struct TileOutput {
  float* state;      // the running sums between two calls, SumTile's kPanelCols floats a row
  bool first, last;  // the first call for these elements starts at +0, the last writes c
  float* c;
  std::size_t c_row_stride, c_col_stride;
  std::size_t cols;  // columns of c, at most kVectors * kLanes
  float alpha;
  bool accumulate;
};

// kRows x (kVectors * kLanes) sums; kPanelCols: floats a row of the sums in memory.
template <std::size_t kRows, std::size_t kVectors, std::size_t kPanelCols>
struct SumTile {
  HWY_INLINE SumTile() {}  // on Arm an implicit constructor has no target

  GemmVec sum[kRows][kVectors];

  // Calls f(row, vector, offset in memory with rows of kPanelCols) for each sum; row and vector are
  // constants.
  template <class F>
  static HWY_INLINE void ForEach(F f) {
    Repeat<kRows * kVectors>([&f](auto index) HWY_ATTR {
      constexpr std::size_t kIndex = index, kRow = kIndex / kVectors, kVector = kIndex % kVectors;
      f(std::integral_constant<std::size_t, kRow>(), std::integral_constant<std::size_t, kVector>(),
        kRow * kPanelCols + kVector * kLanes);
    });
  }

  HWY_INLINE void Clear() {
    ForEach([this](auto i, auto j, auto) HWY_ATTR { sum[i][j] = hn::Zero(GemmTag()); });
  }
  HWY_INLINE void Load(const float* from) {
    ForEach([this, from](auto i, auto j, auto at)
                HWY_ATTR { sum[i][j] = hn::Load(GemmTag(), from + at); });
  }
  HWY_INLINE void Store(float* to) const {
    ForEach([this, to](auto i, auto j, auto at)
                HWY_ATTR { hn::Store(sum[i][j], GemmTag(), to + at); });
  }
  HWY_INLINE void Start(const TileOutput& to) {
    Clear();
    if (!to.first) Load(to.state);
  }

  // c = alpha * sum, or c + alpha * sum.
  template <bool kAccumulate>
  HWY_INLINE void WriteWhole(float* c, std::size_t row_stride, float alpha) const {
    const GemmTag d;
    const GemmVec factor = hn::Set(d, alpha);
    Repeat<kRows>([&](auto i) HWY_ATTR {
      Repeat<kVectors>([&](auto j) HWY_ATTR {
        const GemmVec y = hn::Mul(factor, sum[i][j]);
        float* const to = c + j * kLanes;
        hn::StoreU(kAccumulate ? hn::Add(hn::LoadU(d, to), y) : y, d, to);
      });
      c += row_stride;
    });
  }
  HWY_INLINE void WritePart(const TileOutput& to) const {
    HWY_ALIGN float sums[kRows * kPanelCols];
    Store(sums);
    const std::size_t cols = std::min(to.cols, kVectors * kLanes);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < cols; ++j) {
        float& c = to.c[i * to.c_row_stride + j * to.c_col_stride];
        const float y = to.alpha * sums[i * kPanelCols + j];
        c = to.accumulate ? c + y : y;
      }
    }
  }
  HWY_INLINE void Finish(const TileOutput& to) const {
    if (!to.last) {
      Store(to.state);
    } else if (to.cols == kVectors * kLanes && to.c_col_stride == 1) {
      if (to.accumulate) return WriteWhole<true>(to.c, to.c_row_stride, to.alpha);
      WriteWhole<false>(to.c, to.c_row_stride, to.alpha);
    } else {
      WritePart(to);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_SUM_TILE_INL_H_
