#include "fp4lab/nn/attention/rope.h"

#include <cstddef>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/lanes/row_chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/attention/rope.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void RotatePairs(D d, const float* cos, const float* sin, float sign, float* low,
                            float* high) {
  const auto c = hn::LoadU(d, cos), s = hn::Mul(hn::Set(d, sign), hn::LoadU(d, sin));
  const auto a = hn::LoadU(d, low), b = hn::LoadU(d, high);
  hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, low);
  hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, high);
}

// Row i of x is at position (first + i) % positions.
void RopeRows(MatrixView<const float> cos, MatrixView<const float> sin, float sign,
              std::size_t first, MatrixView<float> x) {
  const hn::CappedTag<float, 8> d;  // half of the smallest usual head
  const hn::CappedTag<float, 1> one;
  const std::size_t half = cos.cols;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const std::size_t position = (first + r) % cos.rows;
    const float *c = RowOf(cos, position), *s = RowOf(sin, position);
    for (std::size_t head = 0; head < x.cols; head += 2 * half) {
      float *low = RowOf(x, r) + head, *high = low + half;
      std::size_t i = 0;
      for (; i + hn::Lanes(d) <= half; i += hn::Lanes(d)) {
        RotatePairs(d, c + i, s + i, sign, low + i, high + i);
      }
      for (; i < half; ++i) RotatePairs(one, c + i, s + i, sign, low + i, high + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(RopeRows);

void Rotate(const RopeTable& table, float sign, MatrixView<float> x) {
  Expects(table.cos.rows > 0 && x.rows % table.cos.rows == 0 &&
              x.cols % (2 * table.cos.cols) == 0 && HasShape(x, x.rows, x.cols),
          "x (B * positions, heads * head_dim) with unit column stride");
  const auto kernel = HWY_DYNAMIC_DISPATCH(RopeRows);
  ParallelRowChunks(x.rows, x.cols, [&](std::size_t r, std::size_t count) {
    kernel(table.cos.View(), table.sin.View(), sign, r, RowsOf(x, r, count));
  });
}

}  // namespace

RopeTable MakeRopeTable(std::size_t positions, std::size_t head_dim, float theta) {
  const IeeeArithmetic ieee;
  Expects(positions > 0 && head_dim >= 2 && head_dim % 2 == 0 && theta > 0,
          "positions > 0, an even head_dim and theta > 0");
  const std::size_t half = head_dim / 2;
  RopeTable table{Matrix<float>(positions, half), Matrix<float>(positions, half)};
  for (std::size_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double frequency = Exp(exponent * Log(theta));
    for (std::size_t t = 0; t < positions; ++t) {
      const SinCos angle = SineCosine(static_cast<double>(t) * frequency);
      table.cos(t, i) = static_cast<float>(angle.cos);
      table.sin(t, i) = static_cast<float>(angle.sin);
    }
  }
  return table;
}

void Rope(const RopeTable& table, MatrixView<float> x) {
  const IeeeArithmetic ieee;
  Rotate(table, 1.0f, x);
}

void RopeBackward(const RopeTable& table, MatrixView<float> dx) {
  const IeeeArithmetic ieee;
  Rotate(table, -1.0f, dx);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
