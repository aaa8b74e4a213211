#include "fp4lab/nn/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/lanes/row_chunks.h"

#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>

// The kernels process queries in spans of two blocks of 16, one query per lane; keys are the rows.
// The scores of a span, s(key, query), stay in cache: (T, 32) floats. Every sum is a chain within
// one lane.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/attention/attention.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/base/simd/transpose-inl.h"
#include "fp4lab/nn/lanes/math-inl.h"
#include "fp4lab/nn/lanes/panel-inl.h"
#include "fp4lab/nn/lanes/softmax_lanes-inl.h"

#ifndef FP4LAB_NN_ATTENTION_CC_ONCE_
#define FP4LAB_NN_ATTENTION_CC_ONCE_
namespace fp4lab {
namespace {

// A thread's memory, kept from call to call and handed out in pieces that start on a cache line.
class Pieces {
 public:
  explicit Pieces(std::size_t size) {
    thread_local FloatBuffer memory;
    Reserve(&memory, size);
    next_ = memory.data();
  }
  float* Take(std::size_t size) {  // `size` is a multiple of 16
    float* piece = next_;
    next_ += size;
    return piece;
  }

 private:
  float* next_;
};

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_NN_ATTENTION_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The number of rows that packing prefetches ahead, since a head's rows lie far apart.
constexpr std::size_t kPrefetchRows = 16;

// A row of whole blocks: to = scale * from.
HWY_INLINE void ScaleRow(const float* from, float scale, std::size_t size, float* to) {
  const PanelTag d;
  for (std::size_t c = 0; c < size; c += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, from + c), hn::Set(d, scale)), d, to + c);
  }
}

// to (rows, RoundUp(x.cols, kBlock)) = scale * x, zeros where x has no element.
HWY_INLINE void Pack(MatrixView<const float> x, float scale, std::size_t rows, float* to) {
  const std::size_t width = RoundUp(x.cols, kBlock), whole = x.cols / kBlock * kBlock;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* from = RowOf(x, r);
    // A prefetch beyond the last row loads memory that is not read, which does no harm.
    for (std::size_t c = 0; c < x.cols; c += kBlock) {
      hwy::Prefetch(from + kPrefetchRows * x.row_stride + c);
    }
    ScaleRow(from, scale, whole, to + r * width);
    for (std::size_t c = whole; c < width; ++c) {
      to[r * width + c] = c < x.cols ? scale * from[c] : 0.0f;
    }
  }
  if (rows > x.rows) std::fill_n(to + x.rows * width, (rows - x.rows) * width, 0.0f);
}

// Queries [first, first + 16 * blocks) of a head, `rows` of which exist. The first block sees the
// keys before first + 16, the second block 16 more.
struct Span {
  std::size_t first, blocks, rows;

  Span(std::size_t first, std::size_t length)
      : first(first),
        blocks(length - first > kBlock ? 2 : 1),
        rows(std::min(kBlock * blocks, length - first)) {}
  std::size_t Lanes() const { return blocks * kBlock; }
  std::size_t Seen() const { return first + kBlock; }  // keys that the first block sees
};

HWY_INLINE MatrixView<const float> RowsOfSpan(MatrixView<const float> x, const Span& span) {
  return RowsOf(x, span.first, span.rows);
}

// to (width, kSpan) = packed (lanes, width) transposed.
HWY_INLINE void ToLanes(const float* packed, const Span& span, std::size_t width, float* to) {
  for (std::size_t i = 0; i < span.Lanes(); i += kBlock) {
    for (std::size_t c = 0; c < width; c += kBlock) {
      Transpose16x16(packed + i * width + c, width, to + c * kSpan + i, kSpan);
    }
  }
}

// to (lanes, width) = lanes (width, kSpan) transposed.
HWY_INLINE void FromLanes(const float* lanes, const Span& span, std::size_t width, float* to) {
  for (std::size_t i = 0; i < span.Lanes(); i += kBlock) {
    for (std::size_t c = 0; c < width; c += kBlock) {
      Transpose16x16(lanes + c * kSpan + i, kSpan, to + i * width + c, width);
    }
  }
}

// scores (keys, kSpan) = keys (keys, width) . lanes (head_dim, kSpan), for the keys that a block
// sees.
HWY_INLINE void Scores(const Span& span, std::size_t head_dim, const float* keys, std::size_t width,
                       const float* lanes, float* scores) {
  PanelProduct(span.Seen(), span.Lanes(), head_dim, PanelFactor<std::size_t>{keys, width, 1}, lanes,
               kSpan, false, scores, kSpan);
  if (span.blocks == 1) return;
  PanelProduct(kBlock, kBlock, head_dim,
               PanelFactor<std::size_t>{keys + span.Seen() * width, width, 1}, lanes + kBlock,
               kSpan, false, scores + span.Seen() * kSpan + kBlock, kSpan);
}

// Scores of keys before a query's window become -Inf, so that their probabilities are 0. Every
// query still sees its own key.
HWY_INLINE void MaskBeforeWindow(const Span& span, std::size_t window, float* scores) {
  if (window == 0) return;
  for (std::size_t key = 0; key + window < span.first + span.Lanes(); ++key) {
    const std::size_t query = std::max(span.first, key + window);  // the first that is too far
    float* const row = scores + key * kSpan;
    std::fill(row + (query - span.first), row + span.Lanes(),
              -std::numeric_limits<float>::infinity());
  }
}

// sums (width, kSpan): over the keys that a block sees, values (keys, width) * weights (keys,
// kSpan).
HWY_INLINE void SumOverKeys(const Span& span, const float* weights, const float* values,
                            std::size_t width, float* sums) {
  PanelProduct(width, span.Lanes(), span.Seen(), PanelFactor<Constant<1>>{values, {}, width},
               weights, kSpan, false, sums, kSpan);
  if (span.blocks == 1) return;
  PanelProduct(width, kBlock, kBlock,
               PanelFactor<Constant<1>>{values + span.Seen() * width, {}, width},
               weights + span.Seen() * kSpan + kBlock, kSpan, true, sums + kBlock, kSpan);
}

// sums (keys, width) += over the queries of the span, weights (keys, kSpan) * x (lanes, width).
HWY_INLINE void AddOverQueries(const Span& span, const float* weights, const float* x,
                               std::size_t width, float* sums) {
  PanelProduct(span.Seen(), width, span.Lanes(), PanelFactor<Constant<kSpan>>{weights, {}, 1}, x,
               width, true, sums, width);
  if (span.blocks == 1) return;
  PanelProduct(kBlock, width, kBlock,
               PanelFactor<Constant<kSpan>>{weights + span.Seen() * kSpan + kBlock, {}, 1},
               x + kBlock * width, width, true, sums + span.Seen() * width, width);
}

// lanes (width, kSpan) *= factor (kSpan).
HWY_INLINE void ScaleLanes(const float* factor, std::size_t width, float* lanes) {
  const PanelTag d;
  for (std::size_t i = 0; i < kSpan; i += hn::Lanes(d)) {
    const auto f = hn::Load(d, factor + i);
    for (std::size_t c = 0; c < width; ++c) {
      float* at = lanes + c * kSpan + i;
      hn::Store(hn::Mul(hn::Load(d, at), f), d, at);
    }
  }
}

// to = packed (rows, RoundUp(to.cols, kBlock)).
HWY_INLINE void Unpack(const float* packed, MatrixView<float> to) {
  const std::size_t width = RoundUp(to.cols, kBlock), whole = to.cols / kBlock * kBlock;
  for (std::size_t r = 0; r < to.rows; ++r, packed += width) {
    ScaleRow(packed, 1.0f, whole, RowOf(to, r));
    for (std::size_t c = whole; c < to.cols; ++c) RowOf(to, r)[c] = packed[c];
  }
}

// The forward pass of one head of one sequence. row_max, inverse_sum (T).
void AttentionHead(MatrixView<const float> q, MatrixView<const float> k, MatrixView<const float> v,
                   MatrixView<float> out, std::size_t window, float scale, float* row_max,
                   float* inverse_sum) {
  const std::size_t length = RoundUp(q.rows, kBlock), width = RoundUp(q.cols, kBlock),
                    value_width = RoundUp(v.cols, kBlock), wider = std::max(width, value_width);
  Pieces pieces(length * (width + value_width) + length * kSpan +
                kSpan * (wider + width + value_width) + 2 * kSpan);
  float *keys = pieces.Take(length * width), *values = pieces.Take(length * value_width);
  float *s = pieces.Take(length * kSpan), *rows = pieces.Take(kSpan * wider);
  float *q_lanes = pieces.Take(width * kSpan), *o_lanes = pieces.Take(value_width * kSpan);
  float *max = pieces.Take(kSpan), *inverse = pieces.Take(kSpan);
  std::fill_n(o_lanes, value_width * kSpan, 0.0f);
  std::fill_n(inverse, kSpan, 0.0f);
  Pack(k, 1.0f, length, keys);
  Pack(v, 1.0f, length, values);
  for (std::size_t first = 0; first < q.rows; first += kSpan) {
    const Span span(first, q.rows);
    Pack(RowsOfSpan(q, span), scale, span.Lanes(), rows);
    ToLanes(rows, span, width, q_lanes);
    Scores(span, q.cols, keys, width, q_lanes, s);
    MaskBeforeWindow(span, window, s);
    for (std::size_t i = 0; i < span.Lanes(); i += kBlock) {
      SoftmaxLanes(span.Seen() + i, s + i, max + i, inverse + i);
    }
    SumOverKeys(span, s, values, value_width, o_lanes);
    ScaleLanes(inverse, value_width, o_lanes);
    FromLanes(o_lanes, span, value_width, rows);
    Unpack(rows, RowsOf(out, first, span.rows));
    std::copy_n(max, span.rows, row_max + first);
    std::copy_n(inverse, span.rows, inverse_sum + first);
  }
}

// The tensors of one query head in the backward pass.
struct QueryHead {
  MatrixView<const float> q, out, dout;
  const float *row_max, *inverse_sum;
  MatrixView<float> dq;
};

// The buffers of AttentionBackwardGroup, zero-padded to 16 rows and columns. `wider`: the larger of
// both widths.
struct GroupBuffers {
  std::size_t length, width, value_width, wider;
  float scale;
  Pieces pieces;
  float *keys, *dkeys;                  // (length, width)
  float *values, *dvalues;              // (length, value_width)
  float *s, *dp;                        // (length, kSpan)
  float *q, *dout, *rows;               // (kSpan, width), (kSpan, value_width), (kSpan, wider)
  float *q_lanes, *dout_lanes, *lanes;  // the same, transposed
  float *max, *inverse, *dot, *scales;  // (kSpan)

  GroupBuffers(std::size_t rows_of_head, std::size_t head_dim, std::size_t value_dim, float factor)
      : length(RoundUp(rows_of_head, kBlock)),
        width(RoundUp(head_dim, kBlock)),
        value_width(RoundUp(value_dim, kBlock)),
        wider(std::max(width, value_width)),
        scale(factor),
        pieces(2 * length * (width + value_width) + 2 * length * kSpan +
               2 * (width + value_width + wider) * kSpan + 4 * kSpan) {
    for (float** panel : {&keys, &dkeys}) *panel = pieces.Take(length * width);
    for (float** panel : {&values, &dvalues}) *panel = pieces.Take(length * value_width);
    for (float** panel : {&s, &dp}) *panel = pieces.Take(length * kSpan);
    for (float** panel : {&q, &q_lanes}) *panel = pieces.Take(width * kSpan);
    for (float** panel : {&dout, &dout_lanes}) *panel = pieces.Take(value_width * kSpan);
    for (float** panel : {&rows, &lanes}) *panel = pieces.Take(wider * kSpan);
    for (float** one : {&max, &inverse, &dot, &scales}) *one = pieces.Take(kSpan);
    std::fill_n(scales, kSpan, scale);
    std::fill_n(lanes, wider * kSpan, 0.0f);
  }
};

// Loads a span's queries. Lanes beyond the sequence get 1 / sum = 0, so that their probabilities
// are 0.
HWY_INLINE void LoadQueries(const QueryHead& head, const Span& span, const GroupBuffers& b) {
  Pack(RowsOfSpan(head.q, span), b.scale, span.Lanes(), b.q);
  Pack(RowsOfSpan(head.dout, span), 1.0f, span.Lanes(), b.dout);
  Pack(RowsOfSpan(head.out, span), 1.0f, span.Lanes(), b.rows);
  ToLanes(b.q, span, b.width, b.q_lanes);
  ToLanes(b.dout, span, b.value_width, b.dout_lanes);
  ToLanes(b.rows, span, b.value_width, b.lanes);
  for (float* one : {b.max, b.inverse}) std::fill_n(one, kSpan, 0.0f);
  std::copy_n(head.row_max + span.first, span.rows, b.max);
  std::copy_n(head.inverse_sum + span.first, span.rows, b.inverse);
  const PanelTag d;
  for (std::size_t i = 0; i < span.Lanes(); i += hn::Lanes(d)) {
    auto dot = hn::Zero(d);
    for (std::size_t c = 0; c < head.out.cols; ++c) {
      const std::size_t at = c * kSpan + i;
      dot = hn::Add(dot, hn::Mul(hn::Load(d, b.dout_lanes + at), hn::Load(d, b.lanes + at)));
    }
    hn::Store(dot, d, b.dot + i);
  }
}

HWY_INLINE void BackwardSpan(const QueryHead& head, const Span& span, std::size_t window,
                             const GroupBuffers& b) {
  LoadQueries(head, span, b);
  Scores(span, head.q.cols, b.keys, b.width, b.q_lanes, b.s);
  MaskBeforeWindow(span, window, b.s);
  Scores(span, head.dout.cols, b.values, b.value_width, b.dout_lanes, b.dp);
  for (std::size_t i = 0; i < span.Lanes(); i += kBlock) {
    SoftmaxLanesBackward(span.Seen() + i, b.max + i, b.inverse + i, b.dot + i, b.s + i, b.dp + i);
  }
  AddOverQueries(span, b.s, b.dout, b.value_width, b.dvalues);
  AddOverQueries(span, b.dp, b.q, b.width, b.dkeys);
  SumOverKeys(span, b.dp, b.keys, b.width, b.lanes);
  ScaleLanes(b.scales, b.width, b.lanes);
  FromLanes(b.lanes, span, b.width, b.rows);
  Unpack(b.rows, RowsOf(head.dq, span.first, span.rows));
}

// The backward pass of one key head of one sequence, with the query heads that read the key head,
// in order: q and dq are (T, heads * head_dim), out and dout (T, heads * value_dim), row_max and
// inverse_sum (heads, T).
void AttentionBackwardGroup(MatrixView<const float> q, MatrixView<const float> k,
                            MatrixView<const float> v, MatrixView<const float> out,
                            std::size_t window, float scale, const float* row_max,
                            const float* inverse_sum, MatrixView<const float> dout,
                            MatrixView<float> dq, MatrixView<float> dk, MatrixView<float> dv) {
  const GroupBuffers b(k.rows, k.cols, v.cols, scale);
  Pack(k, 1.0f, b.length, b.keys);
  Pack(v, 1.0f, b.length, b.values);
  std::fill_n(b.dkeys, b.length * b.width, 0.0f);
  std::fill_n(b.dvalues, b.length * b.value_width, 0.0f);
  for (std::size_t h = 0; h < q.cols / k.cols; ++h) {
    const auto own = [h](auto x, std::size_t cols) { return x.Block(0, h * cols, x.rows, cols); };
    const QueryHead head{own(q, k.cols),       own(out, v.cols),         own(dout, v.cols),
                         row_max + h * k.rows, inverse_sum + h * k.rows, own(dq, k.cols)};
    for (std::size_t first = 0; first < k.rows; first += kSpan) {
      BackwardSpan(head, Span(first, k.rows), window, b);
    }
  }
  Unpack(b.dkeys, dk);
  Unpack(b.dvalues, dv);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(AttentionHead);
HWY_EXPORT(AttentionBackwardGroup);

void ExpectShape(const AttentionShape& s) {
  Expects(s.batch > 0 && s.sequence > 0 && s.head_dim > 0 && s.heads > 0 && s.kv_heads > 0 &&
              s.heads % s.kv_heads == 0,
          "positive sizes, kv_heads dividing heads");
}

bool IsQuery(const AttentionShape& s, MatrixView<const float> x) {
  return HasShape(x, s.Rows(), s.heads * s.head_dim);
}
bool IsKey(const AttentionShape& s, MatrixView<const float> x) {
  return HasShape(x, s.Rows(), s.kv_heads * s.head_dim);
}
bool IsValue(const AttentionShape& s, MatrixView<const float> x) {
  return HasShape(x, s.Rows(), s.kv_heads * s.ValueDim());
}
bool IsResult(const AttentionShape& s, MatrixView<const float> x) {
  return HasShape(x, s.Rows(), s.heads * s.ValueDim());
}

// The rows of sequence b and the columns of part i, if x's columns are cut into `parts`.
template <class T>
MatrixView<T> Part(const AttentionShape& s, MatrixView<T> x, std::size_t b, std::size_t i,
                   std::size_t parts) {
  return x.Block(b * s.sequence, i * (x.cols / parts), s.sequence, x.cols / parts);
}

}  // namespace

void Attention(const AttentionShape& shape, MatrixView<const float> q, MatrixView<const float> k,
               MatrixView<const float> v, MatrixView<float> out, std::span<float> statistics) {
  const IeeeArithmetic ieee;
  const AttentionShape& s = shape;
  ExpectShape(s);
  Expects(
      IsQuery(s, q) && IsKey(s, k) && IsValue(s, v) && IsResult(s, out) &&
          statistics.size() == s.StatisticsSize(),
      "q (B * T, heads * head_dim), k (B * T, kv_heads * head_dim), v and out as wide as values");
  const auto kernel = HWY_DYNAMIC_DISPATCH(AttentionHead);
  const std::size_t plane = s.heads * s.sequence;
  ParallelFor(s.batch * s.heads, [&](std::size_t i) {
    const std::size_t b = i / s.heads, h = i % s.heads, kv = h / s.QueriesPerKey();
    float* const row_max = &statistics[2 * b * plane + h * s.sequence];
    kernel(Part(s, q, b, h, s.heads), Part(s, k, b, kv, s.kv_heads), Part(s, v, b, kv, s.kv_heads),
           Part(s, out, b, h, s.heads), s.window, s.Scale(), row_max, row_max + plane);
  });
}

void AttentionBackward(const AttentionShape& shape, MatrixView<const float> q,
                       MatrixView<const float> k, MatrixView<const float> v,
                       MatrixView<const float> out, std::span<const float> statistics,
                       MatrixView<const float> dout, const AttentionGradients& gradients) {
  const IeeeArithmetic ieee;
  const AttentionShape& s = shape;
  const auto& [dq, dk, dv] = gradients;
  ExpectShape(s);
  Expects(
      IsQuery(s, q) && IsKey(s, k) && IsValue(s, v) && IsResult(s, out) && IsResult(s, dout) &&
          IsQuery(s, dq) && IsKey(s, dk) && IsValue(s, dv) &&
          statistics.size() == s.StatisticsSize(),
      "q, dq (B * T, heads * head_dim), k, dk (B * T, kv_heads * head_dim), v, dv, out and dout "
      "as wide as values");
  const auto kernel = HWY_DYNAMIC_DISPATCH(AttentionBackwardGroup);
  const std::size_t plane = s.heads * s.sequence;
  ParallelFor(s.batch * s.kv_heads, [&, dq = dq, dk = dk, dv = dv](std::size_t i) {
    const std::size_t b = i / s.kv_heads, kv = i % s.kv_heads;
    const float* const row_max = &statistics[2 * b * plane + kv * s.QueriesPerKey() * s.sequence];
    const auto part = [&](auto x) { return Part(s, x, b, kv, s.kv_heads); };
    kernel(part(q), part(k), part(v), part(out), s.window, s.Scale(), row_max, row_max + plane,
           part(dout), part(dq), part(dk), part(dv));
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
