#include "fp4lab/nn/activation.h"

#include <cstddef>

#include "fp4lab/base/error.h"
#include "fp4lab/nn/row_chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/activation.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/nn/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ConstView = MatrixView<const float>;
using View = MatrixView<float>;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Relu(D d, V x) {  // NaN is not less than zero: it stays
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

void SquaredReluRows(ConstView x, View y) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* in = RowOf(x, r);
    float* out = RowOf(y, r);
    ForElements(x.cols, [=](auto d, std::size_t i) HWY_ATTR {
      const auto v = Relu(d, hn::LoadU(d, in + i));
      hn::StoreU(hn::Mul(v, v), d, out + i);
    });
  }
}

void SquaredReluBackwardRows(ConstView x, ConstView dy, View dx) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float *in = RowOf(x, r), *grad = RowOf(dy, r);
    float* out = RowOf(dx, r);
    ForElements(x.cols, [=](auto d, std::size_t i) HWY_ATTR {
      const auto v = Relu(d, hn::LoadU(d, in + i));
      hn::StoreU(hn::Mul(hn::LoadU(d, grad + i), hn::Add(v, v)), d, out + i);
    });
  }
}

// 2 sqrt(2 / pi) and that times the cubic coefficient: 2 u = x (a + b x^2).
constexpr float kGeluLinear = 1.5957691216057308f;
constexpr float kGeluCubic = 0.07135481627159526f;

void GeluRows(ConstView x, View y) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* in = RowOf(x, r);
    float* out = RowOf(y, r);
    ForElements(x.cols, [=](auto d, std::size_t i) HWY_ATTR {
      const auto v = hn::LoadU(d, in + i);
      const auto slope =
          hn::Add(hn::Set(d, kGeluLinear), hn::Mul(hn::Set(d, kGeluCubic), hn::Mul(v, v)));
      hn::StoreU(hn::Mul(v, Sigmoid(d, hn::Mul(v, slope))), d, out + i);
    });
  }
}

// With s = sigmoid(2 u): dx = dy (s + x s (1 - s) (2 u)'), (2 u)' = a + 3 b x^2.
void GeluBackwardRows(ConstView x, ConstView dy, View dx) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float *in = RowOf(x, r), *grad = RowOf(dy, r);
    float* out = RowOf(dx, r);
    ForElements(x.cols, [=](auto d, std::size_t i) HWY_ATTR {
      const auto v = hn::LoadU(d, in + i);
      const auto one = hn::Set(d, 1.0f), linear = hn::Set(d, kGeluLinear);
      const auto cubic = hn::Mul(hn::Set(d, kGeluCubic), hn::Mul(v, v));
      const auto s = Sigmoid(d, hn::Mul(v, hn::Add(linear, cubic)));
      const auto inner = hn::Add(linear, hn::Mul(hn::Set(d, 3.0f), cubic));
      const auto change = hn::Mul(hn::Mul(s, hn::Sub(one, s)), hn::Mul(v, inner));
      hn::StoreU(hn::Mul(hn::LoadU(d, grad + i), hn::Add(s, change)), d, out + i);
    });
  }
}

void SwigluRows(ConstView gate, ConstView up, View y) {
  for (std::size_t r = 0; r < y.rows; ++r) {
    const float *g_row = RowOf(gate, r), *u_row = RowOf(up, r);
    float* out = RowOf(y, r);
    ForElements(y.cols, [=](auto d, std::size_t i) HWY_ATTR {
      const auto g = hn::LoadU(d, g_row + i);
      hn::StoreU(hn::Mul(hn::Mul(g, Sigmoid(d, g)), hn::LoadU(d, u_row + i)), d, out + i);
    });
  }
}

// dgate = dy up (s + gate s (1 - s)), dup = dy (gate s).
void SwigluBackwardRows(ConstView gate, ConstView up, ConstView dy, View dgate, View dup) {
  for (std::size_t r = 0; r < dy.rows; ++r) {
    const float *g_row = RowOf(gate, r), *u_row = RowOf(up, r), *dy_row = RowOf(dy, r);
    float *dg_row = RowOf(dgate, r), *du_row = RowOf(dup, r);
    ForElements(dy.cols, [=](auto d, std::size_t i) HWY_ATTR {
      const auto g = hn::LoadU(d, g_row + i), u = hn::LoadU(d, u_row + i);
      const auto grad = hn::LoadU(d, dy_row + i);
      const auto s = Sigmoid(d, g), silu = hn::Mul(g, s);
      const auto slope = hn::Add(s, hn::Mul(silu, hn::Sub(hn::Set(d, 1.0f), s)));
      hn::StoreU(hn::Mul(hn::Mul(grad, u), slope), d, dg_row + i);
      hn::StoreU(hn::Mul(grad, silu), d, du_row + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(SquaredReluRows);
HWY_EXPORT(SquaredReluBackwardRows);
HWY_EXPORT(GeluRows);
HWY_EXPORT(GeluBackwardRows);
HWY_EXPORT(SwigluRows);
HWY_EXPORT(SwigluBackwardRows);

// Runs kernel(rows of every view) over chunks of rows.
template <class Kernel, class... Views>
void OverRows(Kernel kernel, MatrixView<const float> first, Views... views) {
  Expects(
      HasShape(first, first.rows, first.cols) && (HasShape(views, first.rows, first.cols) && ...),
      "views of one shape with unit column stride");
  ParallelRowChunks(first.rows, first.cols, [&](std::size_t r, std::size_t count) {
    kernel(RowsOf(first, r, count), RowsOf(views, r, count)...);
  });
}

}  // namespace

void SquaredRelu(MatrixView<const float> x, MatrixView<float> y) {
  OverRows(HWY_DYNAMIC_DISPATCH(SquaredReluRows), x, y);
}
void SquaredReluBackward(MatrixView<const float> x, MatrixView<const float> dy,
                         MatrixView<float> dx) {
  OverRows(HWY_DYNAMIC_DISPATCH(SquaredReluBackwardRows), x, dy, dx);
}

void Gelu(MatrixView<const float> x, MatrixView<float> y) {
  OverRows(HWY_DYNAMIC_DISPATCH(GeluRows), x, y);
}
void GeluBackward(MatrixView<const float> x, MatrixView<const float> dy, MatrixView<float> dx) {
  OverRows(HWY_DYNAMIC_DISPATCH(GeluBackwardRows), x, dy, dx);
}

void Swiglu(MatrixView<const float> gate, MatrixView<const float> up, MatrixView<float> y) {
  OverRows(HWY_DYNAMIC_DISPATCH(SwigluRows), gate, up, y);
}
void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dy, MatrixView<float> dgate, MatrixView<float> dup) {
  OverRows(HWY_DYNAMIC_DISPATCH(SwigluBackwardRows), gate, up, dy, dgate, dup);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
