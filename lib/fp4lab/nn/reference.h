// Scalar definitions of every operation of nn, forward and backward, for float or double.
//
// The definitions use plain loops and libm. Tests hold the float kernels to the double versions
// within rounding, and the backward passes to differences of the forward passes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/nn/attention/attention.h"
#include "fp4lab/nn/optimizer/muon.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/nn/rmsnorm.h"

namespace fp4lab::reference {

template <class T>
void RmsNorm(MatrixView<const T> x, std::span<const T> gain, T epsilon, MatrixView<T> y,
             std::span<T> inverse_rms) {
  for (std::size_t i = 0; i < x.rows; ++i) {
    T squares = 0;
    for (std::size_t c = 0; c < x.cols; ++c) squares += x(i, c) * x(i, c);
    const T r = T{1} / std::sqrt(squares / static_cast<T>(x.cols) + epsilon);
    for (std::size_t c = 0; c < x.cols; ++c) y(i, c) = x(i, c) * r * gain[c];
    inverse_rms[i] = r;
  }
}

template <class T>
void RmsNormBackward(MatrixView<const T> x, std::span<const T> gain, std::span<const T> inverse_rms,
                     MatrixView<const T> dy, Write write, MatrixView<T> dx, std::span<T> dgain) {
  for (std::size_t i = 0; i < x.rows; ++i) {
    const T r = inverse_rms[i];
    T dot = 0;
    for (std::size_t c = 0; c < x.cols; ++c) dot += dy(i, c) * gain[c] * x(i, c) * r;
    const T mean = dot / static_cast<T>(x.cols);
    for (std::size_t c = 0; c < x.cols; ++c) {
      const T n = x(i, c) * r;
      const T g = dy(i, c);
      dgain[c] += g * n;
      const T d = r * (g * gain[c] - n * mean);
      dx(i, c) = write == Write::kAccumulate ? dx(i, c) + d : d;
    }
  }
}

// cos, sin (T, head_dim / 2); x (B * T, heads * head_dim). `sign` is +1 forward, -1 backward.
template <class T>
void Rope(MatrixView<const T> cos, MatrixView<const T> sin, T sign, MatrixView<T> x) {
  const std::size_t half = cos.cols;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t head = 0; head < x.cols; head += 2 * half) {
      for (std::size_t i = 0; i < half; ++i) {
        const T c = cos(r % cos.rows, i), s = sign * sin(r % cos.rows, i);
        const T a = x(r, head + i), b = x(r, head + half + i);
        x(r, head + i) = a * c - b * s;
        x(r, head + half + i) = b * c + a * s;
      }
    }
  }
}

template <class T>
T Dot(MatrixView<const T> a, std::size_t a_row, MatrixView<const T> b, std::size_t b_row) {
  T sum = 0;
  for (std::size_t c = 0; c < a.cols; ++c) sum += a(a_row, c) * b(b_row, c);
  return sum;
}

// The first key that query i sees.
inline std::size_t FirstKey(std::size_t window, std::size_t i) {
  return window == 0 || i < window ? 0 : i + 1 - window;
}

template <class T>
T ScaleOf(const AttentionShape& s) {
  return s.scale != 0.0f ? static_cast<T>(s.scale) : T{1} / std::sqrt(static_cast<T>(s.head_dim));
}

// One head of one sequence: q, k (T, head_dim), v, out (T, value_dim).
template <class T>
void AttentionHead(MatrixView<const T> q, MatrixView<const T> k, MatrixView<const T> v,
                   MatrixView<T> out, std::size_t window, T scale, std::span<T> row_max,
                   std::span<T> inverse_sum) {
  std::vector<T> p(q.rows);
  for (std::size_t i = 0; i < q.rows; ++i) {
    const std::size_t first = FirstKey(window, i);
    for (std::size_t j = first; j <= i; ++j) p[j] = scale * Dot(q, i, k, j);
    const T m = *std::max_element(p.begin() + static_cast<std::ptrdiff_t>(first),
                                  p.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    T sum = 0;
    for (std::size_t j = first; j <= i; ++j) sum += p[j] = std::exp(p[j] - m);
    for (std::size_t c = 0; c < v.cols; ++c) {
      T o = 0;
      for (std::size_t j = first; j <= i; ++j) o += p[j] * v(j, c);
      out(i, c) = o / sum;
    }
    row_max[i] = m;
    inverse_sum[i] = T{1} / sum;
  }
}

// Adds to dq, dk and dv.
template <class T>
void AttentionHeadBackward(MatrixView<const T> q, MatrixView<const T> k, MatrixView<const T> v,
                           MatrixView<const T> out, std::size_t window, T scale,
                           std::span<const T> row_max, std::span<const T> inverse_sum,
                           MatrixView<const T> dout, MatrixView<T> dq, MatrixView<T> dk,
                           MatrixView<T> dv) {
  for (std::size_t i = 0; i < q.rows; ++i) {
    const std::size_t first = FirstKey(window, i);
    const T d = Dot(dout, i, out, i);
    for (std::size_t j = first; j <= i; ++j) {
      const T p = std::exp(scale * Dot(q, i, k, j) - row_max[i]) * inverse_sum[i];
      const T ds = p * (Dot(dout, i, v, j) - d) * scale;
      for (std::size_t c = 0; c < q.cols; ++c) {
        dq(i, c) += ds * k(j, c);
        dk(j, c) += ds * q(i, c);
      }
      for (std::size_t c = 0; c < v.cols; ++c) dv(j, c) += p * dout(i, c);
    }
  }
}

// Rows of sequence b and columns of head h of a (B * T, heads * head_dim) matrix.
template <class T>
MatrixView<T> HeadView(const AttentionShape& s, MatrixView<T> x, std::size_t b, std::size_t h) {
  return x.Block(b * s.sequence, h * s.head_dim, s.sequence, s.head_dim);
}
// The same of a (B * T, heads * value_dim) matrix.
template <class T>
MatrixView<T> ValueView(const AttentionShape& s, MatrixView<T> x, std::size_t b, std::size_t h) {
  return x.Block(b * s.sequence, h * s.ValueDim(), s.sequence, s.ValueDim());
}

template <class T>
void Attention(const AttentionShape& s, MatrixView<const T> q, MatrixView<const T> k,
               MatrixView<const T> v, MatrixView<T> out, std::span<T> statistics) {
  const std::size_t plane = s.heads * s.sequence;
  for (std::size_t b = 0; b < s.batch; ++b) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      const std::size_t row = 2 * b * plane + h * s.sequence, kv = h / s.QueriesPerKey();
      AttentionHead<T>(HeadView(s, q, b, h), HeadView(s, k, b, kv), ValueView(s, v, b, kv),
                       ValueView(s, out, b, h), s.window, ScaleOf<T>(s),
                       statistics.subspan(row, s.sequence),
                       statistics.subspan(plane + row, s.sequence));
    }
  }
}

template <class T>
void Zero(MatrixView<T> x) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) x(r, c) = T{0};
  }
}

template <class T>
void AttentionBackward(const AttentionShape& s, MatrixView<const T> q, MatrixView<const T> k,
                       MatrixView<const T> v, MatrixView<const T> out,
                       std::span<const T> statistics, MatrixView<const T> dout, MatrixView<T> dq,
                       MatrixView<T> dk, MatrixView<T> dv) {
  for (MatrixView<T> d : {dq, dk, dv}) Zero(d);
  const std::size_t plane = s.heads * s.sequence;
  for (std::size_t b = 0; b < s.batch; ++b) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      const std::size_t row = 2 * b * plane + h * s.sequence, kv = h / s.QueriesPerKey();
      AttentionHeadBackward<T>(
          HeadView(s, q, b, h), HeadView(s, k, b, kv), ValueView(s, v, b, kv),
          ValueView(s, out, b, h), s.window, ScaleOf<T>(s), statistics.subspan(row, s.sequence),
          statistics.subspan(plane + row, s.sequence), ValueView(s, dout, b, h),
          HeadView(s, dq, b, h), HeadView(s, dk, b, kv), ValueView(s, dv, b, kv));
    }
  }
}

template <class T>
T SquaredRelu(T x) {
  const T r = x < 0 ? T{0} : x;
  return r * r;
}
template <class T>
T SquaredReluBackward(T x, T dy) {
  return dy * (2 * (x < 0 ? T{0} : x));
}

template <class T>
T Sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

// sqrt(2 / pi) and the cubic coefficient of the tanh form (Hendrycks & Gimpel 2016).
inline constexpr double kGeluScale = 0.79788456080286535588, kGeluCubic = 0.044715;

template <class T>
T Gelu(T x) {
  const T u = static_cast<T>(kGeluScale) * (x + static_cast<T>(kGeluCubic) * x * x * x);
  return T{0.5} * x * (1 + std::tanh(u));
}
template <class T>
T GeluBackward(T x, T dy) {
  const T scale = static_cast<T>(kGeluScale), cubic = static_cast<T>(kGeluCubic);
  const T t = std::tanh(scale * (x + cubic * x * x * x));
  return dy * T{0.5} * ((1 + t) + x * (1 - t * t) * scale * (1 + 3 * cubic * x * x));
}

template <class T>
T Swiglu(T gate, T up) {
  return gate * Sigmoid(gate) * up;
}
template <class T>
struct SwigluGradient {
  T gate, up;
};
template <class T>
SwigluGradient<T> SwigluBackward(T gate, T up, T dy) {
  const T s = Sigmoid(gate);
  return {dy * up * s * (1 + gate * (1 - s)), dy * gate * s};
}

template <class T>
void Embedding(MatrixView<const T> table, std::span<const std::uint16_t> tokens, MatrixView<T> y) {
  for (std::size_t r = 0; r < y.rows; ++r) {
    for (std::size_t c = 0; c < y.cols; ++c) y(r, c) = table(tokens[r], c);
  }
}
template <class T>
void EmbeddingBackward(std::span<const std::uint16_t> tokens, MatrixView<const T> dy,
                       MatrixView<T> dtable) {
  for (std::size_t r = 0; r < dy.rows; ++r) {
    for (std::size_t c = 0; c < dy.cols; ++c) dtable(tokens[r], c) += dy(r, c);
  }
}

// Returns the mean loss; dlogits.data may be null.
template <class T>
double CrossEntropy(MatrixView<const T> logits, std::span<const std::uint16_t> targets, T scale,
                    std::span<double> row_loss, MatrixView<T> dlogits) {
  double total = 0;
  for (std::size_t r = 0; r < logits.rows; ++r) {
    T m = logits(r, 0);
    for (std::size_t c = 1; c < logits.cols; ++c) m = std::max(m, logits(r, c));
    T sum = 0;
    for (std::size_t c = 0; c < logits.cols; ++c) sum += std::exp(logits(r, c) - m);
    row_loss[r] = std::log(static_cast<double>(sum)) -
                  (static_cast<double>(logits(r, targets[r])) - static_cast<double>(m));
    total += row_loss[r];
    if (dlogits.data == nullptr) continue;
    for (std::size_t c = 0; c < logits.cols; ++c) {
      const T p = std::exp(logits(r, c) - m) / sum;
      dlogits(r, c) = scale * (p - (c == targets[r] ? T{1} : T{0}));
    }
  }
  return total / static_cast<double>(logits.rows);
}

template <class T>
void AdamWStep(const AdamW& o, std::span<const T> gradient, std::span<T> weight, std::span<T> m,
               std::span<T> v) {
  const T b1 = o.beta1, b2 = o.beta2;
  const T c1 = static_cast<T>(1 / (1 - std::pow(double{o.beta1}, static_cast<double>(o.step))));
  const T c2 = static_cast<T>(1 / (1 - std::pow(double{o.beta2}, static_cast<double>(o.step))));
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const T g = gradient[i] * T{o.gradient_scale};
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * (g * g);
    const T u = (c1 * m[i]) / (std::sqrt(c2 * v[i]) + T{o.epsilon});
    weight[i] = weight[i] - T{o.learning_rate} * (u + T{o.weight_decay} * weight[i]);
  }
}

// Newton-Schulz without BF16 (nn/optimizer/muon.h), x (rows, cols) in place: x x^T x is the same on
// either side, so a tall matrix needs no turn here.
template <class T>
void NewtonSchulz(int steps, MatrixView<T> x) {
  T squares = 0;
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.cols; ++j) squares += x(i, j) * x(i, j);
  }
  const T divisor = std::sqrt(squares) + T{kNewtonSchulzEpsilon};
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.cols; ++j) x(i, j) /= divisor;
  }
  const auto times_square = [&](const Matrix<T>& y) {  // y x^T x
    Matrix<T> z(x.rows, x.rows), result(x.rows, x.cols);
    for (std::size_t i = 0; i < x.rows; ++i) {
      for (std::size_t j = 0; j < x.rows; ++j) {
        for (std::size_t k = 0; k < x.cols; ++k) z(i, j) += y(i, k) * x(j, k);
      }
      for (std::size_t j = 0; j < x.rows; ++j) {
        for (std::size_t k = 0; k < x.cols; ++k) result(i, k) += z(i, j) * x(j, k);
      }
    }
    return result;
  };
  for (int step = 0; step < steps; ++step) {
    Matrix<T> one(x.rows, x.cols);
    for (std::size_t i = 0; i < x.rows; ++i) {
      for (std::size_t j = 0; j < x.cols; ++j) one(i, j) = x(i, j);
    }
    const Matrix<T> three = times_square(one), five = times_square(three);
    for (std::size_t i = 0; i < x.rows; ++i) {
      for (std::size_t j = 0; j < x.cols; ++j) {
        x(i, j) = T{kNewtonSchulzA} * one(i, j) + T{kNewtonSchulzB} * three(i, j) +
                  T{kNewtonSchulzC} * five(i, j);
      }
    }
  }
}

template <class T>
void MuonStep(const Muon& o, MatrixView<const T> gradient, MatrixView<T> weight, MatrixView<T> m) {
  const T old = o.momentum;
  Matrix<T> u(weight.rows, weight.cols);
  for (std::size_t i = 0; i < weight.rows; ++i) {
    for (std::size_t j = 0; j < weight.cols; ++j) {
      const T g = gradient(i, j) * T{o.gradient_scale};
      m(i, j) = old * m(i, j) + (1 - old) * g;
      u(i, j) = o.nesterov ? old * m(i, j) + (1 - old) * g : m(i, j);
    }
  }
  NewtonSchulz<T>(o.steps, u.View());
  for (std::size_t i = 0; i < weight.rows; ++i) {
    for (std::size_t j = 0; j < weight.cols; ++j) {
      weight(i, j) -=
          T{o.learning_rate} * (T{o.scale} * u(i, j) + T{o.weight_decay} * weight(i, j));
    }
  }
}

}  // namespace fp4lab::reference
