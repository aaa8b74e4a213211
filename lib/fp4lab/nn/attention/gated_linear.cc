#include "fp4lab/nn/attention/gated_linear.h"

#include <algorithm>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/lanes/row_chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/attention/gated_linear.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/base/simd/reduce-inl.h"
#include "fp4lab/nn/lanes/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a[i] and, unless null, s[i], of a token.
HWY_INLINE void MakeDecays(std::size_t n, const float* z, float* a, float* s) {
  ForElements(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto sigmoid = Sigmoid(d, hn::LoadU(d, z + i));
    if (s != nullptr) hn::StoreU(sigmoid, d, s + i);
    hn::StoreU(hn::Sqrt(hn::Sqrt(hn::Sqrt(hn::Sqrt(sigmoid)))), d, a + i);
  });
}

// to = the state after a token, from = that before it; to may be from. With q, which is scaled, the
// token's result goes to `out`.
template <bool kHasOutput>
HWY_INLINE void StepState(std::size_t keys, std::size_t values, const float* a, const float* k,
                          const float* v, const float* q, const float* from, float* to,
                          float* out) {
  ForElements(values, [=](auto d, std::size_t j) HWY_ATTR {
    const auto value = hn::LoadU(d, v + j);
    auto sum = hn::Zero(d);
    for (std::size_t i = 0; i < keys; ++i) {
      const auto kept = hn::Mul(hn::Set(d, a[i]), hn::LoadU(d, from + i * values + j));
      const auto state = hn::Add(kept, hn::Mul(hn::Set(d, k[i]), value));
      hn::StoreU(state, d, to + i * values + j);
      if constexpr (kHasOutput) sum = hn::Add(sum, hn::Mul(hn::Set(d, q[i]), state));
    }
    if constexpr (kHasOutput) hn::StoreU(sum, d, out + j);
  });
}

// One head of one sequence: views of its rows and columns.
void GatedLinearHead(const GatedLinearInputs& in, float scale, MatrixView<float> out) {
  const std::size_t keys = in.k.cols, values = in.v.cols;
  std::vector<float> state(keys * values), a(keys), q(keys);
  for (std::size_t t = 0; t < out.rows; ++t) {
    MakeDecays(keys, RowOf(in.z, t), a.data(), nullptr);
    for (std::size_t i = 0; i < keys; ++i) q[i] = scale * in.q(t, i);
    StepState<true>(keys, values, a.data(), RowOf(in.k, t), RowOf(in.v, t), q.data(), state.data(),
                    state.data(), RowOf(out, t));
  }
}

// The gradients of one token. d_state: in, the gradient of the state after the token without the
// token's own result; out, that of the state before it.
HWY_INLINE void TokenBackward(const GatedLinearInputs& in, std::size_t t, float scale,
                              const float* before, const float* after, const float* dout, float* a,
                              float* s, float* d_state, const GatedLinearGradients& d) {
  const std::size_t keys = in.k.cols, values = in.v.cols;
  const float *v = RowOf(in.v, t), *k = RowOf(in.k, t);
  float* const dv = RowOf(d.v, t);
  MakeDecays(keys, RowOf(in.z, t), a, s);
  std::fill_n(dv, values, 0.0f);
  const auto product = [](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); };
  for (std::size_t i = 0; i < keys; ++i) {
    float* const row = d_state + i * values;
    const float q = scale * in.q(t, i), key = k[i];
    ForElements(values, [=](auto tag, std::size_t j) HWY_ATTR {
      const auto own = hn::Mul(hn::Set(tag, q), hn::LoadU(tag, dout + j));
      const auto whole = hn::Add(hn::LoadU(tag, row + j), own);
      hn::StoreU(whole, tag, row + j);
      const auto of_value = hn::Mul(hn::Set(tag, key), whole);
      hn::StoreU(hn::Add(hn::LoadU(tag, dv + j), of_value), tag, dv + j);
    });
    d.q(t, i) = scale * Sum(values, product, after + i * values, dout);
    d.k(t, i) = Sum(values, product, static_cast<const float*>(row), v);
    const float da = Sum(values, product, static_cast<const float*>(row), before + i * values);
    d.z(t, i) = da * (a[i] * 0.0625f * (1.0f - s[i]));
    const float kept = a[i];
    ForElements(values, [=](auto tag, std::size_t j) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Set(tag, kept), hn::LoadU(tag, row + j)), tag, row + j);
    });
  }
}

void GatedLinearHeadBackward(const GatedLinearInputs& in, float scale, MatrixView<const float> dout,
                             const GatedLinearGradients& d) {
  const std::size_t keys = in.k.cols, values = in.v.cols, size = keys * values, length = dout.rows;
  const std::size_t pieces = DivideUp(length, kStateTokens);
  std::vector<float> starts(pieces * size), states((kStateTokens + 1) * size), d_state(size),
      a(keys), s(keys);
  const auto step = [&](std::size_t t, const float* from, float* to) HWY_ATTR {
    MakeDecays(keys, RowOf(in.z, t), a.data(), nullptr);
    StepState<false>(keys, values, a.data(), RowOf(in.k, t), RowOf(in.v, t), nullptr, from, to,
                     nullptr);
  };
  for (std::size_t piece = 0; piece + 1 < pieces; ++piece) {
    float* const next = &starts[(piece + 1) * size];
    const float* from = &starts[piece * size];
    for (std::size_t t = piece * kStateTokens; t < (piece + 1) * kStateTokens; ++t) {
      step(t, from, next);
      from = next;
    }
  }
  for (std::size_t piece = pieces; piece-- > 0;) {
    const std::size_t first = piece * kStateTokens, count = std::min(kStateTokens, length - first);
    std::copy_n(&starts[piece * size], size, states.data());
    for (std::size_t i = 0; i < count; ++i) {
      step(first + i, &states[i * size], &states[(i + 1) * size]);
    }
    for (std::size_t i = count; i-- > 0;) {
      TokenBackward(in, first + i, scale, &states[i * size], &states[(i + 1) * size],
                    RowOf(dout, first + i), a.data(), s.data(), d_state.data(), d);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(GatedLinearHead);
HWY_EXPORT(GatedLinearHeadBackward);

void ExpectShapes(const GatedLinearShape& s, const GatedLinearInputs& in) {
  const std::size_t rows = s.Rows();
  Expects(HasShape(in.q, rows, s.Keys()) && HasShape(in.k, rows, s.Keys()) &&
              HasShape(in.z, rows, s.Keys()) && HasShape(in.v, rows, s.Values()),
          "q, k and z (rows, heads * key_dim), v (rows, heads * value_dim)");
}

// Calls each(the first row, the head) for every head of every sequence.
template <class Each>
void ForHeads(const GatedLinearShape& s, Each&& each) {
  ParallelFor(s.batch * s.heads,
              [&](std::size_t i) { each(i / s.heads * s.sequence, i % s.heads); });
}

// A head's block of a view whose heads are `size` wide.
template <class T>
MatrixView<T> HeadOf(MatrixView<T> x, const GatedLinearShape& s, std::size_t row, std::size_t head,
                     std::size_t size) {
  return x.Block(row, head * size, s.sequence, size);
}

GatedLinearInputs HeadOf(const GatedLinearInputs& in, const GatedLinearShape& s, std::size_t row,
                         std::size_t head) {
  return {HeadOf(in.q, s, row, head, s.key_dim), HeadOf(in.k, s, row, head, s.key_dim),
          HeadOf(in.v, s, row, head, s.value_dim), HeadOf(in.z, s, row, head, s.key_dim)};
}

}  // namespace

void GatedLinearAttention(const GatedLinearShape& shape, const GatedLinearInputs& in,
                          MatrixView<float> out) {
  const IeeeArithmetic ieee;
  ExpectShapes(shape, in);
  Expects(HasShape(out, shape.Rows(), shape.Values()), "out (rows, heads * value_dim)");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedLinearHead);
  ForHeads(shape, [&](std::size_t row, std::size_t head) {
    kernel(HeadOf(in, shape, row, head), shape.Scale(),
           HeadOf(out, shape, row, head, shape.value_dim));
  });
}

void GatedLinearAttentionBackward(const GatedLinearShape& shape, const GatedLinearInputs& in,
                                  MatrixView<const float> dout, const GatedLinearGradients& d) {
  const IeeeArithmetic ieee;
  ExpectShapes(shape, in);
  ExpectShapes(shape, {d.q, d.k, d.v, d.z});
  Expects(HasShape(dout, shape.Rows(), shape.Values()), "dout (rows, heads * value_dim)");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedLinearHeadBackward);
  ForHeads(shape, [&](std::size_t row, std::size_t head) {
    const std::size_t keys = shape.key_dim;
    kernel(HeadOf(in, shape, row, head), shape.Scale(),
           HeadOf(dout, shape, row, head, shape.value_dim),
           {HeadOf(d.q, shape, row, head, keys), HeadOf(d.k, shape, row, head, keys),
            HeadOf(d.v, shape, row, head, shape.value_dim), HeadOf(d.z, shape, row, head, keys)});
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
