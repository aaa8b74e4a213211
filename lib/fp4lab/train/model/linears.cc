#include "fp4lab/train/model/linears.h"

#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/rmsnorm.h"

namespace fp4lab {

std::string_view GemmName(LinearGemm gemm) {
  switch (gemm) {
    case LinearGemm::kFprop:
      return "fprop";
    case LinearGemm::kDgrad:
      return "dgrad";
    case LinearGemm::kWgrad:
      return "wgrad";
  }
  return "";
}

void Inspect(const Pass& pass, int block, const char* name, MatrixView<const float> x) {
  if (pass.inspector == nullptr) return;
  const std::string prefix = block < 0 ? "" : "blocks." + std::to_string(block) + ".";
  (*pass.inspector)(prefix + name, x);
}

Linears::Linears(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
                 std::span<float> amax_histories)
    : plan_(config, recipe), parameters_(parameters), amax_histories_(amax_histories) {
  Expects(amax_histories.size() == AmaxHistoryFloats(config, recipe),
          "Model: amax histories of all linears' operands");
  for (std::size_t l = 0; l < plan_.Count(); ++l) {
    const ParameterSlice& slice = plan_.Weight(l);
    weights_.emplace_back().w = {parameters_.data() + slice.offset, slice.rows, slice.cols};
  }
  inputs_.resize(weights_.size());
}

void Linears::AdvanceAmaxHistories() {
  const IeeeArithmetic ieee;
  if (amax_histories_.empty()) return;
  float* history = amax_histories_.data();
  for (const DelayedScaling& operand : plan_.Delayed()) {
    AdvanceAmaxHistory(operand, history);
    history += plan_.HistoryStride();
  }
}

void Linears::ParametersChanged() {
  for (LinearWeight& w : weights_) w.Changed();
}

std::size_t Linears::PieceRows(const View& x) {
  constexpr std::size_t kElements = 4096;  // 16 KiB
  return std::max<std::size_t>(1, kElements / x.cols);
}

LinearInput Linears::MakeRounded(const Pass& pass, std::size_t linear, std::size_t piece_rows,
                                 View out, const MakeRows& make) {
  const IeeeArithmetic ieee;
  const bool bf16 = plan_.RecipeOf(pass, linear).bf16;
  piece_amax_.assign(DivideUp(out.rows, piece_rows), 0.0f);
  ParallelFor(piece_amax_.size(), [&](std::size_t p) {
    const std::size_t first = p * piece_rows, rows = std::min(piece_rows, out.rows - first);
    piece_amax_[p] = make(first, rows, bf16);
  });
  return {out, bf16, *std::max_element(piece_amax_.begin(), piece_amax_.end())};
}

void Linears::MakeNorm(const Pass& pass, std::size_t linear, View x, std::span<const float> gain,
                       float epsilon, View out, std::span<float> inverse_rms, float* copy) {
  const IeeeArithmetic ieee;
  const auto make = [&](std::size_t first, std::size_t rows, bool bf16) {
    const View piece = x.Block(first, 0, rows, x.cols), to = out.Block(first, 0, rows, out.cols);
    const auto inverse = inverse_rms.subspan(first, rows);
    float amax = 0.0f;
    if (bf16) {
      amax = RmsNormToBf16(piece, gain, epsilon, to, inverse);
    } else {
      RmsNorm(piece, gain, epsilon, to, inverse);
    }
    if (copy != nullptr) std::copy_n(piece.data, piece.size(), copy + first * x.cols);
    return amax;
  };
  inputs_[linear] = MakeRounded(pass, linear, PieceRows(out), out, make);
}

bool Linears::ShowsProducts(const Pass& pass, std::size_t linear) const {
  if (products_ == nullptr || pass.high_precision || plan_.IsRouter(linear)) return false;
  return plan_.RecipeOf(pass, linear) != plan_.Rest();
}

void Linears::ShowForward(const Pass& pass, std::size_t linear) {
  Pass unseen = pass;
  unseen.observer = nullptr;
  unseen.records = false;
  const LinearCall call = plan_.CallOf(unseen, linear, amax_histories_.data(), nullptr);
  const std::size_t rows = inputs_[linear].x.rows, cols = weights_[linear].w.rows;
  Matrix<float> quantized(rows, cols), plain(rows, cols);
  LinearScratch scratch;
  const auto multiply = [&](const LinearRecipe& recipe, View y) {
    LinearWeight weight;
    weight.w = weights_[linear].w;
    LinearForward(recipe, call, inputs_[linear], &weight, &scratch, Write::kOverwrite, y);
  };
  multiply(plan_.RecipeOf(pass, linear), quantized.View());
  multiply(plan_.Rest(), plain.View());
  (*products_)(plan_.Name(linear), {LinearGemm::kFprop, quantized.View(), plain.View()});
}

void Linears::Run(const Pass& pass, std::size_t linear, Write write, View y) {
  const IeeeArithmetic ieee;
  if (ShowsProducts(pass, linear)) ShowForward(pass, linear);
  OperandObserver observer;
  const LinearCall call = plan_.CallOf(pass, linear, amax_histories_.data(), &observer);
  LinearForward(plan_.RecipeOf(pass, linear), call, inputs_[linear], &weights_[linear], &scratch_,
                write, y);
}

void Linears::ShowBackward(const Pass& pass, std::size_t linear, const LinearInput& dy) {
  Pass unseen = pass;
  unseen.observer = nullptr;
  unseen.records = false;
  const LinearCall call = plan_.CallOf(unseen, linear, amax_histories_.data(), nullptr);
  const auto& w = weights_[linear].w;
  struct Gradients {
    Matrix<float> dx, dw;
  };
  LinearScratch scratch;
  const auto multiply = [&](const LinearRecipe& recipe) {
    Gradients g{Matrix<float>(dy.x.rows, w.cols), Matrix<float>(w.rows, w.cols)};
    LinearWeight weight;
    weight.w = w;
    LinearBackward(recipe, call, inputs_[linear], &weight, dy, &scratch, g.dx.View(), g.dw.View());
    return g;
  };
  const Gradients quantized = multiply(plan_.RecipeOf(pass, linear));
  const Gradients plain = multiply(plan_.Rest());
  const std::string& name = plan_.Name(linear);
  (*products_)(name, {LinearGemm::kDgrad, quantized.dx.View(), plain.dx.View()});
  (*products_)(name, {LinearGemm::kWgrad, quantized.dw.View(), plain.dw.View()});
}

void Linears::RunBackward(const Pass& pass, std::size_t linear, const LinearInput& dy, View dx,
                          std::span<float> gradients) {
  const IeeeArithmetic ieee;
  if (ShowsProducts(pass, linear)) ShowBackward(pass, linear, dy);
  OperandObserver observer;
  const LinearCall call = plan_.CallOf(pass, linear, amax_histories_.data(), &observer);
  const View dw = GradientOf(gradients, plan_.Weight(linear));
  LinearBackward(plan_.RecipeOf(pass, linear), call, inputs_[linear], &weights_[linear], dy,
                 &scratch_, dx, dw);
  if (pass.inspector == nullptr) return;
  (*pass.inspector)(plan_.Name(linear) + ".input.gradient", dx);
  (*pass.inspector)(plan_.Name(linear) + ".weight.gradient", dw);
}

}  // namespace fp4lab
