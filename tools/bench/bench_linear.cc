// Rows of `fp4lab bench`: the linears of a layer, forward and backward, under the full NVFP4
// recipe, and what quantizing their operands takes.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/hadamard_quantize.h"
#include "tools/bench/bench_layer.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;
using measure::Work;

// One forward and one backward pass of every linear; weights change between passes, as in training.
class RecipeLayer {
 public:
  RecipeLayer(BenchLayer* layer, const std::string& recipe)
      : layer_(*layer), recipe_(ReadRecipe(Json(recipe), "bench").linear) {
    for (const BenchLinear& l : layer_.Linears()) weights_.emplace_back().w = l.w.View();
  }

  void Run() {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      BenchLinear& l = layer_.Linears()[i];
      const LinearInput x{.x = l.x.View()}, dy{.x = l.dy.View()};
      weights_[i].Changed();
      LinearForward(recipe_, call_, x, &weights_[i], &scratch_, Write::kOverwrite, l.y.View());
      LinearBackward(recipe_, call_, x, &weights_[i], dy, &scratch_, l.dx.View(), l.dw.View());
    }
  }

 private:
  BenchLayer& layer_;
  LinearRecipe recipe_;
  LinearCall call_{.random = {.seed = 1}};
  std::vector<LinearWeight> weights_;
  LinearScratch scratch_;
};

// Makes every operand of one linear under te_nvfp4: rounding to BF16, amax, Hadamard transforms and
// quantization, as nn/linear.h defines them.
class Operands {
 public:
  explicit Operands(const BenchLinear& l) : l_(l) {
    Reserve(&rounded_, std::max({l.x.values.size(), l.dy.values.size(), l.w.values.size()}));
    Reserve(&scales_, rounded_.size() / 16);
    codes_.resize(rounded_.size());
  }

  void Make() {
    const auto w = Rounded(l_.w);
    Quantize("nvfp4.2d", ElementRounding::kNearestEven, w.view, w.amax);
    MakeOfTokens();
  }

  // Makes the operands of the input and of the gradient.
  void MakeOfTokens() {
    const auto x = Rounded(l_.x);
    Quantize("nvfp4", ElementRounding::kNearestEven, x.view, x.amax);
    Turned(x.view, ElementRounding::kNearestEven);
    const auto dy = Rounded(l_.dy);
    Quantize("nvfp4", ElementRounding::kStochastic16, dy.view, dy.amax);
    Turned(dy.view, ElementRounding::kStochastic16);
  }

 private:
  struct RoundedMatrix {
    MatrixView<const float> view;
    float amax;
  };

  RoundedMatrix Rounded(const Matrix<float>& x) {
    const MatrixView<float> to(rounded_.data(), x.rows, x.cols);
    const float amax = RoundBf16(x.View(), to);
    return {to, amax};
  }

  // Makes the wgrad operand of x: transposed, transformed and quantized along the tokens.
  void Turned(MatrixView<const float> x, ElementRounding rounding) {
    const MatrixView<const float> t = x.Transposed();
    const QuantizeOptions options =
        OptionsFor("nvfp4", rounding, HadamardAmax(t, 16, kTeSignMask16));
    HadamardQuantizeToFp4Integers(t, 16, kTeSignMask16, options, RoomFor(t, options.dialect));
  }

  void Quantize(const char* format, ElementRounding rounding, MatrixView<const float> x,
                float amax) {
    const QuantizeOptions options = OptionsFor(format, rounding, amax);
    QuantizeToFp4Integers(x, options, RoomFor(x, options.dialect));
  }

  static QuantizeOptions OptionsFor(const char* format, ElementRounding rounding, float amax) {
    return {.dialect = WithRounding(*FindDialect(format), rounding),
            .random = {.seed = 1},
            .amax = amax};
  }

  // Memory for the codes and scales of x, in the layout of x.
  Fp4Integers RoomFor(MatrixView<const float> x, const Dialect& f) {
    const std::size_t rows = DivideUp(x.rows, f.block_rows), cols = DivideUp(x.cols, f.block_cols);
    if (x.col_stride == 1) {
      return {{codes_.data(), x.rows, x.cols}, {scales_.data(), rows, cols}};
    }
    return {MatrixView<std::uint8_t>(codes_.data(), x.cols, x.rows).Transposed(),
            MatrixView<float>(scales_.data(), cols, rows).Transposed()};
  }

  const BenchLinear& l_;
  FloatBuffer rounded_, scales_;
  std::vector<std::uint8_t> codes_;
};

// The limit of making a layer's operands on one of `threads` threads: as many additions as those of
// input and gradient execute vector instructions, counted on a small linear. None, where they
// cannot be counted.
Limit OperandInstructions(const BenchLayer& layer, int threads) {
  constexpr std::size_t kTokens = 16, kWidth = 64;
  const ThreadsScope scope(1);  // this thread's instructions are counted
  const auto count = InstructionsOf(
      [](std::size_t tokens) -> Work {
        const auto l = std::make_shared<BenchLinear>(MakeLinear(tokens, kWidth, kWidth, 0));
        const auto operands = std::make_shared<Operands>(*l);
        return [l, operands] { operands->MakeOfTokens(); };
      },
      kTokens);
  if (!count) return {};
  std::size_t elements = 0;
  for (const BenchLinear& l : layer.Linears()) elements += l.x.values.size() + l.dy.values.size();
  return InstructionLimit(*count, static_cast<double>(kTokens * 2 * kWidth),
                          static_cast<double>(elements) / threads, 16, "elements");
}

BenchEntry LinearsEntry(std::size_t d, bool all_threads, double bound) {
  BenchEntry e{.id = "linear.nvfp4.d" + std::to_string(d) + (all_threads ? ".all" : ""),
               .topic = "Linears of a layer, forward + backward",
               .what = "te_nvfp4 (full recipe), d " + std::to_string(d) +
                       (all_threads ? ", all threads" : ", 1 thread"),
               .unit = "ms",
               .against = "the best FP32 library",
               .target = AtMost(bound)};
  e.measure = [d, all_threads](const BenchContext& c) {
    const int threads = all_threads ? c.threads : 1;
    const ThreadsScope scope(threads);
    BenchLayer layer(d);
    const std::vector<Rival> rivals = SgemmRivals(c, layer);
    if (rivals.empty()) return Missing(WhyNoRivals(c));
    RecipeLayer ours(&layer, "te_nvfp4");
    return CompareTimes(
        c.On(threads), 1e3, [&ours] { ours.Run(); }, rivals, LinearInstructions(layer, threads));
  };
  return e;
}

BenchEntry QuantizationEntry(std::size_t d) {
  BenchEntry e{.id = "linear.quantization.d" + std::to_string(d),
               .topic = "Linears of a layer, forward + backward",
               .what = "quantizing all operands of te_nvfp4, d " + std::to_string(d) + ", 1 thread",
               .unit = "ms",
               .against = "the best FP32 library's products",
               .target = AtMost(60.0 / static_cast<double>(d))};
  e.measure = [d](const BenchContext& c) {
    const ThreadsScope scope(1);
    BenchLayer layer(d);
    const std::vector<Rival> rivals = SgemmRivals(c, layer);
    if (rivals.empty()) return Missing(WhyNoRivals(c));
    std::vector<std::unique_ptr<Operands>> operands;
    for (const BenchLinear& l : layer.Linears()) operands.push_back(std::make_unique<Operands>(l));
    return CompareTimes(
        c.OneThread(), 1e3,
        [&operands] {
          for (const auto& o : operands) o->Make();
        },
        rivals, OperandInstructions(layer, 1));
  };
  return e;
}

}  // namespace

Limit LinearInstructions(const BenchLayer& layer, int threads) {
  const Limit products = Fp4Instructions(layer, "nvfp4", threads);
  const Limit operands = OperandInstructions(layer, threads);
  if (!products.work || !operands.work) return {};
  return {[products, operands] {
            products.work();
            operands.work();
          },
          products.name + ", " + operands.name};
}

std::vector<BenchEntry> LinearEntries() {
  std::vector<BenchEntry> entries;
  for (const auto& [d, bound] : {std::pair{128, 1.0}, {256, 0.8}, {512, 0.7}}) {
    entries.push_back(LinearsEntry(static_cast<std::size_t>(d), false, bound));
  }
  entries.push_back(LinearsEntry(256, true, 0.8));
  for (const std::size_t d : {128, 256, 512}) entries.push_back(QuantizationEntry(d));
  return entries;
}

}  // namespace fp4lab::tools
