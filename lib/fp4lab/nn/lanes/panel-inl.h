// A small matrix product for kernels, by broadcast and fused multiply-add into vectors of columns.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_NN_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_NN_PANEL_INL_H_
#undef FP4LAB_NN_PANEL_INL_H_
#else
#define FP4LAB_NN_PANEL_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include <hwy/highway.h>

#include "fp4lab/base/simd/fma-inl.h"
#include "fp4lab/tensor/repeat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kPanelRows = 8, kPanelCols = 16;
using PanelTag = hwy::HWY_NAMESPACE::CappedTag<float, kPanelCols>;
// Whether 16 sums, their operands and a broadcast fit the registers.
inline constexpr bool kPanelWide = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;

// Element (m, k) is data[m * row + k * depth]. Row is std::size_t or a constant of that type, which
// saves the kernel its row pointers.
template <class Row>
struct PanelFactor {
  const float* data;
  Row row;
  std::size_t depth;
};

template <std::size_t kValue>
using Constant = std::integral_constant<std::size_t, kValue>;

// The arguments of PanelProduct, with b and c at the current vectors of columns.
template <class Row>
struct PanelWork {
  PanelFactor<Row> a;
  const float* b;
  std::size_t b_stride, depth;
  bool accumulate;
  float* c;
  std::size_t c_stride;
};

// Computes rows [m, m + kRows) of kVectors vectors of columns.
template <std::size_t kRows, std::size_t kVectors, class Row>
HWY_INLINE void PanelTile(const PanelWork<Row>& w, std::size_t m) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PanelTag d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  hn::Vec<PanelTag> sum[kRows][kVectors];
  float* const c = w.c + m * w.c_stride;
  const auto for_each = [&](auto f) HWY_ATTR {
    Repeat<kRows>([&](auto i) HWY_ATTR { Repeat<kVectors>([&](auto j) HWY_ATTR { f(i, j); }); });
  };
  for_each([&](auto i, auto j) HWY_ATTR { sum[i][j] = hn::Zero(d); });
  if (w.accumulate) {
    for_each([&](auto i, auto j)
                 HWY_ATTR { sum[i][j] = hn::LoadU(d, c + i * w.c_stride + j * kLanes); });
  }
  const float* HWY_RESTRICT a = w.a.data + m * w.a.row;
  const float* HWY_RESTRICT b = w.b;
  for (std::size_t k = 0; k < w.depth; ++k, a += w.a.depth, b += w.b_stride) {
    hn::Vec<PanelTag> bk[kVectors];
    Repeat<kVectors>([&](auto j) HWY_ATTR { bk[j] = hn::LoadU(d, b + j * kLanes); });
    Repeat<kRows>([&](auto i) HWY_ATTR {
      const auto ak = hn::Set(d, a[i * w.a.row]);
      Repeat<kVectors>([&](auto j) HWY_ATTR { sum[i][j] = Fma(d, ak, bk[j], sum[i][j]); });
    });
  }
  for_each([&](auto i, auto j)
               HWY_ATTR { hn::StoreU(sum[i][j], d, c + i * w.c_stride + j * kLanes); });
}

// Computes as many rows of [m, rows) as whole tiles of kRows rows cover; returns the next m. Not
// inlined: GCC keeps the sums of a large function in memory.
template <std::size_t kRows, std::size_t kVectors, class Row>
HWY_NOINLINE std::size_t PanelTiles(const PanelWork<Row>& work, std::size_t m, std::size_t rows) {
  const PanelWork<Row> w = work;
  for (; m + kRows <= rows; m += kRows) PanelTile<kRows, kVectors>(w, m);
  return m;
}

// c(m, n) = sum_k a(m, k) b(k, n), k ascending, by Fma from c(m, n) if `accumulate`, else from +0.
// rows is a multiple of 8 and cols of 16; b and c are row-major with the given strides.
template <class Row>
HWY_INLINE void PanelProduct(std::size_t rows, std::size_t cols, std::size_t depth,
                             PanelFactor<Row> a, const float* b, std::size_t b_stride,
                             bool accumulate, float* c, std::size_t c_stride) {
  constexpr std::size_t kLanes = hwy::HWY_NAMESPACE::MaxLanes(PanelTag());
  PanelWork<Row> w{a, b, b_stride, depth, accumulate, c, c_stride};
  std::size_t n = 0;
  if constexpr (kPanelWide) {
    for (; n + 2 * kLanes <= cols; n += 2 * kLanes, w.b += 2 * kLanes, w.c += 2 * kLanes) {
      PanelTiles<kPanelRows, 2>(w, 0, rows);
    }
  }
  for (; n < cols; n += kLanes, w.b += kLanes, w.c += kLanes) {
    std::size_t m = 0;
    if constexpr (kPanelWide) m = PanelTiles<2 * kPanelRows, 1>(w, m, rows);
    PanelTiles<kPanelRows, 1>(w, m, rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_NN_PANEL_INL_H_
