#include "fp4lab/nn/attention/attention.h"

#include <cmath>
#include <cstddef>

#include "fp4lab/nn/reference.h"
#include "tests/nn/support.h"

namespace fp4lab {
namespace {

// q, k and v are column slices of one matrix, as a fused projection gives them.
struct Inputs {
  AttentionShape shape;
  Floats qkv, dout;

  explicit Inputs(const AttentionShape& s)
      : shape(s),
        qkv(RandomFloats(
            s.Rows() * ((s.heads + s.kv_heads) * s.head_dim + s.kv_heads * s.ValueDim()), 1)),
        dout(RandomFloats(s.Rows() * s.heads * s.ValueDim(), 2)) {}
};

template <class T>
struct Slices {
  MatrixView<T> q, k, v;

  Slices(const AttentionShape& s, MatrixView<T> x)
      : q(x.Block(0, 0, x.rows, s.heads * s.head_dim)),
        k(x.Block(0, q.cols, x.rows, s.kv_heads * s.head_dim)),
        v(x.Block(0, q.cols + k.cols, x.rows, s.kv_heads * s.ValueDim())) {}
};

struct Outputs {
  Floats out, statistics, dqkv;

  Floats All() const {
    Floats all = out;
    Append(all, statistics);
    Append(all, dqkv);
    return all;
  }
};

Outputs Run(const Inputs& in) {
  const AttentionShape& s = in.shape;
  const std::size_t rows = s.Rows();
  Outputs o{Floats(in.dout.size(), kNaN), Floats(s.StatisticsSize(), kNaN),
            Floats(in.qkv.size(), kNaN)};
  const Slices<const float> x(s, AsMatrix(in.qkv, rows));
  const Slices<float> d(s, AsMatrix(o.dqkv, rows));
  Attention(s, x.q, x.k, x.v, AsMatrix(o.out, rows), o.statistics);
  AttentionBackward(s, x.q, x.k, x.v, AsMatrix(o.out, rows), o.statistics, AsMatrix(in.dout, rows),
                    {d.q, d.k, d.v});
  return o;
}

struct ExactOutputs {
  Doubles out, statistics, dqkv;
};

ExactOutputs RunReference(const Inputs& in) {
  const AttentionShape& s = in.shape;
  const std::size_t rows = s.Rows();
  ExactOutputs o{Doubles(in.dout.size()), Doubles(s.StatisticsSize()), Doubles(in.qkv.size())};
  const Doubles qkv = ToDouble(in.qkv), dout = ToDouble(in.dout);
  const Slices<const double> x(s, AsMatrix(qkv, rows));
  const Slices<double> d(s, AsMatrix(o.dqkv, rows));
  reference::Attention<double>(s, x.q, x.k, x.v, AsMatrix(o.out, rows), o.statistics);
  reference::AttentionBackward<double>(s, x.q, x.k, x.v, AsMatrix(o.out, rows), o.statistics,
                                       AsMatrix(dout, rows), d.q, d.k, d.v);
  return o;
}

AttentionShape SmallShapes() {
  return GENERATE(AttentionShape{1, 1, 1, 1, 16}, AttentionShape{2, 16, 2, 2, 16},
                  AttentionShape{2, 17, 4, 2, 16}, AttentionShape{1, 50, 2, 1, 24},
                  AttentionShape{1, 33, 6, 2, 8}, AttentionShape{3, 7, 1, 1, 5},
                  AttentionShape{1, 70, 1, 1, 64}, AttentionShape{2, 50, 4, 2, 24, 7},
                  AttentionShape{1, 70, 2, 1, 16, 33}, AttentionShape{1, 41, 1, 1, 16, 1},
                  AttentionShape{2, 50, 2, 2, 24, 0, 16}, AttentionShape{1, 33, 4, 2, 8, 9, 40},
                  AttentionShape{1, 40, 2, 2, 48, 0, 20, 0.03f});
}

TEST_CASE("Attention gives the same bits on every SIMD target and thread count", "[nn]") {
  const Inputs in(SmallShapes());
  const Floats all = SameEverywhere([&] { return Run(in).All(); });
  CHECK(AllFinite(all));  // everything was written
}

// A score of magnitude up to about 5 sqrt(head_dim) has a rounding error of 2^-24 of itself, which
// becomes a relative error of p = exp(s); the sums add at most one rounding a term, and these
// mostly average out.
TEST_CASE("Attention agrees with the double reference within binary32 rounding", "[nn]") {
  const Inputs in(GENERATE(AttentionShape{2, 17, 4, 2, 16}, AttentionShape{1, 128, 2, 2, 16},
                           AttentionShape{1, 50, 2, 1, 24}, AttentionShape{1, 200, 1, 1, 64},
                           AttentionShape{2, 50, 4, 2, 24, 7}, AttentionShape{1, 70, 2, 1, 16, 33},
                           AttentionShape{1, 33, 1, 1, 16, 1}, AttentionShape{1, 96, 1, 1, 16, 16},
                           AttentionShape{2, 50, 2, 2, 24, 0, 16},
                           AttentionShape{1, 33, 4, 2, 8, 9, 40},
                           AttentionShape{1, 70, 2, 2, 48, 0, 20, 0.03f}));
  const Outputs got = Run(in);
  const ExactOutputs exact = RunReference(in);
  CheckClose(got.out, exact.out, 16);
  CheckClose(got.statistics, exact.statistics, 16);
  CheckClose(got.dqkv, exact.dqkv, 32);
}

TEST_CASE("Attention of equal keys is the mean of the values seen so far", "[nn]") {
  const AttentionShape s{1, 20, 1, 1, 4};
  Inputs in(s);
  const Slices<float> x(s, AsMatrix(in.qkv, s.sequence));
  for (std::size_t t = 0; t < s.sequence; ++t) {
    for (std::size_t c = 0; c < s.head_dim; ++c) {
      x.k(t, c) = 1.0f;
      x.v(t, c) = static_cast<float>(t);
    }
  }
  const Outputs got = Run(in);
  for (std::size_t t = 0; t < s.sequence; ++t) {
    CHECK(got.out[t * s.head_dim] == Catch::Approx(static_cast<double>(t) / 2).margin(1e-6));
  }
}

TEST_CASE("A window as long as the sequence changes no bit, a shorter one does", "[nn]") {
  AttentionShape shape{2, 50, 2, 1, 16};
  const Floats all = Run(Inputs(shape)).All();
  for (const std::size_t window : {50u, 51u, 1000u}) {
    shape.window = window;
    CHECK(Run(Inputs(shape)).All() == all);
  }
  shape.window = 49;
  CHECK(Run(Inputs(shape)).All() != all);
}

TEST_CASE("A scale multiplies the scores, and the usual one changes no bit", "[nn]") {
  AttentionShape shape{2, 50, 2, 1, 16};
  const Outputs usual = Run(Inputs(shape));
  shape.scale = 0.25f;  // 1 / sqrt(16)
  CHECK(Run(Inputs(shape)).All() == usual.All());
  shape.scale = 0.125f;
  Inputs halved(shape);
  const Outputs with_scale = Run(halved);
  CHECK(with_scale.out != usual.out);
  const Slices<float> x(shape, AsMatrix(halved.qkv, shape.Rows()));
  for (std::size_t r = 0; r < x.q.rows; ++r) {
    for (std::size_t c = 0; c < x.q.cols; ++c) x.q(r, c) *= 0.5f;
  }
  halved.shape.scale = 0.0f;
  CHECK(Run(halved).out == with_scale.out);
}

TEST_CASE("Values padded with zeros to the keys' width give the same results", "[nn]") {
  const AttentionShape narrow{2, 50, 2, 2, 24, 0, 16}, wide{2, 50, 2, 2, 24};
  const Inputs in(narrow);
  Inputs padded(wide);
  const Slices<const float> from(narrow, AsMatrix(in.qkv, narrow.Rows()));
  const Slices<float> to(wide, AsMatrix(padded.qkv, wide.Rows()));
  for (std::size_t r = 0; r < narrow.Rows(); ++r) {
    for (std::size_t c = 0; c < from.q.cols; ++c) {
      to.q(r, c) = from.q(r, c);
      to.k(r, c) = from.k(r, c);
      to.v(r, c) = c % 24 < 16 ? from.v(r, c / 24 * 16 + c % 24) : 0.0f;
    }
  }
  const Floats got = Run(in).out, expected = Run(padded).out;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(expected[i] == (i % 24 < 16 ? got[i / 24 * 16 + i % 24] : 0.0f));
  }
}

TEST_CASE("A window of one key copies the values", "[nn]") {
  const AttentionShape shape{1, 40, 2, 2, 16, 1};
  const Inputs in(shape);
  const Outputs o = Run(in);
  for (std::size_t i = 0; i < 40; ++i) {
    for (std::size_t c = 0; c < 32; ++c) REQUIRE(o.out[i * 32 + c] == in.qkv[i * 96 + 64 + c]);
  }
}

TEST_CASE("A key before the window does not reach a query", "[nn]") {
  const AttentionShape shape{1, 60, 1, 1, 16, 5};
  Inputs in(shape);
  const Outputs before = Run(in);
  in.qkv[3 * 48 + 16] = 7.0f;  // the key at position 3
  const Outputs after = Run(in);
  for (std::size_t i = 0; i < 60; ++i) {
    const bool same = std::equal(&before.out[i * 16], &before.out[i * 16] + 16, &after.out[i * 16]);
    CHECK(same == (i < 3 || i > 7));  // queries 3 to 7 see the key at 3
  }
}

TEST_CASE("Scores far beyond the exponential's range do not overflow", "[nn]") {
  Inputs in(AttentionShape{1, 19, 1, 1, 16});
  for (float& v : in.qkv) v *= 100;
  const Outputs got = Run(in);
  CHECK(AllFinite(got.All()));
  CheckClose(got.out, RunReference(in).out, 20'000);  // scores of 1e4 round by 1e4 * 2^-24
}

TEST_CASE("A later position does not change an earlier one", "[nn]") {
  const AttentionShape s{1, 40, 2, 1, 16};
  Inputs in(s);
  const Outputs before = Run(in);
  const std::size_t width = in.qkv.size() / s.sequence;
  for (std::size_t i = 21 * width; i < in.qkv.size(); ++i) in.qkv[i] *= -2;
  const Outputs after = Run(in);
  const auto first = static_cast<std::ptrdiff_t>(21 * s.heads * s.head_dim);
  CHECK(std::equal(before.out.begin(), before.out.begin() + first, after.out.begin()));
  CHECK(before.out.back() != after.out.back());
}

TEST_CASE("NaN in a query or a key makes the rows that read it NaN, and ends", "[nn]") {
  const AttentionShape s{1, 40, 1, 1, 16};
  const std::size_t width = 3 * s.head_dim, row = 20;
  Inputs in(s);
  const std::size_t column = GENERATE(3u, 19u, 35u);  // of q, of k, of v
  in.qkv[row * width + column] = kNaN;
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    const Outputs got = Run(in);
    CAPTURE(target, column);
    const std::span<const float> out = got.out;
    CHECK(AllFinite(out.first(16 * s.head_dim)));  // tiles before the NaN's
    if (column == 3) CHECK(AllNaN(out.subspan(row * s.head_dim, s.head_dim)));
    if (column == 19) CHECK(AllNaN(out.subspan(row * s.head_dim)));
    if (column == 35) CHECK(std::isnan(out[39 * s.head_dim + 3]));
    CHECK(!AllFinite(got.dqkv));
  }
  PinSimdTarget("best");
}

TEST_CASE("Attention refuses shapes that do not fit", "[nn]") {
  const AttentionShape s{1, 4, 3, 2, 4};  // 2 does not divide 3
  const Inputs in(AttentionShape{1, 4, 3, 3, 4});
  Floats out(in.dout.size()), statistics(s.StatisticsSize());
  const Slices<const float> x(in.shape, AsMatrix(in.qkv, 4));
  CHECK_THROWS_AS(Attention(s, x.q, x.k, x.v, AsMatrix(out, 4), statistics), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
