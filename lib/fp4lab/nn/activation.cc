#include "fp4lab/nn/activation.h"

#include <cstddef>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/lanes/row_chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/activation.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/nn/lanes/math-inl.h"
#include "fp4lab/nn/lanes/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ConstView = MatrixView<const float>;
using View = MatrixView<float>;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Relu(D d, V x) {  // NaN is not less than zero and stays
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

template <class Store>
HWY_INLINE float SquaredReluTo(ConstView x, View y) {
  Store store;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* in = RowOf(x, r);
    float* out = RowOf(y, r);
    ForElements(x.cols, [&store, in, out](auto d, std::size_t i) HWY_ATTR {
      const auto v = Relu(d, hn::LoadU(d, in + i));
      store(d, hn::Mul(v, v), out + i);
    });
  }
  return store.Amax();
}
void SquaredReluRows(ConstView x, View y) { SquaredReluTo<StoreAsIs>(x, y); }
float SquaredReluBf16Rows(ConstView x, View y) { return SquaredReluTo<StoreBf16>(x, y); }

template <class Store>
HWY_INLINE float SquaredReluBackwardTo(ConstView x, ConstView dy, View dx) {
  Store store;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float *in = RowOf(x, r), *grad = RowOf(dy, r);
    float* out = RowOf(dx, r);
    ForElements(x.cols, [&store, in, out, grad](auto d, std::size_t i) HWY_ATTR {
      const auto v = Relu(d, hn::LoadU(d, in + i));
      store(d, hn::Mul(hn::LoadU(d, grad + i), hn::Add(v, v)), out + i);
    });
  }
  return store.Amax();
}
void SquaredReluBackwardRows(ConstView x, ConstView dy, View dx) {
  SquaredReluBackwardTo<StoreAsIs>(x, dy, dx);
}
float SquaredReluBackwardBf16Rows(ConstView x, ConstView dy, View dx) {
  return SquaredReluBackwardTo<StoreBf16>(x, dy, dx);
}

// a = 2 sqrt(2 / pi), and b = a times the cubic coefficient: 2 u = x (a + b x^2).
constexpr float kGeluLinear = 1.5957691216057308f;
constexpr float kGeluCubic = 0.07135481627159526f;

template <class Store>
HWY_INLINE float GeluTo(ConstView x, View y) {
  Store store;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* in = RowOf(x, r);
    float* out = RowOf(y, r);
    ForElements(x.cols, [&store, in, out](auto d, std::size_t i) HWY_ATTR {
      const auto v = hn::LoadU(d, in + i);
      const auto slope =
          hn::Add(hn::Set(d, kGeluLinear), hn::Mul(hn::Set(d, kGeluCubic), hn::Mul(v, v)));
      store(d, hn::Mul(v, Sigmoid(d, hn::Mul(v, slope))), out + i);
    });
  }
  return store.Amax();
}
void GeluRows(ConstView x, View y) { GeluTo<StoreAsIs>(x, y); }
float GeluBf16Rows(ConstView x, View y) { return GeluTo<StoreBf16>(x, y); }

// With s = sigmoid(2 u): dx = dy (s + x s (1 - s) (2 u)'), (2 u)' = a + 3 b x^2.
template <class Store>
HWY_INLINE float GeluBackwardTo(ConstView x, ConstView dy, View dx) {
  Store store;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float *in = RowOf(x, r), *grad = RowOf(dy, r);
    float* out = RowOf(dx, r);
    ForElements(x.cols, [&store, in, out, grad](auto d, std::size_t i) HWY_ATTR {
      const auto v = hn::LoadU(d, in + i);
      const auto one = hn::Set(d, 1.0f), linear = hn::Set(d, kGeluLinear);
      const auto cubic = hn::Mul(hn::Set(d, kGeluCubic), hn::Mul(v, v));
      const auto s = Sigmoid(d, hn::Mul(v, hn::Add(linear, cubic)));
      const auto inner = hn::Add(linear, hn::Mul(hn::Set(d, 3.0f), cubic));
      const auto change = hn::Mul(hn::Mul(s, hn::Sub(one, s)), hn::Mul(v, inner));
      store(d, hn::Mul(hn::LoadU(d, grad + i), hn::Add(s, change)), out + i);
    });
  }
  return store.Amax();
}
void GeluBackwardRows(ConstView x, ConstView dy, View dx) { GeluBackwardTo<StoreAsIs>(x, dy, dx); }
float GeluBackwardBf16Rows(ConstView x, ConstView dy, View dx) {
  return GeluBackwardTo<StoreBf16>(x, dy, dx);
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
HWY_EXPORT(SquaredReluBf16Rows);
HWY_EXPORT(SquaredReluBackwardBf16Rows);
HWY_EXPORT(GeluBf16Rows);
HWY_EXPORT(GeluBackwardBf16Rows);
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

// OverRows with a kernel that returns the largest magnitude of its rows; returns the largest
// magnitude of all rows.
template <class Kernel, class... Views>
float LargestOverRows(Kernel kernel, MatrixView<const float> first, Views... views) {
  Expects(
      HasShape(first, first.rows, first.cols) && (HasShape(views, first.rows, first.cols) && ...),
      "views of one shape with unit column stride");
  return LargestOfRowChunks(first.rows, first.cols, [&](std::size_t r, std::size_t count) {
    return kernel(RowsOf(first, r, count), RowsOf(views, r, count)...);
  });
}

}  // namespace

void SquaredRelu(MatrixView<const float> x, MatrixView<float> y) {
  const IeeeArithmetic ieee;
  OverRows(HWY_DYNAMIC_DISPATCH(SquaredReluRows), x, y);
}
void SquaredReluBackward(MatrixView<const float> x, MatrixView<const float> dy,
                         MatrixView<float> dx) {
  const IeeeArithmetic ieee;
  OverRows(HWY_DYNAMIC_DISPATCH(SquaredReluBackwardRows), x, dy, dx);
}

void Gelu(MatrixView<const float> x, MatrixView<float> y) {
  const IeeeArithmetic ieee;
  OverRows(HWY_DYNAMIC_DISPATCH(GeluRows), x, y);
}
void GeluBackward(MatrixView<const float> x, MatrixView<const float> dy, MatrixView<float> dx) {
  const IeeeArithmetic ieee;
  OverRows(HWY_DYNAMIC_DISPATCH(GeluBackwardRows), x, dy, dx);
}

float SquaredReluToBf16(MatrixView<const float> x, MatrixView<float> y) {
  const IeeeArithmetic ieee;
  return LargestOverRows(HWY_DYNAMIC_DISPATCH(SquaredReluBf16Rows), x, y);
}
float SquaredReluBackwardToBf16(MatrixView<const float> x, MatrixView<const float> dy,
                                MatrixView<float> dx) {
  const IeeeArithmetic ieee;
  return LargestOverRows(HWY_DYNAMIC_DISPATCH(SquaredReluBackwardBf16Rows), x, dy, dx);
}
float GeluToBf16(MatrixView<const float> x, MatrixView<float> y) {
  const IeeeArithmetic ieee;
  return LargestOverRows(HWY_DYNAMIC_DISPATCH(GeluBf16Rows), x, y);
}
float GeluBackwardToBf16(MatrixView<const float> x, MatrixView<const float> dy,
                         MatrixView<float> dx) {
  const IeeeArithmetic ieee;
  return LargestOverRows(HWY_DYNAMIC_DISPATCH(GeluBackwardBf16Rows), x, dy, dx);
}

void Swiglu(MatrixView<const float> gate, MatrixView<const float> up, MatrixView<float> y) {
  const IeeeArithmetic ieee;
  OverRows(HWY_DYNAMIC_DISPATCH(SwigluRows), gate, up, y);
}
void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dy, MatrixView<float> dgate, MatrixView<float> dup) {
  const IeeeArithmetic ieee;
  OverRows(HWY_DYNAMIC_DISPATCH(SwigluBackwardRows), gate, up, dy, dgate, dup);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
