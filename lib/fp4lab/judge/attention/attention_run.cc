// The answers of an attention kernel: tiles of keys, weights, sums, each with its allowed ends.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/attention/attention.h"
#include "fp4lab/judge/products/gemm.h"

namespace fp4lab {
namespace {

constexpr std::size_t kRowsAtOnce = 128;
constexpr double kExpError = 0x1p-19, kLogitError = 0x1p-22, kLeastWeight = 0x1p-126;
constexpr double kNone = -std::numeric_limits<double>::infinity();

// (1 + 2^-23)^n - 1, or more, for n below 2^23.
double SumGrowth(double n) { return n * 0x1p-23 * (1 + n * 0x1p-23); }

// Values of one head, ready to multiply.
struct HeadValues {
  Matrix<double> k, v;  // (keys, D)
  std::vector<double> k_decode;
  double v_decode = 1.0;             // of the head, or
  std::vector<double> v_row_decode;  // of each key
};

HeadValues ValuesOfHead(const AttentionPlan& plan, std::size_t kv) {
  HeadValues h;
  h.k = ValuesOf(plan.k[kv]);
  if (!plan.k[kv].decoded_to_bf16) h.k_decode = plan.k[kv].decode;
  Matrix<double> v = ValuesOf(plan.v[kv]);
  if (plan.scheme.v_along_keys) {
    h.v = Matrix<double>(v.cols, v.rows);
    for (std::size_t r = 0; r < v.rows; ++r) {
      for (std::size_t c = 0; c < v.cols; ++c) h.v(c, r) = v(r, c);
    }
  } else {
    h.v = std::move(v);
  }
  const std::vector<double>& decode = plan.v[kv].decode;
  if (plan.v[kv].decoded_to_bf16 || decode.empty()) return h;
  if (!plan.scheme.v_along_keys && plan.scheme.scale_rows > 0) {
    h.v_row_decode = decode;
  } else {
    h.v_decode = decode[0];
  }
  return h;
}

double RoundedOutput(GemmOutput output, double x, bool truncates) {
  const float y = static_cast<float>(x);
  if (truncates && output == GemmOutput::kBf16 && std::isfinite(y)) {
    return Decode(FormatId::kBF16, Encode(FormatId::kBF16, y, Rounding::kTowardZero));
  }
  return FinishProduct(y, {.output = output});
}

// The sums of one row so far.
struct RowSums {
  AllowedNumber largest{kNone, kNone, kNone};  // m
  AllowedNumber weights{};                     // the sum of p
  std::vector<AllowedNumber> result;           // of P V
  std::vector<double> magnitudes;
  bool nan = false, any = false;
};

AllowedNumber Times(const AllowedNumber& a, const AllowedNumber& positive) {
  return {a.lo * (a.lo < 0 ? positive.hi : positive.lo), a.x * positive.x,
          a.hi * (a.hi < 0 ? positive.lo : positive.hi)};
}

// e^(y - m) and its ends; m is at least y.
AllowedNumber WeightOf(const AllowedNumber& y, const AllowedNumber& m, double top) {
  AllowedNumber p{Exp(y.lo - m.hi) * top * (1 - kExpError), Exp(y.x - m.x) * top,
                  Exp(y.hi - m.lo) * top * (1 + kExpError)};
  if (p.lo < 2 * kLeastWeight) p.lo = 0.0;
  return p;
}

class QueryBlock {
 public:
  QueryBlock(const AttentionPlan& plan, const HeadValues& head, std::size_t h, std::size_t first,
             std::size_t rows)
      : plan_(plan), head_(head), h_(h), first_(first), rows_(rows), sums_(rows) {
    q_ = ValuesOf(plan.q[h]);
    for (RowSums& s : sums_) {
      s.result.resize(q_.cols);
      s.magnitudes.resize(q_.cols);
    }
  }

  void Run() {
    const std::size_t end = plan_.keys + plan_.padded_keys;
    const std::size_t tile =
        plan_.scheme.tile == 0 ? std::max<std::size_t>(end, 1) : plan_.scheme.tile;
    const std::size_t tiles = (end + tile - 1) / tile;
    for (std::size_t t = 0; t < tiles; ++t) {
      const std::size_t from = (plan_.scheme.last_first ? tiles - 1 - t : t) * tile;
      Tile(from, std::min(from + tile, end));
    }
    terms_ = static_cast<double>(end + 2 * tiles);
  }

  // Row r of the answer.
  void Write(std::size_t r, AttentionRange* range) const {
    const std::size_t row = h_ * plan_.in.Queries() + first_ + r;
    for (std::size_t c = 0; c < q_.cols; ++c) {
      const std::size_t at = row * q_.cols + c;
      const AllowedNumber o = Result(sums_[r], c);
      range->exact.values[at] = o.x;
      const auto out = [&](double x) {
        return static_cast<float>(RoundedOutput(plan_.output, x, plan_.truncates_output));
      };
      range->answer.values[at] = out(o.x);
      range->low.values[at] = out(o.lo);
      range->high.values[at] = out(o.hi);
    }
  }

 private:
  // Whether query r of the block sees key j.
  bool Sees(std::size_t r, std::size_t j) const {
    return !plan_.causal || static_cast<std::ptrdiff_t>(j) <=
                                static_cast<std::ptrdiff_t>(first_ + r) + plan_.diagonal;
  }

  AllowedNumber Logit(std::size_t r, std::size_t j) const {
    const std::size_t row = first_ + r, width = q_.cols;
    double sum = 0, magnitude = 0, decode = 1.0;
    if (j < plan_.keys) {
      for (std::size_t c = 0; c < width; ++c) {
        const double p = q_(row, c) * head_.k(j, c);
        sum += p;
        magnitude += std::abs(p);
      }
      const AttentionOperand& q = plan_.q[h_];
      if (!q.decode.empty() && !q.decoded_to_bf16) decode *= q.decode[row];
      if (!head_.k_decode.empty()) decode *= head_.k_decode[j];
    }
    AllowedNumber extra;
    if (!plan_.correction.empty() && j < plan_.keys) {
      const std::size_t group =
          std::min(row / plan_.scheme.q_mean_rows, plan_.correction[h_].rows - 1);
      const double x = plan_.correction[h_](group, j);
      const double error = (std::abs(x) + magnitude * 0x1p-8) * 0x1p-18;
      extra = {x - error, x, x + error};
      if (plan_.scheme.correction_in_bf16) {
        extra = {RoundedTo64(FormatId::kBF16, extra.lo), RoundedTo64(FormatId::kBF16, x),
                 RoundedTo64(FormatId::kBF16, extra.hi)};
      }
    }
    const double error = AnyOrderBound({.terms = width + 1, .magnitudes = magnitude}) * decode +
                         std::abs(extra.x) * 0x1p-22;
    const double x = sum * decode;
    const double f = plan_.scale * plan_.exponent_factor;
    AllowedNumber y{(x + extra.lo - error) * f, (x + extra.x) * f, (x + extra.hi + error) * f};
    if (y.lo > y.hi) std::swap(y.lo, y.hi);
    const double rounding = std::abs(y.x) * kLogitError;
    return {y.lo - rounding, y.x, y.hi + rounding};
  }

  void Tile(std::size_t from, std::size_t end) {
    const std::size_t n = end - from;
    Matrix<AllowedNumber> p(rows_, n);
    std::vector<bool> alive(rows_, false);
    for (std::size_t r = 0; r < rows_; ++r) alive[r] = Weights(r, from, end, &p(r, 0));
    Round(p, alive);
    for (std::size_t r = 0; r < rows_; ++r) {
      if (alive[r]) Accumulate(r, from, &p(r, 0), n);
    }
  }

  // The weights of a row's tile, the largest logit and the sum of the weights. Returns whether the
  // row has a visible key in the tile.
  bool Weights(std::size_t r, std::size_t from, std::size_t end, AllowedNumber* p) {
    RowSums& s = sums_[r];
    std::vector<AllowedNumber> y(end - from, {kNone, kNone, kNone});
    AllowedNumber m = s.largest;
    std::size_t largest = y.size();  // the key of m, if it is certain and of this tile
    bool any = false;
    for (std::size_t j = from; j < end; ++j) {
      if (!Sees(r, j)) continue;
      any = true;
      const AllowedNumber logit = Logit(r, j);
      y[j - from] = logit;
      if (!(logit.x < std::numeric_limits<double>::infinity())) s.nan = true;
      if (logit.lo > m.hi) {
        largest = j - from;
      } else if (logit.hi >= m.lo) {
        largest = y.size();
      }
      m = {std::max(m.lo, logit.lo), std::max(m.x, logit.x), std::max(m.hi, logit.hi)};
    }
    if (!any) return false;
    if (s.nan) m = {0, 0, 0};
    if (m.x == kNone) m = {0, 0, 0};  // all logits are -infinity
    if (!plan_.subtracts_max) m = {0, 0, 0}, largest = y.size();
    if (s.nan) largest = y.size();
    Rescale(s, m);
    // The weight of m: exp(0) is 1, and 2^(log2 top) is not exactly top.
    const double t = plan_.scheme.p.top, error = t == 1.0 ? 0.0 : t * kExpError;
    const AllowedNumber top{t - error, t, t + error};
    s.any = true;
    s.largest = m;
    AllowedNumber sum;
    for (std::size_t j = 0; j < y.size(); ++j) {
      p[j] = y[j].x == kNone ? AllowedNumber{} : WeightOf(y[j], m, plan_.scheme.p.top);
      if (plan_.subtracts_max) p[j].hi = std::min(p[j].hi, top.hi);
      if (!(p[j].x <= 0x1.fffffep127)) s.nan = true;  // infinity times V, over infinity
    }
    if (largest < y.size()) p[largest] = top;
    for (std::size_t j = 0; j < y.size(); ++j) {
      sum = {sum.lo + p[j].lo, sum.x + p[j].x, sum.hi + p[j].hi};
    }
    if (!plan_.sums_rounded_weights) AddWeights(s, sum);
    return !s.nan;
  }

  static void AddWeights(RowSums& s, const AllowedNumber& sum) {
    s.weights = {s.weights.lo + sum.lo, s.weights.x + sum.x, s.weights.hi + sum.hi};
  }

  // Sums so far under the new largest logit.
  void Rescale(RowSums& s, const AllowedNumber& m) const {
    if (!s.any || !plan_.subtracts_max) return;
    // Both ends of m hold the same number of the kernel; what it rounds is within kExpError.
    const double slack = (m.hi - m.lo) + (s.largest.hi - s.largest.lo);
    const double x = Exp(s.largest.x - m.x);
    const AllowedNumber factor{x * Exp(-slack) * (1 - kExpError), x,
                               x * Exp(slack) * (1 + kExpError)};
    if (plan_.rescales_sum) s.weights = Times(s.weights, factor);
    if (!plan_.rescales) return;
    for (std::size_t c = 0; c < s.result.size(); ++c) {
      s.result[c] = Stored(Times(s.result[c], factor));
      s.magnitudes[c] *= factor.hi;
    }
  }

  void Round(Matrix<AllowedNumber>& p, const std::vector<bool>& alive) const {
    if (!plan_.rounds_weights) return;
    if (plan_.scheme.any_tile && plan_.scheme.p.group == 0) {
      for (std::size_t r = 0; r < rows_; ++r) {
        if (alive[r]) SpreadWeights(plan_.scheme.p, {&p(r, 0), p.cols});
      }
      return;
    }
    if (!plan_.weights_along_queries) {
      for (std::size_t r = 0; r < rows_; ++r) {
        if (alive[r]) RoundWeights(plan_.scheme.p, {&p(r, 0), p.cols});
      }
      return;
    }
    for (std::size_t c = 0; c < p.cols; ++c) {
      std::vector<AllowedNumber> column;
      for (std::size_t r = 0; r < rows_; ++r)
        column.push_back(alive[r] ? p(r, c) : AllowedNumber{});
      RoundWeights(plan_.scheme.p, column);
      for (std::size_t r = 0; r < rows_; ++r) p(r, c) = column[r];
    }
  }

  AllowedNumber Stored(const AllowedNumber& x) const {
    if (plan_.sums == WeightedSums::kFp32) return x;
    const FormatId format = plan_.sums == WeightedSums::kBf16 ? FormatId::kBF16 : FormatId::kFP16;
    return {RoundedTo64(format, x.lo), RoundedTo64(format, x.x), RoundedTo64(format, x.hi)};
  }

  void Accumulate(std::size_t r, std::size_t from, const AllowedNumber* p, std::size_t n) {
    RowSums& s = sums_[r];
    AllowedNumber sum;
    for (std::size_t j = 0; j < n; ++j) {
      sum = {sum.lo + p[j].lo, sum.x + p[j].x, sum.hi + p[j].hi};
    }
    if (plan_.sums_rounded_weights) AddWeights(s, sum);
    for (std::size_t j = 0; j < n; ++j) {
      if (from + j >= plan_.keys || !Sees(r, from + j)) continue;
      const double decode = head_.v_row_decode.empty() ? 1.0 : head_.v_row_decode[from + j];
      for (std::size_t c = 0; c < s.result.size(); ++c) {
        const double v = head_.v(from + j, c) * decode;
        AllowedNumber& o = s.result[c];
        o = Stored({o.lo + (v < 0 ? p[j].hi : p[j].lo) * v, o.x + p[j].x * v,
                    o.hi + (v < 0 ? p[j].lo : p[j].hi) * v});
        s.magnitudes[c] += p[j].hi * std::abs(v);
      }
    }
  }

  AllowedNumber Result(const RowSums& s, std::size_t c) const {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    if (s.nan) return {nan, nan, nan};
    if (!s.any || s.weights.x == 0.0) {
      return plan_.empty_row_is_nan ? AllowedNumber{nan, nan, nan} : AllowedNumber{};
    }
    AllowedNumber o = s.result[c];
    if (!std::isfinite(o.x)) return {o.x, o.x, o.x};
    const double error = SumGrowth(terms_) * s.magnitudes[c] + terms_ * 0x1p-126;
    o.lo -= error;
    o.hi += error;
    if (plan_.normalizes) {
      const double growth = SumGrowth(terms_);
      const AllowedNumber l{s.weights.lo * (1 - growth), s.weights.x, s.weights.hi * (1 + growth)};
      o = {o.lo / (o.lo < 0 ? l.lo : l.hi), o.x / l.x, o.hi / (o.hi < 0 ? l.hi : l.lo)};
    }
    const double f = plan_.result_factor * head_.v_decode;
    o = {o.lo * f, o.x * f, o.hi * f};
    if (o.lo > o.hi) std::swap(o.lo, o.hi);
    const double rounding = std::max(std::abs(o.lo), std::abs(o.hi)) * kLogitError;
    return {o.lo - rounding, o.x, o.hi + rounding};
  }

  const AttentionPlan& plan_;
  const HeadValues& head_;
  const std::size_t h_, first_, rows_;
  double terms_ = 0;
  Matrix<double> q_;
  std::vector<RowSums> sums_;
};

}  // namespace

AttentionRange EvaluateAttention(const AttentionPlan& plan) {
  const IeeeArithmetic ieee;
  const std::size_t queries = plan.in.Queries(), width = plan.in.q.cols;
  const std::size_t rows = plan.in.heads * queries;
  AttentionRange range{.answer = Matrix<float>(rows, width),
                       .low = Matrix<float>(rows, width),
                       .high = Matrix<float>(rows, width),
                       .exact = Matrix<double>(rows, width)};
  std::vector<HeadValues> heads;
  for (std::size_t kv = 0; kv < plan.k.size(); ++kv) heads.push_back(ValuesOfHead(plan, kv));
  const std::size_t blocks = (queries + kRowsAtOnce - 1) / kRowsAtOnce;
  ParallelFor(plan.in.heads * blocks, [&](std::size_t i) {
    const std::size_t h = i / blocks, first = i % blocks * kRowsAtOnce;
    const std::size_t count = std::min(kRowsAtOnce, queries - first);
    QueryBlock block(plan, heads[plan.kv_of[h]], h, first, count);
    block.Run();
    for (std::size_t r = 0; r < count; ++r) block.Write(r, &range);
  });
  return range;
}

bool AllAllowed(const AttentionRange& range, MatrixView<const float> o) {
  const IeeeArithmetic ieee;
  for (std::size_t r = 0; r < o.rows; ++r) {
    for (std::size_t c = 0; c < o.cols; ++c) {
      if (!range.Allows(r * o.cols + c, o(r, c))) return false;
    }
  }
  return true;
}

AttentionJudgement JudgeAttention(const AttentionRange& range, std::size_t heads,
                                  MatrixView<const float> o) {
  const IeeeArithmetic ieee;
  Expects(o.rows == range.answer.rows && o.cols == range.answer.cols, "o (heads * queries, D)");
  AttentionJudgement j;
  const std::size_t queries = o.rows / heads;
  std::size_t top = queries, bottom = 0, left = o.cols, right = 0;
  for (std::size_t r = 0; r < o.rows; ++r) {
    for (std::size_t c = 0; c < o.cols; ++c) {
      const std::size_t at = r * o.cols + c;
      const float got = o(r, c), want = range.answer.values[at];
      const bool same = got == want || (got != got && want != want);
      if (same) continue;
      const bool inside = range.Allows(at, got);
      if ((j.different == 0 && j.outside == 0) || (!inside && j.outside == 0)) {
        j.first = {r / queries,           r % queries,           c, got, want, range.low.values[at],
                   range.high.values[at], range.exact.values[at]};
      }
      ++j.different;
      const double width = double{range.high.values[at]} - double{range.low.values[at]};
      if (inside) {
        const double distance = std::abs(got - range.exact.values[at]);
        if (width > 0) j.largest_distance = std::max(j.largest_distance, distance / width);
        continue;
      }
      ++j.outside;
      if (j.heads.empty() || j.heads.back() != r / queries) j.heads.push_back(r / queries);
      top = std::min(top, r % queries);
      bottom = std::max(bottom, r % queries + 1);
      left = std::min(left, c);
      right = std::max(right, c + 1);
    }
  }
  if (j.outside > 0) j.outside_in = {top, left, bottom - top, right - left};
  return j;
}

}  // namespace fp4lab
