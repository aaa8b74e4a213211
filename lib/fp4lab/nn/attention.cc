#include "fp4lab/nn/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/row_chunks.h"

#include <hwy/aligned_allocator.h>

// Queries go through in blocks of 16, one lane each; keys are the rows. The scores of a block,
// s(key, query), stay in cache: (T, 16) floats. Every sum is a chain within one lane.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/attention.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/nn/math-inl.h"
#include "fp4lab/nn/panel-inl.h"
#include "fp4lab/nn/softmax_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t RoundUp(std::size_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// Floats from one allocation, handed out in pieces that start on a cache line.
class Scratch {
 public:
  explicit Scratch(std::size_t size) : memory_(hwy::AllocateAligned<float>(size)) {}
  float* Take(std::size_t size) {
    float* piece = memory_.get() + used_;
    used_ += RoundUp(size);
    return piece;
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  std::size_t used_ = 0;
};

// to (rows, RoundUp(x.cols)) = scale * x, zeros where x has no element.
HWY_INLINE void Pack(MatrixView<const float> x, float scale, std::size_t rows, float* to) {
  const std::size_t width = RoundUp(x.cols);
  for (std::size_t r = 0; r < x.rows; ++r, to += width) {
    const float* from = RowOf(x, r);
    ForElements(x.cols, [=](auto d, std::size_t c) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + c), hn::Set(d, scale)), d, to + c);
    });
    std::fill(to + x.cols, to + width, 0.0f);
  }
  std::fill_n(to, (rows - x.rows) * width, 0.0f);
}

// to (head_dim, 16) = packed (16, width) transposed.
HWY_INLINE void TransposeBlock(const float* packed, std::size_t head_dim, float* to) {
  const std::size_t width = RoundUp(head_dim);
  for (std::size_t c = 0; c < head_dim; ++c) {
    for (std::size_t i = 0; i < kBlock; ++i) to[c * kBlock + i] = packed[i * width + c];
  }
}

// Rows [first, first + 16) of x, fewer at the end.
HWY_INLINE MatrixView<const float> BlockRows(MatrixView<const float> x, std::size_t first) {
  return RowsOf(x, first, std::min(kBlock, x.rows - first));
}

// One head of one sequence. row_max, inverse_sum (T).
void AttentionHead(MatrixView<const float> q, MatrixView<const float> k, MatrixView<const float> v,
                   MatrixView<float> out, float* row_max, float* inverse_sum) {
  const std::size_t length = RoundUp(q.rows), width = RoundUp(q.cols);
  const float scale = 1.0f / std::sqrt(static_cast<float>(q.cols));
  Scratch scratch(2 * length * width + length * kBlock + 3 * kBlock * width + 2 * kBlock);
  float *keys = scratch.Take(length * width), *values = scratch.Take(length * width);
  float *s = scratch.Take(length * kBlock), *block = scratch.Take(kBlock * width);
  float *q_lanes = scratch.Take(width * kBlock), *o = scratch.Take(kBlock * width);
  float *max = scratch.Take(kBlock), *inverse = scratch.Take(kBlock);
  Pack(k, 1.0f, length, keys);
  Pack(v, 1.0f, length, values);
  for (std::size_t first = 0; first < q.rows; first += kBlock) {
    const std::size_t seen = first + kBlock, count = std::min(kBlock, q.rows - first);
    Pack(BlockRows(q, first), scale, kBlock, block);
    TransposeBlock(block, q.cols, q_lanes);
    PanelProduct(seen, kBlock, q.cols, {keys, width, 1}, q_lanes, kBlock, false, s, kBlock);
    SoftmaxLanes(seen, s, max, inverse);
    PanelProduct(kBlock, width, seen, {s, 1, kBlock}, values, width, false, o, width);
    for (std::size_t i = 0; i < count; ++i) {
      float* to = RowOf(out, first + i);
      for (std::size_t c = 0; c < q.cols; ++c) to[c] = o[i * width + c] * inverse[i];
    }
    std::copy_n(max, count, row_max + first);
    std::copy_n(inverse, count, inverse_sum + first);
  }
}

// What one query head needs of its own in the backward pass.
struct QueryHead {
  MatrixView<const float> q, out, dout;
  const float *row_max, *inverse_sum;
  MatrixView<float> dq;
};

// The buffers of AttentionBackwardGroup, zero-padded to 16 rows and columns.
struct GroupBuffers {
  std::size_t length, width;
  float scale;
  Scratch scratch;
  float *keys, *values, *dkeys, *dvalues;       // (length, width)
  float *s, *dp;                                // (length, 16)
  float *q, *dout, *dq, *q_lanes, *dout_lanes;  // (16, width) and (width, 16)
  float *max, *inverse, *dot;                   // (16)

  GroupBuffers(std::size_t rows, std::size_t head_dim)
      : length(RoundUp(rows)),
        width(RoundUp(head_dim)),
        scale(1.0f / std::sqrt(static_cast<float>(head_dim))),
        scratch(4 * length * width + 2 * length * kBlock + 5 * width * kBlock + 3 * kBlock) {
    for (float** panel : {&keys, &values, &dkeys, &dvalues}) *panel = scratch.Take(length * width);
    for (float** panel : {&s, &dp}) *panel = scratch.Take(length * kBlock);
    for (float** panel : {&q, &dout, &dq, &q_lanes, &dout_lanes}) {
      *panel = scratch.Take(width * kBlock);
    }
    for (float** lanes : {&max, &inverse, &dot}) *lanes = scratch.Take(kBlock);
  }
};

// Lanes beyond the sequence get 1 / sum = 0, so that their probabilities are 0.
HWY_INLINE void LoadQueryBlock(const QueryHead& head, std::size_t first, const GroupBuffers& b) {
  const std::size_t count = std::min(kBlock, head.q.rows - first);
  Pack(BlockRows(head.q, first), b.scale, kBlock, b.q);
  Pack(BlockRows(head.dout, first), 1.0f, kBlock, b.dout);
  TransposeBlock(b.q, head.q.cols, b.q_lanes);
  TransposeBlock(b.dout, head.q.cols, b.dout_lanes);
  for (float* lanes : {b.max, b.inverse, b.dot}) std::fill_n(lanes, kBlock, 0.0f);
  std::copy_n(head.row_max + first, count, b.max);
  std::copy_n(head.inverse_sum + first, count, b.inverse);
  for (std::size_t c = 0; c < head.q.cols; ++c) {
    for (std::size_t i = 0; i < count; ++i) {
      b.dot[i] += b.dout_lanes[c * kBlock + i] * head.out(first + i, c);
    }
  }
}

HWY_INLINE void BackwardBlock(const QueryHead& head, std::size_t first, const GroupBuffers& b) {
  const std::size_t seen = first + kBlock, head_dim = head.q.cols;
  LoadQueryBlock(head, first, b);
  PanelProduct(seen, kBlock, head_dim, {b.keys, b.width, 1}, b.q_lanes, kBlock, false, b.s, kBlock);
  PanelProduct(seen, kBlock, head_dim, {b.values, b.width, 1}, b.dout_lanes, kBlock, false, b.dp,
               kBlock);
  SoftmaxLanesBackward(seen, b.max, b.inverse, b.dot, b.s, b.dp);
  PanelProduct(seen, b.width, kBlock, {b.s, kBlock, 1}, b.dout, b.width, true, b.dvalues, b.width);
  PanelProduct(seen, b.width, kBlock, {b.dp, kBlock, 1}, b.q, b.width, true, b.dkeys, b.width);
  PanelProduct(kBlock, b.width, seen, {b.dp, 1, kBlock}, b.keys, b.width, false, b.dq, b.width);
  for (std::size_t i = 0; i < std::min(kBlock, head.q.rows - first); ++i) {
    float* to = RowOf(head.dq, first + i);
    for (std::size_t c = 0; c < head_dim; ++c) to[c] = b.dq[i * b.width + c] * b.scale;
  }
}

// One key head of one sequence with the query heads that read it, in order: q, out, dout and dq
// are (T, heads * head_dim), row_max and inverse_sum (heads, T).
void AttentionBackwardGroup(MatrixView<const float> q, MatrixView<const float> k,
                            MatrixView<const float> v, MatrixView<const float> out,
                            const float* row_max, const float* inverse_sum,
                            MatrixView<const float> dout, MatrixView<float> dq,
                            MatrixView<float> dk, MatrixView<float> dv) {
  const GroupBuffers b(k.rows, k.cols);
  Pack(k, 1.0f, b.length, b.keys);
  Pack(v, 1.0f, b.length, b.values);
  std::fill_n(b.dkeys, b.length * b.width, 0.0f);
  std::fill_n(b.dvalues, b.length * b.width, 0.0f);
  for (std::size_t h = 0; h < q.cols / k.cols; ++h) {
    const auto own = [&](auto x) { return x.Block(0, h * k.cols, x.rows, k.cols); };
    const QueryHead head{
        own(q), own(out), own(dout), row_max + h * k.rows, inverse_sum + h * k.rows, own(dq)};
    for (std::size_t first = 0; first < k.rows; first += kBlock) BackwardBlock(head, first, b);
  }
  for (std::size_t r = 0; r < k.rows; ++r) {
    std::copy_n(b.dkeys + r * b.width, k.cols, RowOf(dk, r));
    std::copy_n(b.dvalues + r * b.width, k.cols, RowOf(dv, r));
  }
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

// The rows of sequence b and the columns of part i, if x's columns are cut into `parts`.
template <class T>
MatrixView<T> Part(const AttentionShape& s, MatrixView<T> x, std::size_t b, std::size_t i,
                   std::size_t parts) {
  return x.Block(b * s.sequence, i * (x.cols / parts), s.sequence, x.cols / parts);
}

}  // namespace

void Attention(const AttentionShape& shape, MatrixView<const float> q, MatrixView<const float> k,
               MatrixView<const float> v, MatrixView<float> out, std::span<float> statistics) {
  const AttentionShape& s = shape;
  ExpectShape(s);
  Expects(IsQuery(s, q) && IsKey(s, k) && IsKey(s, v) && IsQuery(s, out) &&
              statistics.size() == s.StatisticsSize(),
          "q, out (B * T, heads * head_dim), k, v (B * T, kv_heads * head_dim)");
  const auto kernel = HWY_DYNAMIC_DISPATCH(AttentionHead);
  float* const row_max = statistics.data();
  float* const inverse_sum = row_max + statistics.size() / 2;
  ParallelFor(s.batch * s.heads, [&](std::size_t i) {
    const std::size_t b = i / s.heads, h = i % s.heads, kv = h / s.QueriesPerKey();
    kernel(Part(s, q, b, h, s.heads), Part(s, k, b, kv, s.kv_heads), Part(s, v, b, kv, s.kv_heads),
           Part(s, out, b, h, s.heads), row_max + i * s.sequence, inverse_sum + i * s.sequence);
  });
}

void AttentionBackward(const AttentionShape& shape, MatrixView<const float> q,
                       MatrixView<const float> k, MatrixView<const float> v,
                       MatrixView<const float> out, std::span<const float> statistics,
                       MatrixView<const float> dout, const AttentionGradients& gradients) {
  const AttentionShape& s = shape;
  const auto& [dq, dk, dv] = gradients;
  ExpectShape(s);
  Expects(IsQuery(s, q) && IsKey(s, k) && IsKey(s, v) && IsQuery(s, out) && IsQuery(s, dout) &&
              IsQuery(s, dq) && IsKey(s, dk) && IsKey(s, dv) &&
              statistics.size() == s.StatisticsSize(),
          "q, out, dq (B * T, heads * head_dim), k, v, dk, dv (B * T, kv_heads * head_dim)");
  const auto kernel = HWY_DYNAMIC_DISPATCH(AttentionBackwardGroup);
  const float* const row_max = statistics.data();
  const float* const inverse_sum = row_max + statistics.size() / 2;
  ParallelFor(s.batch * s.kv_heads, [&, dq = dq, dk = dk, dv = dv](std::size_t i) {
    const std::size_t b = i / s.kv_heads, kv = i % s.kv_heads;
    const std::size_t row = i * s.QueriesPerKey() * s.sequence;
    const auto part = [&](auto x) { return Part(s, x, b, kv, s.kv_heads); };
    kernel(part(q), part(k), part(v), part(out), row_max + row, inverse_sum + row, part(dout),
           part(dq), part(dk), part(dv));
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
