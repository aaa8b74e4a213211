// The linears of one decoder layer as `fp4lab bench` multiplies them: qkv, out, up and down at
// width d on 2048 tokens, forward and backward.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {

inline constexpr std::size_t kLayerTokens = 2048;

// One linear's matrices, random: x (tokens, in), w (out, in), dy (tokens, out), and room for y,
// dx and dw.
struct BenchLinear {
  std::size_t in, out;
  Matrix<float> x, w, dy, y, dx, dw;
};

// `tensor` and the two after it: RandomStream::tensor of x, w and dy.
BenchLinear MakeLinear(std::size_t tokens, std::size_t in, std::size_t out, std::uint32_t tensor);

// c (M, N) = a (M, K) b (N, K)^T
struct BenchProduct {
  MatrixView<const float> a, b;
  MatrixView<float> c;
  bool b_is_weight = false;  // in fprop and dgrad
};

class BenchLayer {
 public:
  explicit BenchLayer(std::size_t d);
  BenchLayer(const BenchLayer&) = delete;  // products point into linears
  BenchLayer& operator=(const BenchLayer&) = delete;
  std::vector<BenchLinear>& Linears() { return linears_; }
  const std::vector<BenchLinear>& Linears() const { return linears_; }
  // The three products of every linear: fprop, dgrad, wgrad.
  const std::vector<BenchProduct>& Products() const { return products_; }
  double Flop() const;  // 2 M N K, summed over all products

 private:
  std::vector<BenchLinear> linears_;
  std::vector<BenchProduct> products_;
};

// The products of a layer by each FP32 library that was found at run time. Throws Error if a
// library's result is not close to Gemm's. The layer must outlive the rivals.
std::vector<Rival> SgemmRivals(const BenchContext& context, const BenchLayer& layer);

// The limit of a layer's products with operands in a 4-bit format: as many additions, on one of
// `threads` threads, as the products execute vector instructions. These are counted on a few rows
// and columns of the first one. None, where they cannot be counted.
Limit Fp4Instructions(const BenchLayer& layer, const std::string& format, int threads);

// The limit of a layer's linears under te_nvfp4, forward and backward, on one of `threads` threads:
// that of their products, and the vector instructions of the operands of input and gradient. None,
// where they cannot be counted.
Limit LinearInstructions(const BenchLayer& layer, int threads);

// The reasons why SgemmRivals is empty, with the packages to install.
std::string WhyNoRivals(const BenchContext& context);

}  // namespace fp4lab::tools
