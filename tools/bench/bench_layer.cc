#include "tools/bench/bench_layer.h"

#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab::tools {
namespace {

// Uniform in (-scale, scale), rounded to BF16.
Matrix<float> Random(std::size_t rows, std::size_t cols, std::uint32_t tensor, double scale) {
  Matrix<float> m(rows, cols);
  const RandomStream stream{.seed = 9, .tensor = tensor};
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    m.values[i] =
        RoundToBf16(static_cast<float>(scale * (2.0 * UniformOpen(stream.Bits32(i)) - 1.0)));
  }
  return m;
}

// Whether c differs from the product p.c by at most 1e-4 of p.c's largest magnitude everywhere: a
// peer may add in any order.
bool IsClose(const BenchProduct& p, const Matrix<float>& c) {
  double largest = 0;
  for (std::size_t m = 0; m < p.c.rows; ++m) {
    for (std::size_t n = 0; n < p.c.cols; ++n) {
      largest = std::fmax(largest, std::fabs(static_cast<double>(p.c(m, n))));
    }
  }
  for (std::size_t m = 0; m < p.c.rows; ++m) {
    for (std::size_t n = 0; n < p.c.cols; ++n) {
      if (!(std::fabs(p.c(m, n) - c(m, n)) <= 1e-4 * largest)) return false;
    }
  }
  return true;
}

// Throws Error if the peer's product is not close to Gemm's.
void CheckPeer(const measure::SgemmPeer& peer, const BenchProduct& p) {
  Matrix<float> c(p.c.rows, p.c.cols);
  peer.sgemm(p.a, p.b, c.View());
  Gemm(p.a, p.b, {}, p.c);
  if (!IsClose(p, c)) throw Error(peer.name, "gives another product than Gemm");
}

measure::PeerVectors VectorsOf(const BenchContext& c) {
  return c.simd.rfind("avx3", 0) == 0 ? measure::PeerVectors::kBest : measure::PeerVectors::kAvx2;
}

}  // namespace

BenchLinear MakeLinear(std::size_t tokens, std::size_t in, std::size_t out, std::uint32_t tensor) {
  return {.in = in,
          .out = out,
          .x = Random(tokens, in, tensor, 1.0),
          .w = Random(out, in, tensor + 1, 0.05),
          .dy = Random(tokens, out, tensor + 2, 1e-3),
          .y = Matrix<float>(tokens, out),
          .dx = Matrix<float>(tokens, in),
          .dw = Matrix<float>(out, in)};
}

BenchLayer::BenchLayer(std::size_t d) {
  const std::array<std::array<std::size_t, 2>, 4> shapes = {
      {{d, 3 * d}, {d, d}, {d, 4 * d}, {4 * d, d}}};
  for (const auto& [in, out] : shapes) {
    linears_.push_back(
        MakeLinear(kLayerTokens, in, out, 3 * static_cast<std::uint32_t>(linears_.size())));
  }
  for (BenchLinear& l : linears_) {
    const BenchLinear& in = l;
    products_.push_back({in.x.View(), in.w.View(), l.y.View(), true});
    products_.push_back({in.dy.View(), in.w.View().Transposed(), l.dx.View(), true});
    products_.push_back({in.dy.View().Transposed(), in.x.View().Transposed(), l.dw.View(), false});
  }
}

double BenchLayer::Flop() const {
  double flop = 0;
  for (const BenchProduct& p : products_) {
    flop += 2.0 * static_cast<double>(p.c.rows * p.c.cols) * static_cast<double>(p.a.cols);
  }
  return flop;
}

std::vector<Rival> SgemmRivals(const BenchContext& context, const BenchLayer& layer) {
  std::vector<Rival> rivals;
  for (const measure::SgemmPeer& peer : context.inputs->Peers(VectorsOf(context))) {
    if (!peer.missing.empty()) continue;
    for (const BenchProduct& p : layer.Products()) CheckPeer(peer, p);
    rivals.push_back({peer.name + " FP32", [&layer, sgemm = peer.sgemm] {
                        for (const BenchProduct& p : layer.Products()) sgemm(p.a, p.b, p.c);
                      }});
  }
  return rivals;
}

std::string WhyNoRivals(const BenchContext& context) {
  std::string why;
  for (const measure::SgemmPeer& peer : context.inputs->Peers(VectorsOf(context))) {
    why += (why.empty() ? "" : "; ") + peer.missing;
  }
  return why;
}

}  // namespace fp4lab::tools
