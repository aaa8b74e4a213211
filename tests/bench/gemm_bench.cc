// The GEMM at training shapes: GFLOP/s, and its ratio to the FMA peak and to peers in the same
// minute. Each benchmark first checks its result.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd.h"
#include "fp4lab/measure/clock.h"
#include "fp4lab/measure/probes.h"
#include "fp4lab/measure/sgemm_peer.h"
#include "fp4lab/measure/summary.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab::bench {

namespace {

// c (m, n) = a (m, k) * b (n, k)^T, a and b stored by rows or by columns.
struct Shape {
  std::string name;
  std::size_t m, n, k;
  bool a_by_columns, b_by_columns;
};

// The three products of a linear layer with weight (out, in) on `tokens` rows.
std::vector<Shape> LinearShapes(const std::string& name, std::size_t tokens, std::size_t in,
                                std::size_t out) {
  return {{name + "/fprop", tokens, out, in, false, false},
          {name + "/dgrad", tokens, in, out, false, true},
          {name + "/wgrad", out, in, tokens, true, true}};
}

struct Operand {
  std::vector<float> values;
  MatrixView<float> view;

  Operand(std::size_t rows, std::size_t cols, bool by_columns, std::uint32_t tensor)
      : values(rows * cols) {
    view = by_columns ? MatrixView<float>(values.data(), cols, rows).Transposed()
                      : MatrixView<float>(values.data(), rows, cols);
    const RandomStream stream{.seed = 1, .tensor = tensor};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(UniformOpen(stream.Bits32(i)) - 0.5);
    }
  }
};

// The first elements, the last and some between against the definition.
bool IsRight(const Operand& a, const Operand& b, const GemmOptions& options, const Operand& c) {
  const std::size_t rows = a.view.rows, cols = b.view.rows;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t m = i * 7919 % rows, n = (cols - 1) - i * 104729 % cols;
    float expected = 0;
    reference::Gemm(a.view.Block(m, 0, 1, a.view.cols), b.view.Block(n, 0, 1, b.view.cols), options,
                    MatrixView<float>(&expected, 1, 1));
    if (c.view(m, n) != expected) return false;
  }
  return true;
}

bool IsClose(const Operand& x, const Operand& y) {
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    if (!(std::abs(x.values[i] - y.values[i]) < 1e-3f)) return false;
  }
  return true;
}

// Processor time for one thread, so that other programs on the machine count less; else wall time.
double Now(int threads) { return threads == 1 ? measure::ThreadSeconds() : measure::WallSeconds(); }

template <class Function>
double SecondsOf(int threads, Function function) {
  const double start = Now(threads);
  function();
  return Now(threads) - start;
}

double Median(const std::vector<double>& x) { return measure::Summarize(x).median; }

// The libraries that were found.
const std::vector<measure::SgemmPeer>& Peers() {
  static const std::vector<measure::SgemmPeer> peers = [] {
    std::vector<measure::SgemmPeer> found;
    for (measure::SgemmPeer& p : LoadSgemmPeers(measure::PeerVectors::kBest)) {
      if (p.sgemm) found.push_back(std::move(p));
    }
    return found;
  }();
  return peers;
}

// Calls are grouped so that one timing takes about a millisecond; peers take turns with ours.
void RunGemm(benchmark::State& state, const Shape& s, int block, int threads) {
  const Operand a(s.m, s.k, s.a_by_columns, 1), b(s.n, s.k, s.b_by_columns, 2);
  Operand c(s.m, s.n, false, 3), peer_c(s.m, s.n, false, 4);
  const GemmOptions options{.block = block};
  const int threads_before = Threads();
  SetThreads(threads);
  Gemm(a.view, b.view, options, c.view);
  if (!IsRight(a, b, options, c)) return state.SkipWithError("wrong result");
  const double flop = 2.0 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k);
  const int calls = std::max(1, static_cast<int>(1e8 * threads / flop));
  std::vector<double> seconds, peaks;
  std::vector<std::vector<double>> peer_seconds(Peers().size());
  for (const measure::SgemmPeer& peer : Peers()) {
    peer.sgemm(a.view, b.view, peer_c.view);
    if (!IsClose(c, peer_c)) return state.SkipWithError("a peer disagrees");
  }
  for (auto _ : state) {
    seconds.push_back(SecondsOf(threads, [&] {
      for (int i = 0; i < calls; ++i) Gemm(a.view, b.view, options, c.view);
    }));
    state.SetIterationTime(seconds.back() / calls);
    peaks.push_back(measure::FmaPeak(0.3) * threads);
    for (std::size_t p = 0; p < Peers().size(); ++p) {
      peer_seconds[p].push_back(SecondsOf(threads, [&] {
        for (int i = 0; i < calls; ++i) Peers()[p].sgemm(a.view, b.view, peer_c.view);
      }));
    }
  }
  SetThreads(threads_before);
  const double ours = Median(seconds);
  state.counters["GFLOP/s"] = flop * calls / ours * 1e-9;
  state.counters["of_peak"] = flop * calls / ours * 1e-9 / Median(peaks);
  for (std::size_t p = 0; p < Peers().size(); ++p) {
    state.counters["vs_" + Peers()[p].name] = Median(peer_seconds[p]) / ours;
  }
}

// Random codes and scales near 1, with the dequantized values.
struct Fp4Matrix {
  Operand values;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  Fp4Operand view;

  Fp4Matrix(std::size_t rows, std::size_t cols, bool by_columns, int block, bool square_blocks,
            std::uint32_t tensor)
      : values(rows, cols, by_columns, tensor), codes(rows * cols) {
    constexpr std::uint8_t kCodes[] = {0, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24, 12};
    const auto k_block = static_cast<std::size_t>(block);
    view.block_rows = square_blocks ? k_block : 1;
    const std::size_t scale_rows = (rows + view.block_rows - 1) / view.block_rows;
    const std::size_t scale_cols = (cols + k_block - 1) / k_block;
    scales.resize(scale_rows * scale_cols);
    const auto lay = [by_columns](auto* data, std::size_t r, std::size_t c) {
      return by_columns ? MatrixView(data, c, r).Transposed() : MatrixView(data, r, c);
    };
    const auto code = lay(codes.data(), rows, cols);
    const auto scale = lay(scales.data(), scale_rows, scale_cols);
    const RandomStream stream{.seed = 2, .tensor = tensor};
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scales[i] = 0.5f + 0.0625f * static_cast<float>(stream.Bits32(i) >> 29);
    }
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t k = 0; k < cols; ++k) {
        code(r, k) = kCodes[stream.Bits32(r * cols + k) & 15];
        values.view(r, k) =
            0.5f * static_cast<float>(code(r, k) - 12) * scale(r / view.block_rows, k / k_block);
      }
    }
    view.codes = code;
    view.scales = scale;
  }
};

// Fp4Gemm against FP32 products of the same shape: ours and the peers', in turns.
void RunFp4Gemm(benchmark::State& state, const Shape& s, int block, int threads) {
  const bool is_wgrad = s.a_by_columns;  // weights have square blocks, activations do not
  const Fp4Matrix a(s.m, s.k, s.a_by_columns, block, false, 1);
  const Fp4Matrix b(s.n, s.k, s.b_by_columns, block, !is_wgrad, 2);
  Operand c(s.m, s.n, false, 3), other_c(s.m, s.n, false, 4);
  const GemmOptions options{.block = block};
  const int threads_before = Threads();
  SetThreads(threads);
  Fp4Gemm(a.view, b.view, options, c.view);
  if (!IsRight(a.values, b.values, options, c)) return state.SkipWithError("wrong result");
  const double flop = 2.0 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k);
  const int calls = std::max(1, static_cast<int>(1e8 * threads / flop));
  std::vector<measure::SgemmPeer> others = Peers();
  others.emplace_back().name = "our_fp32";
  others.back().sgemm = [](MatrixView<const float> x, MatrixView<const float> y,
                           MatrixView<float> z) { Gemm(x, y, {}, z); };
  std::vector<double> seconds;
  std::vector<std::vector<double>> other_seconds(others.size());
  for (auto _ : state) {
    seconds.push_back(SecondsOf(threads, [&] {
      for (int i = 0; i < calls; ++i) Fp4Gemm(a.view, b.view, options, c.view);
    }));
    state.SetIterationTime(seconds.back() / calls);
    for (std::size_t p = 0; p < others.size(); ++p) {
      other_seconds[p].push_back(SecondsOf(threads, [&] {
        for (int i = 0; i < calls; ++i) {
          others[p].sgemm(a.values.view, b.values.view, other_c.view);
        }
      }));
    }
  }
  SetThreads(threads_before);
  const double ours = Median(seconds);
  state.counters["GFLOP/s"] = flop * calls / ours * 1e-9;
  for (std::size_t p = 0; p < others.size(); ++p) {
    state.counters["vs_" + others[p].name] = Median(other_seconds[p]) / ours;
  }
}

void RunPeak(benchmark::State& state) {
  std::vector<double> peaks;
  for (auto _ : state) peaks.push_back(measure::FmaPeak(5));
  state.counters["GFLOP/s"] = Median(peaks);
}

using Run = void (*)(benchmark::State& state, const Shape& s, int block, int threads);

void Register(const std::string& kind, Run run, const Shape& s, int block, int threads) {
  constexpr int kIterations = 41;
  const std::string name = kind + "/" + s.name + "/" + std::to_string(s.m) + "x" +
                           std::to_string(s.n) + "x" + std::to_string(s.k) +
                           "/block:" + std::to_string(block) +
                           "/threads:" + std::to_string(threads);
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { run(state, s, block, threads); })
      ->UseManualTime()
      ->Iterations(kIterations)
      ->Unit(benchmark::kMicrosecond);
}

bool RegisterAll() {
  PinSimdTargetFromEnvironment();
  benchmark::AddCustomContext("simd_target", ActiveSimdTarget());
  benchmark::RegisterBenchmark("fma_peak/threads:1", RunPeak)->Iterations(21);
  std::vector<Shape> shapes;
  for (const std::size_t d : {64, 256, 512}) {
    const std::string name = "d" + std::to_string(d);
    for (const std::size_t out : {d, 4 * d}) {
      const std::vector<Shape> layer =
          LinearShapes(name + (out == d ? "/square" : "/up"), 2048, d, out);
      shapes.insert(shapes.end(), layer.begin(), layer.end());
    }
  }
  for (const Shape& s : shapes) {
    for (const int block : {0, 16, 32}) {
      for (const int threads : {1, 2}) {
        Register("gemm", RunGemm, s, block, threads);
        if (block > 0) Register("fp4_gemm", RunFp4Gemm, s, block, threads);
      }
    }
  }
  Register("gemm", RunGemm, {"attention/scores", 128, 128, 16, false, false}, 0, 1);
  Register("gemm", RunGemm, {"attention/values", 128, 16, 128, false, true}, 0, 1);
  Register("gemm", RunGemm, {"attention/scores", 512, 512, 64, false, false}, 0, 1);
  Register("gemm", RunGemm, {"attention/values", 512, 64, 512, false, true}, 0, 1);
  return true;
}

const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace fp4lab::bench
