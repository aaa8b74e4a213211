// A small matrix product for kernels, by broadcast and fused multiply-add into vectors of columns.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_NN_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_NN_PANEL_INL_H_
#undef FP4LAB_NN_PANEL_INL_H_
#else
#define FP4LAB_NN_PANEL_INL_H_
#endif

#include <cstddef>

#include <hwy/highway.h>

#include "fp4lab/base/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kPanelRows = 8, kPanelCols = 16;
using PanelTag = hwy::HWY_NAMESPACE::CappedTag<float, kPanelCols>;

// Element (m, k) is data[m * row + k * depth].
struct PanelFactor {
  const float* data;
  std::size_t row, depth;
};

// Rows m .. m + 7 and one vector of columns of PanelProduct.
HWY_INLINE void PanelTile(const float* HWY_RESTRICT a, std::size_t row, std::size_t step,
                          const float* HWY_RESTRICT b, std::size_t b_stride, std::size_t depth,
                          bool accumulate, float* HWY_RESTRICT c, std::size_t c_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PanelTag d;
  const auto start = [&](std::size_t r) HWY_ATTR {
    return accumulate ? hn::LoadU(d, c + r * c_stride) : hn::Zero(d);
  };
  auto c0 = start(0), c1 = start(1), c2 = start(2), c3 = start(3);
  auto c4 = start(4), c5 = start(5), c6 = start(6), c7 = start(7);
  for (std::size_t k = 0; k < depth; ++k, a += step, b += b_stride) {
    const auto v = hn::LoadU(d, b);
    c0 = Fma(d, hn::Set(d, a[0]), v, c0);
    c1 = Fma(d, hn::Set(d, a[row]), v, c1);
    c2 = Fma(d, hn::Set(d, a[2 * row]), v, c2);
    c3 = Fma(d, hn::Set(d, a[3 * row]), v, c3);
    c4 = Fma(d, hn::Set(d, a[4 * row]), v, c4);
    c5 = Fma(d, hn::Set(d, a[5 * row]), v, c5);
    c6 = Fma(d, hn::Set(d, a[6 * row]), v, c6);
    c7 = Fma(d, hn::Set(d, a[7 * row]), v, c7);
  }
  hn::StoreU(c0, d, c);
  hn::StoreU(c1, d, c + c_stride);
  hn::StoreU(c2, d, c + 2 * c_stride);
  hn::StoreU(c3, d, c + 3 * c_stride);
  hn::StoreU(c4, d, c + 4 * c_stride);
  hn::StoreU(c5, d, c + 5 * c_stride);
  hn::StoreU(c6, d, c + 6 * c_stride);
  hn::StoreU(c7, d, c + 7 * c_stride);
}

// c(m, n) = sum_k a(m, k) b(k, n), k ascending, by Fma from c(m, n) if `accumulate`, else from +0.
// rows is a multiple of 8 and cols of 16; b and c are row-major with the given strides.
HWY_INLINE void PanelProduct(std::size_t rows, std::size_t cols, std::size_t depth, PanelFactor a,
                             const float* b, std::size_t b_stride, bool accumulate, float* c,
                             std::size_t c_stride) {
  for (std::size_t n = 0; n < cols; n += hwy::HWY_NAMESPACE::Lanes(PanelTag())) {
    for (std::size_t m = 0; m < rows; m += kPanelRows) {
      PanelTile(a.data + m * a.row, a.row, a.depth, b + n, b_stride, depth, accumulate,
                c + m * c_stride + n, c_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_NN_PANEL_INL_H_
