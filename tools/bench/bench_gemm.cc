// Rows of `fp4lab bench`: the twelve matrix products of one layer's linears at training shapes.
#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/measure/machine.h"
#include "fp4lab/measure/probes.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/tensor/gemm.h"
#include "fp4lab/tensor/tensor_core_gemm.h"
#include "tools/bench/bench_layer.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;
using measure::Work;

// An operand of Fp4Gemm, quantized along its columns, and its values in binary32.
class Fp4Values {
 public:
  Fp4Values(MatrixView<const float> x, const Dialect& f)
      : block_rows_(f.block_rows), values_(x.rows, x.cols) {
    const std::size_t block_rows = DivideUp(x.rows, f.block_rows),
                      blocks = DivideUp(x.cols, f.block_cols);
    codes_.resize(x.size());
    scales_.resize(block_rows * blocks);
    if (x.col_stride == 1) {
      integers_ = {{codes_.data(), x.rows, x.cols}, {scales_.data(), block_rows, blocks}};
    } else {
      integers_ = {MatrixView<std::uint8_t>(codes_.data(), x.cols, x.rows).Transposed(),
                   MatrixView<float>(scales_.data(), blocks, block_rows).Transposed()};
    }
    const QuantizeOptions options{.dialect = f, .amax = TensorAmax(x)};
    Expects(QuantizeToFp4Integers(x, options, integers_), "scales of ordinary size");
    QuantizeToValues(x, options, values_.View());
  }
  Fp4Operand Operand() const { return {integers_.codes, integers_.scales, block_rows_}; }
  MatrixView<const float> Values() const { return values_.View(); }

 private:
  std::size_t block_rows_;
  std::vector<std::uint8_t> codes_;
  FloatBuffer scales_;
  Fp4Integers integers_;
  Matrix<float> values_;
};

// Compares three rows of c with the scalar reference on the operands' values, bit for bit.
void CheckRows(const Fp4Values& a, const Fp4Values& b, int block, MatrixView<const float> c) {
  Matrix<float> row(1, c.cols);
  for (const std::size_t m : {std::size_t{0}, c.rows / 2, c.rows - 1}) {
    const auto a_row = a.Values().Block(m, 0, 1, a.Values().cols);
    reference::Gemm(a_row, b.Values(), {.block = block}, row.View());
    for (std::size_t n = 0; n < c.cols; ++n) {
      Expects(std::bit_cast<std::uint32_t>(c(m, n)) == std::bit_cast<std::uint32_t>(row(0, n)),
              "Fp4Gemm gives the reference's bits");
    }
  }
}

// A layer's products with operands in a 4-bit block format, weights in its square blocks. The
// operands are quantized along each product's reduction axis in advance: only products are timed.
class Fp4Layer {
 public:
  Fp4Layer(const BenchLayer& layer, const std::string& format) : layer_(layer) {
    const Dialect f = *FindDialect(format), square = *FindDialect(format + ".2d");
    options_.block = static_cast<int>(f.block_cols);
    for (const BenchProduct& p : layer.Products()) {
      a_.push_back(std::make_unique<Fp4Values>(p.a, f));
      b_.push_back(std::make_unique<Fp4Values>(p.b, p.b_is_weight ? square : f));
    }
    Run();
    for (std::size_t i = 0; i < a_.size(); ++i) {
      CheckRows(*a_[i], *b_[i], options_.block, layer.Products()[i].c);
    }
  }

  void Run() const {
    for (std::size_t i = 0; i < a_.size(); ++i) {
      Fp4Gemm(a_[i]->Operand(), b_[i]->Operand(), options_, layer_.Products()[i].c);
    }
  }

 private:
  const BenchLayer& layer_;
  GemmOptions options_;
  std::vector<std::unique_ptr<Fp4Values>> a_, b_;  // not movable: operands are views into them
};

// Computes the layer's products in binary32 by Gemm.
void RunFp32(const BenchLayer& layer) {
  for (const BenchProduct& p : layer.Products()) Gemm(p.a, p.b, {}, p.c);
}

// Makes the work that is measured: all products of a layer, which outlives the work.
using MakeProducts = std::function<Work(const BenchLayer& layer)>;

Work Fp4Products(const BenchLayer& layer, const std::string& format) {
  const auto products = std::make_shared<Fp4Layer>(layer, format);
  return [products] { products->Run(); };
}

struct GemmEntry {
  std::string id, what;
  std::size_t d;
  bool all_threads;
  measure::Target target;
  MakeProducts make;
  bool is_fp32;  // the FMA peak is its limit; else the instructions of NVFP4 products
};

std::string Places(std::size_t d, bool all_threads) {
  return ", 12 products of a layer, d " + std::to_string(d) +
         (all_threads ? ", all threads" : ", 1 thread");
}

// A row that compares with the best FP32 library.
BenchEntry AgainstLibrary(const GemmEntry& g) {
  BenchEntry e{.id = "gemm." + g.id + ".d" + std::to_string(g.d) + (g.all_threads ? ".all" : ""),
               .topic = "Matrix products",
               .what = g.what + Places(g.d, g.all_threads),
               .unit = "GFLOP/s",
               .against = "the best FP32 library",
               .target = g.target};
  e.measure = [g](const BenchContext& c) {
    const int threads = g.all_threads ? c.threads : 1;
    const ThreadsScope scope(threads);
    const BenchLayer layer(g.d);
    const std::vector<Rival> rivals = SgemmRivals(c, layer);
    if (rivals.empty()) return Missing(WhyNoRivals(c));
    const Limit limit = g.is_fp32 ? Limit{[&layer] { measure::SpendFlop(layer.Flop()); },
                                          "its FLOP at the FMA peak"}
                                  : Fp4Instructions(layer, "nvfp4", threads);
    return CompareRates(c.On(threads), 1e-9 * layer.Flop(), g.make(layer), rivals, limit);
  };
  return e;
}

BenchEntry Mxfp4AgainstNvfp4(std::size_t d) {
  BenchEntry e{.id = "gemm.mxfp4.d" + std::to_string(d),
               .topic = "Matrix products",
               .what = "MXFP4" + Places(d, false),
               .unit = "GFLOP/s",
               .against = "NVFP4 product",
               .target = AtLeast(1)};
  e.measure = [d](const BenchContext& c) {
    const ThreadsScope scope(1);
    const BenchLayer layer(d);
    return CompareRates(c.OneThread(), 1e-9 * layer.Flop(), Fp4Products(layer, "mxfp4.rceil"),
                        {{"", Fp4Products(layer, "nvfp4")}},
                        Fp4Instructions(layer, "mxfp4.rceil", 1));
  };
  return e;
}

BenchEntry Fp32OfPeak() {
  BenchEntry e{.id = "gemm.fp32.d512.peak",
               .topic = "Matrix products",
               .what = "FP32" + Places(512, false),
               .unit = "GFLOP/s",
               .against = "FMA peak of the core",
               .target = {}};
  e.measure = [](const BenchContext& c) {
    const ThreadsScope scope(1);
    const BenchLayer layer(512);
    return CompareRates(c.OneThread(), 1e-9 * layer.Flop(), [&layer] { RunFp32(layer); },
                        {{"", [&layer] { measure::SpendFlop(layer.Flop()); }}});
  };
  return e;
}

// A row that compares the model of Blackwell's tensor cores with the product in block order, on the
// out projection (d -> d) at d 256.
BenchEntry Blackwell() {
  BenchEntry e{.id = "gemm.blackwell",
               .topic = "Matrix products",
               .what =
                   "NVFP4 as Blackwell's tensor cores add (blackwell.mxf4.f32), 2048 x 256 x "
                   "256, 1 thread",
               .unit = "ms",
               .against = "NVFP4 product in block order",
               .target = AtMost(8)};
  e.measure = [](const BenchContext& c) {
    const ThreadsScope scope(1);
    constexpr std::size_t kD = 256;
    BenchLayer layer(kD);
    const BenchLinear& out = layer.Linears()[1];  // d -> d
    const auto operand = [](const Matrix<float>& x) {
      const QuantizeOptions options{.dialect = *FindDialect("nvfp4"), .amax = TensorAmax(x.View())};
      return MakeMmaOperand(options.dialect, Quantize(x.View(), options));
    };
    const MmaOperand a = operand(out.x), b = operand(out.w);
    const TensorCoreModel& model = *FindTensorCoreModel("blackwell.mxf4.f32");
    const Fp4Values fa(out.x.View(), *FindDialect("nvfp4")),
        fb(out.w.View(), *FindDialect("nvfp4"));
    Matrix<float> y(kLayerTokens, kD);
    return CompareTimes(
        c.OneThread(), 1e3, [&] { TensorCoreGemm(model, a, b, {}, y.View()); },
        {{"", [&] { Fp4Gemm(fa.Operand(), fb.Operand(), {.block = 16}, y.View()); }}});
  };
  return e;
}

}  // namespace

Limit Fp4Instructions(const BenchLayer& layer, const std::string& format, int threads) {
  constexpr std::size_t kRows = 24, kCols = 96;
  const ThreadsScope scope(1);  // this thread's instructions are counted
  const BenchProduct& p = layer.Products().front();
  const std::size_t depth = p.a.cols;
  const Dialect f = *FindDialect(format);
  const GemmOptions options{.block = static_cast<int>(f.block_cols)};
  const auto b = std::make_shared<Fp4Values>(p.b.Block(0, 0, kCols, depth), f);
  const auto count = InstructionsOf(
      [&](std::size_t rows) -> Work {
        const auto a = std::make_shared<Fp4Values>(p.a.Block(0, 0, rows, depth), f);
        const auto c = std::make_shared<Matrix<float>>(rows, kCols);
        return [=] { Fp4Gemm(a->Operand(), b->Operand(), options, c->View()); };
      },
      kRows);
  if (!count) return {};
  return InstructionLimit(*count, static_cast<double>(kRows * kCols * depth),
                          layer.Flop() / 2 / threads, 1024, "products");
}

std::vector<BenchEntry> GemmEntries() {
  const double fp4_bound = measure::HighwayAtLeast(1, 1) ? 1.5 : 1.2;
  const auto fp32 = [](const BenchLayer& layer) -> Work { return [&layer] { RunFp32(layer); }; };
  const auto nvfp4 = [](const BenchLayer& layer) { return Fp4Products(layer, "nvfp4"); };
  std::vector<BenchEntry> entries;
  for (const std::size_t d : {256, 512}) {
    for (const bool all : {false, true}) {
      entries.push_back(
          AgainstLibrary({"nvfp4", "NVFP4", d, all, AtLeast(fp4_bound), nvfp4, false}));
    }
  }
  for (const std::size_t d : {256, 512}) entries.push_back(Mxfp4AgainstNvfp4(d));
  for (const std::size_t d : {256, 512}) {
    for (const bool all : {false, true}) {
      entries.push_back(AgainstLibrary({"fp32", "FP32", d, all, AtLeast(0.9), fp32, true}));
    }
  }
  entries.push_back(Fp32OfPeak());
  entries.push_back(AgainstLibrary(
      {"bf16", "FP32 product of BF16 values", 256, false, AtLeast(0.9), fp32, true}));
  entries.push_back(Blackwell());
  return entries;
}

}  // namespace fp4lab::tools
