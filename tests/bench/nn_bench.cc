// Time of every operation of nn at the shapes of a small model, one thread: d 64, 4 heads of 16,
// T 128, B 16 ("small"), and attention at head_dim 64, T 512.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/attention.h"
#include "fp4lab/nn/embedding.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/nn/optimizer.h"
#include "fp4lab/nn/reference.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/rope.h"

namespace fp4lab {
namespace {

constexpr std::size_t kTokens = 2048, kWidth = 64, kFfn = 256, kVocabulary = 256;

Matrix<float> Random(std::size_t rows, std::size_t cols, std::uint32_t tensor) {
  Matrix<float> x(rows, cols);
  const RandomStream stream{.seed = 5, .tensor = tensor};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = static_cast<float>(4.0 * UniformOpen(stream.Bits32(i)) - 2.0);
  }
  return x;
}

std::vector<std::uint16_t> Tokens() {
  std::vector<std::uint16_t> tokens(kTokens);
  const RandomStream stream{.seed = 6};
  for (std::size_t i = 0; i < kTokens; ++i) {
    tokens[i] = static_cast<std::uint16_t>(stream.Bits16(i) % kVocabulary);
  }
  return tokens;
}

bool Close(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{b[i]}));
    error = std::max(error, std::abs(double{a[i]} - double{b[i]}));
  }
  return error <= 1e-5 * largest;
}

void BM_RmsNorm(benchmark::State& state) {
  SetThreads(1);
  const Matrix<float> x = Random(kTokens, kWidth, 1), dy = Random(kTokens, kWidth, 2);
  const std::vector<float> gain(kWidth, 1.0f);
  std::vector<float> r(kTokens), dgain(kWidth);
  Matrix<float> y(kTokens, kWidth), dx(kTokens, kWidth);
  RmsNorm(x.View(), gain, 1e-5f, y.View(), r);
  for (auto _ : state) {
    if (state.range(0) == 0) {
      RmsNorm(x.View(), gain, 1e-5f, y.View(), r);
    } else {
      RmsNormBackward(x.View(), gain, r, dy.View(), Write::kAccumulate, dx.View(), dgain);
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_RmsNorm)->ArgName("backward")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void BM_Rope(benchmark::State& state) {
  SetThreads(1);
  const RopeTable table = MakeRopeTable(128, 16, 10000.0f);
  Matrix<float> qkv = Random(kTokens, 3 * kWidth, 3);
  for (auto _ : state) {
    Rope(table, qkv.View().Block(0, 0, kTokens, 2 * kWidth));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Rope)->Unit(benchmark::kMicrosecond);

struct AttentionCase {
  AttentionShape shape;
  Matrix<float> qkv, dout, out, dqkv;
  std::vector<float> statistics;

  explicit AttentionCase(const AttentionShape& s)
      : shape(s),
        qkv(Random(s.Rows(), (s.heads + 2 * s.kv_heads) * s.head_dim, 4)),
        dout(Random(s.Rows(), s.heads * s.head_dim, 5)),
        out(dout.rows, dout.cols),
        dqkv(qkv.rows, qkv.cols),
        statistics(s.StatisticsSize()) {}

  template <class T>
  MatrixView<T> Slice(MatrixView<T> x, std::size_t first, std::size_t heads) const {
    return x.Block(0, first * shape.head_dim, x.rows, heads * shape.head_dim);
  }
  template <class T>
  MatrixView<T> Q(MatrixView<T> x) const {
    return Slice(x, 0, shape.heads);
  }
  template <class T>
  MatrixView<T> K(MatrixView<T> x) const {
    return Slice(x, shape.heads, shape.kv_heads);
  }
  template <class T>
  MatrixView<T> V(MatrixView<T> x) const {
    return Slice(x, shape.heads + shape.kv_heads, shape.kv_heads);
  }

  void Forward() {
    const MatrixView<const float> x = qkv.View();
    Attention(shape, Q(x), K(x), V(x), out.View(), statistics);
  }
  void Backward() {
    const MatrixView<const float> x = qkv.View();
    const MatrixView<float> d = dqkv.View();
    AttentionBackward(shape, Q(x), K(x), V(x), out.View(), statistics, dout.View(),
                      {Q(d), K(d), V(d)});
  }
  bool IsRight() {
    Forward();
    const MatrixView<const float> x = qkv.View();
    Matrix<float> exact(out.rows, out.cols);
    std::vector<float> exact_statistics(statistics.size());
    reference::Attention<float>(shape, Q(x), K(x), V(x), exact.View(), exact_statistics);
    return Close(out.values, exact.values);
  }
};

void BM_Attention(benchmark::State& state, const AttentionShape& shape, bool backward) {
  SetThreads(1);
  AttentionCase c(shape);
  if (!c.IsRight()) return state.SkipWithError("not the reference's values");
  for (auto _ : state) {
    backward ? c.Backward() : c.Forward();
    benchmark::ClobberMemory();
  }
  // Multiply-adds of the visible pairs: two products forward, five backward.
  const double pairs = 0.5 * static_cast<double>(shape.Rows() * shape.sequence * shape.heads);
  const double flops = 2.0 * pairs * static_cast<double>(shape.head_dim) * (backward ? 5 : 2);
  state.counters["GFLOP/s"] = benchmark::Counter(
      flops * static_cast<double>(state.iterations()) * 1e-9, benchmark::Counter::kIsRate);
}
constexpr AttentionShape kSmall{16, 128, 4, 4, 16}, kLarge{4, 512, 4, 4, 64},
    kGrouped{4, 512, 8, 2, 64};
BENCHMARK_CAPTURE(BM_Attention, small, kSmall, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Attention, small_backward, kSmall, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Attention, large, kLarge, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Attention, large_backward, kLarge, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Attention, grouped, kGrouped, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Attention, grouped_backward, kGrouped, true)->Unit(benchmark::kMicrosecond);

using Forward = void (*)(MatrixView<const float>, MatrixView<float>);
using Backward = void (*)(MatrixView<const float>, MatrixView<const float>, MatrixView<float>);

void BM_Activation(benchmark::State& state, Forward forward, Backward backward) {
  SetThreads(1);
  const Matrix<float> x = Random(kTokens, kFfn, 6), dy = Random(kTokens, kFfn, 7);
  Matrix<float> y(kTokens, kFfn);
  for (auto _ : state) {
    if (state.range(0) == 0) {
      forward(x.View(), y.View());
    } else {
      backward(x.View(), dy.View(), y.View());
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK_CAPTURE(BM_Activation, squared_relu, SquaredRelu, SquaredReluBackward)
    ->ArgName("backward")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Activation, gelu, Gelu, GeluBackward)
    ->ArgName("backward")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMicrosecond);

void BM_Swiglu(benchmark::State& state) {
  SetThreads(1);
  const Matrix<float> x = Random(kTokens, 2 * kFfn, 8), dy = Random(kTokens, kFfn, 9);
  Matrix<float> y(kTokens, kFfn), dx(kTokens, 2 * kFfn);
  const auto gate = x.View().Block(0, 0, kTokens, kFfn),
             up = x.View().Block(0, kFfn, kTokens, kFfn);
  for (auto _ : state) {
    if (state.range(0) == 0) {
      Swiglu(gate, up, y.View());
    } else {
      SwigluBackward(gate, up, dy.View(), dx.View().Block(0, 0, kTokens, kFfn),
                     dx.View().Block(0, kFfn, kTokens, kFfn));
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Swiglu)->ArgName("backward")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void BM_Embedding(benchmark::State& state) {
  SetThreads(1);
  Matrix<float> table = Random(kVocabulary, kWidth, 10), y = Random(kTokens, kWidth, 11);
  const std::vector<std::uint16_t> tokens = Tokens();
  for (auto _ : state) {
    if (state.range(0) == 0) {
      Embedding(table.View(), tokens, y.View());
    } else {
      EmbeddingBackward(tokens, y.View(), table.View());
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Embedding)->ArgName("backward")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void BM_CrossEntropyGradient(benchmark::State& state) {
  SetThreads(1);
  const Matrix<float> logits = Random(kTokens, kVocabulary, 12);
  const std::vector<std::uint16_t> targets = Tokens();
  std::vector<double> losses(kTokens);
  Matrix<float> gradient(kTokens, kVocabulary);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        CrossEntropyGradient(logits.View(), targets, 1.0f / kTokens, losses, gradient.View()));
  }
}
BENCHMARK(BM_CrossEntropyGradient)->Unit(benchmark::kMicrosecond);

constexpr std::size_t kParameters = 229'440;  // 4 layers, embedding and head

void BM_AdamW(benchmark::State& state) {
  SetThreads(1);
  const Matrix<float> gradient = Random(1, kParameters, 13);
  Matrix<float> weight = Random(1, kParameters, 14), m(1, kParameters), v(1, kParameters);
  const AdamW options{.learning_rate = 1e-3f, .weight_decay = 0.1f};
  for (auto _ : state) {
    AdamWStep(options, gradient.values, weight.values, m.values, v.values);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_AdamW)->Unit(benchmark::kMicrosecond);

void BM_SumOfSquares(benchmark::State& state) {
  SetThreads(1);
  const Matrix<float> gradient = Random(1, kParameters, 15);
  for (auto _ : state) benchmark::DoNotOptimize(SumOfSquares(gradient.values));
}
BENCHMARK(BM_SumOfSquares)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace fp4lab
