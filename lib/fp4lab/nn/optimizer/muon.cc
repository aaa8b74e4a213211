#include "fp4lab/nn/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/nn/lanes/row_chunks.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {
namespace {

using Writable = MatrixView<float>;

// Calls each(element of x, elements of others at its place...), rows in parallel. A compiler makes
// vectors of a loop only where it knows the stride.
template <class Function, class... Others>
void ForEach(Writable x, Function each, Others... others) {
  const bool dense = x.col_stride == 1 && (... && (others.col_stride == 1));
  const auto row = [&](std::size_t cols, auto* to, auto*... from) {
    for (std::size_t c = 0; c < cols; ++c) each(to[c], from[c]...);
  };
  ParallelFor(x.rows, [&](std::size_t r) {
    if (dense) return row(x.cols, &x(r, 0), &others(r, 0)...);
    for (std::size_t c = 0; c < x.cols; ++c) each(x(r, c), others(r, c)...);
  });
}

void Scale(float factor, Writable from, Writable to) {
  ForEach(
      to, [factor](float& out, float in) { out = factor * in; }, from);
}

// c = alpha a a^T [+ c], as Gemm, where c is symmetric, if it is added to. The result is symmetric,
// too, to the last bit, since its elements (i, j) and (j, i) have the same products in the same
// order: so half of them are computed.
void SymmetricGemm(Writable a, const GemmOptions& options, Writable c) {
  constexpr std::size_t kPanel = 128;
  for (std::size_t first = 0; first < a.rows; first += kPanel) {
    const std::size_t rows = std::min(kPanel, a.rows - first), end = first + rows;
    Gemm(a.Block(first, 0, rows, a.cols), a.Block(0, 0, end, a.cols), options,
         c.Block(first, 0, rows, end));
  }
  ParallelFor(a.rows, [&](std::size_t r) {
    for (std::size_t i = (r / kPanel + 1) * kPanel; i < a.rows; ++i) c(r, i) = c(i, r);
  });
}

// x / (its Frobenius norm + epsilon).
void Normalize(bool bf16, Writable x) {
  if (bf16) RoundBf16(x, x);
  const float norm = static_cast<float>(std::sqrt(SumOfSquares({x.data, x.size()})));
  const float divisor =
      bf16 ? RoundToBf16(RoundToBf16(norm) + kNewtonSchulzEpsilon) : norm + kNewtonSchulzEpsilon;
  ForEach(x, [divisor](float& value) { value = value / divisor; });
  if (bf16) RoundBf16(x, x);
}

// The matrices of a step on X (n, k), n <= k: squares (n, n), wide (n, k).
struct Memory {
  Matrix<float> squares, polynomial, scaled, wide;

  Memory(std::size_t n, std::size_t k, bool bf16)
      : squares(n, n), polynomial(n, n), scaled(bf16 ? n : 0, bf16 ? n : 0), wide(n, k) {}
};

void Step(Writable x, Memory* memory) {
  const Writable a = memory->squares.View(), b = memory->polynomial.View(), y = memory->wide.View();
  SymmetricGemm(x, {}, a);
  Scale(kNewtonSchulzB, a, b);
  SymmetricGemm(a, {.alpha = kNewtonSchulzC, .accumulate = true}, b);  // A is symmetric
  Scale(kNewtonSchulzA, x, y);
  Gemm(b, x.Transposed(), {.accumulate = true}, y);
  ForEach(
      x, [](float& to, float from) { to = from; }, y);
}

// to = the rounded sum of the rounded factor * x and `to`.
void AddRounded(float factor, Writable x, Writable to) {
  RoundBf16(to, to);
  Scale(factor, x, x);
  RoundBf16(x, x);
  ForEach(
      to, [](float& sum, float term) { sum = term + sum; }, x);
  RoundBf16(to, to);
}

void StepInBf16(Writable x, Memory* memory) {
  const Writable a = memory->squares.View(), b = memory->polynomial.View(),
                 ca = memory->scaled.View(), y = memory->wide.View();
  SymmetricGemm(x, {}, a);
  RoundBf16(a, a);
  Scale(kNewtonSchulzC, a, ca);
  RoundBf16(ca, ca);
  Gemm(ca, a, {}, b);
  AddRounded(kNewtonSchulzB, a, b);
  Gemm(b, x.Transposed(), {}, y);
  AddRounded(kNewtonSchulzA, x, y);
  ForEach(
      x, [](float& to, float from) { to = from; }, y);
}

// `x` has no more rows than columns, and its elements lie one after the other.
void Iterate(int steps, bool bf16, Writable x) {
  Normalize(bf16, x);
  Memory memory(x.rows, x.cols, bf16);
  for (int i = 0; i < steps; ++i) {
    if (bf16) {
      StepInBf16(x, &memory);
    } else {
      Step(x, &memory);
    }
  }
}

}  // namespace

void NewtonSchulz(int steps, bool bf16, MatrixView<float> x) {
  const IeeeArithmetic ieee;
  Expects(x.col_stride == 1 && steps >= 0, "NewtonSchulz: unit column stride, steps >= 0");
  if (x.size() == 0) return;
  const Writable wide = x.rows > x.cols ? x.Transposed() : x;
  Matrix<float> own(wide.rows, wide.cols);
  ForEach(
      own.View(), [](float& to, float from) { to = from; }, wide);
  Iterate(steps, bf16, own.View());
  ForEach(
      wide, [](float& to, float from) { to = from; }, own.View());
}

void MuonStep(const Muon& options, MatrixView<const float> gradient, MatrixView<float> weight,
              MatrixView<float> m) {
  const IeeeArithmetic ieee;
  const Muon& o = options;
  Expects(HasShape(gradient, weight.rows, weight.cols) && HasShape(m, weight.rows, weight.cols),
          "MuonStep: gradient, weight and momentum of one shape");
  const float old = o.momentum, fresh = 1.0f - o.momentum;
  Matrix<float> update(weight.rows, weight.cols);
  const Writable u = update.View();
  ForEach(
      m,
      [&](float& moment, float given, float& out) {
        const float g = given * o.gradient_scale;
        moment = old * moment + fresh * g;
        out = o.nesterov ? old * moment + fresh * g : moment;
      },
      gradient, u);
  NewtonSchulz(o.steps, o.bf16, u);
  ForEach(
      weight,
      [&](float& w, float direction) {
        w = w - o.learning_rate * (o.scale * direction + o.weight_decay * w);
      },
      u);
}

}  // namespace fp4lab
