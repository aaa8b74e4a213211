#include "fp4lab/train/model.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/embedding.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"

namespace fp4lab {
namespace {

std::size_t UpWidth(const ModelConfig& c) { return BlockLinears(c)[kUp].out; }

constexpr std::size_t kCacheLineFloats = 16;

}  // namespace

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

Model::Model(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
             std::size_t max_sequences, std::span<float> amax_histories)
    : config_(config),
      plan_(config, recipe),
      layout_(MakeLayout(config)),
      parameters_(parameters),
      amax_histories_(amax_histories),
      rope_(MakeRopeTable(static_cast<std::size_t>(config.sequence), HeadDim(config),
                          config.rope_theta)) {
  Expects(parameters.size() == layout_.total, "Model: parameters of MakeLayout(config).total");
  Expects(amax_histories.size() == AmaxHistoryFloats(config, recipe),
          "Model: amax histories of all linears' operands");
  for (std::size_t l = 0; l < plan_.Count(); ++l) {
    const ParameterSlice& slice = plan_.Weight(l);
    weights_.emplace_back().w = {parameters_.data() + slice.offset, slice.rows, slice.cols};
  }
  inputs_.resize(weights_.size());
  SetRows(max_sequences * static_cast<std::size_t>(config.sequence));
}

void Model::AdvanceAmaxHistories() {
  const IeeeArithmetic ieee;
  if (amax_histories_.empty()) return;
  float* history = amax_histories_.data();
  for (const DelayedScaling& operand : plan_.Delayed()) {
    AdvanceAmaxHistory(operand, history);
    history += plan_.HistoryStride();
  }
}

void Model::ParametersChanged() {
  for (LinearWeight& w : weights_) w.Changed();
}

Model::View Model::Take(std::size_t rows, std::size_t cols, std::size_t* used) {
  const View view(memory_.data() + *used, rows, cols);
  *used += RoundUp(rows * cols, kCacheLineFloats);
  return view;
}

// Lays the views out for `rows` rows. The first call has the most rows and allocates the memory: it
// lays the views out twice, first to learn the size.
void Model::SetRows(std::size_t rows) {
  if (rows == rows_) return;
  const auto d = static_cast<std::size_t>(config_.d_model);
  const auto f = static_cast<std::size_t>(config_.ffn);
  const auto sequence = static_cast<std::size_t>(config_.sequence);
  attention_shape_ = {rows / sequence, sequence, static_cast<std::size_t>(config_.heads),
                      KvHeads(config_), HeadDim(config_)};
  const std::size_t qkv = d + 2 * KvWidth(config_), up = UpWidth(config_);
  blocks_.resize(static_cast<std::size_t>(config_.layers));
  std::size_t used = 0;
  const auto lay_out = [&] {
    used = 0;
    const auto matrix = [&](std::size_t cols) { return Take(rows, cols, &used); };
    const auto column = [&](std::size_t size) {
      const View view = Take(1, size, &used);
      return std::span<float>(view.data, size);
    };
    for (BlockActivations& a : blocks_) {
      a = {matrix(d),    matrix(d),
           matrix(qkv),  matrix(d),
           matrix(d),    matrix(d),
           matrix(up),   matrix(f),
           column(rows), column(attention_shape_.StatisticsSize()),
           column(rows)};
    }
    last_ = matrix(d);
    final_norm_ = matrix(d);
    final_inverse_rms_ = column(rows);
    d_residual_ = matrix(d);
    d_narrow_ = matrix(d);
    // Tensors that are never alive together share one place: the logits (until the backward pass
    // leaves the head) and the wide gradients of a block's two halves.
    const std::size_t place = used;
    std::size_t end = used;
    const auto share = [&](auto&& lay_out_one) {
      used = place;
      lay_out_one();
      end = std::max(end, used);
    };
    share([&] { logits_ = matrix(static_cast<std::size_t>(config_.vocabulary)); });
    share([&] {
      d_wide_ = matrix(f);
      d_up_ = config_.activation == Activation::kSwiglu ? matrix(up) : d_wide_;
    });
    share([&] { d_qkv_ = matrix(qkv); });
    used = end;
  };
  if (rows_ == 0) {
    lay_out();
    memory_.resize(used);
  }
  lay_out();
  Expects(used <= memory_.size(), "Model: no more sequences than max_sequences");
  rows_ = rows;
}

Model::View Model::Slice(const View& qkv, int part) const {
  const auto d = static_cast<std::size_t>(config_.d_model);
  const std::size_t kv = KvWidth(config_);
  if (part == 0) return qkv.Block(0, 0, qkv.rows, d);
  return qkv.Block(0, part == 1 ? d : d + kv, qkv.rows, kv);
}

Model::View Model::QueriesAndKeys(const View& qkv) const {
  return qkv.Block(0, 0, qkv.rows, qkv.cols - KvWidth(config_));
}

std::size_t Model::PieceRows(const View& x) {
  constexpr std::size_t kElements = 4096;  // 16 KiB
  return std::max<std::size_t>(1, kElements / x.cols);
}

bool Model::SharesOutSequences() const {
  return attention_shape_.batch >= 2 * static_cast<std::size_t>(Threads());
}

void Model::ForEachSequence(const SequenceStep& step) const {
  if (!SharesOutSequences()) return step(0, attention_shape_);
  AttentionShape one = attention_shape_;
  one.batch = 1;
  ParallelFor(attention_shape_.batch, [&](std::size_t i) { step(i * one.sequence, one); });
}

std::span<float> Model::StatisticsOf(const BlockActivations& a, std::size_t row,
                                     const AttentionShape& shape) {
  return a.attention_statistics.subspan(2 * row * shape.heads, shape.StatisticsSize());
}

std::span<const float> Model::Gain(const ParameterSlice& slice) const {
  return parameters_.subspan(slice.offset, slice.size());
}

void Model::Inspect(const Pass& pass, int block, const char* name,
                    MatrixView<const float> x) const {
  if (pass.inspector == nullptr) return;
  const std::string prefix = block < 0 ? "" : "blocks." + std::to_string(block) + ".";
  (*pass.inspector)(prefix + name, x);
}

LinearInput Model::MakeRounded(const Pass& pass, std::size_t linear, std::size_t piece_rows,
                               View out, const MakeRows& make) {
  const bool bf16 = plan_.RecipeOf(pass, linear).bf16;
  piece_amax_.assign(DivideUp(out.rows, piece_rows), 0.0f);
  ParallelFor(piece_amax_.size(), [&](std::size_t p) {
    const std::size_t first = p * piece_rows, rows = std::min(piece_rows, out.rows - first);
    piece_amax_[p] = make(first, rows, bf16);
  });
  return {out, bf16, *std::max_element(piece_amax_.begin(), piece_amax_.end())};
}

void Model::MakeNorm(const Pass& pass, std::size_t linear, View x, std::span<const float> gain,
                     View out, std::span<float> inverse_rms, float* copy) {
  const auto make = [&](std::size_t first, std::size_t rows, bool bf16) {
    const View piece = x.Block(first, 0, rows, x.cols), to = out.Block(first, 0, rows, out.cols);
    const auto inverse = inverse_rms.subspan(first, rows);
    float amax = 0.0f;
    if (bf16) {
      amax = RmsNormToBf16(piece, gain, config_.norm_epsilon, to, inverse);
    } else {
      RmsNorm(piece, gain, config_.norm_epsilon, to, inverse);
    }
    if (copy != nullptr) std::copy_n(piece.data, piece.size(), copy + first * x.cols);
    return amax;
  };
  inputs_[linear] = MakeRounded(pass, linear, PieceRows(out), out, make);
}

bool Model::ShowsProducts(const Pass& pass, std::size_t linear) const {
  if (products_ == nullptr || pass.high_precision) return false;
  return plan_.RecipeOf(pass, linear) != plan_.Rest();
}

void Model::ShowForward(const Pass& pass, std::size_t linear) {
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

void Model::RunLinear(const Pass& pass, std::size_t linear, Write write, View y) {
  if (ShowsProducts(pass, linear)) ShowForward(pass, linear);
  OperandObserver observer;
  const LinearCall call = plan_.CallOf(pass, linear, amax_histories_.data(), &observer);
  LinearForward(plan_.RecipeOf(pass, linear), call, inputs_[linear], &weights_[linear], &scratch_,
                write, y);
}

void Model::ForwardBlock(const Pass& pass, int block, View out) {
  BlockActivations& a = blocks_[static_cast<std::size_t>(block)];
  const auto b = static_cast<std::size_t>(block);
  MakeNorm(pass, plan_.Index(block, kQkv), a.x, Gain(layout_.attention_gains[b]), a.attention_norm,
           a.attention_inverse_rms, a.mid.data);
  Inspect(pass, block, "attention_norm.output", a.attention_norm);
  RunLinear(pass, plan_.Index(block, kQkv), Write::kOverwrite, a.qkv);
  Inspect(pass, block, "attention.qkv.output", a.qkv);
  ForwardAttention(a);
  Inspect(pass, block, "attention.output", a.attention);
  // a.attention is not rounded in place, because attention's backward pass reads it.
  inputs_[plan_.Index(block, kOut)] = {a.attention};
  RunLinear(pass, plan_.Index(block, kOut), Write::kAccumulate, a.mid);
  Inspect(pass, block, "attention.out.output", a.mid);

  MakeNorm(pass, plan_.Index(block, kUp), a.mid, Gain(layout_.mlp_gains[b]), a.mlp_norm,
           a.mlp_inverse_rms, out.data);
  Inspect(pass, block, "mlp_norm.output", a.mlp_norm);
  RunLinear(pass, plan_.Index(block, kUp), Write::kOverwrite, a.up);
  Inspect(pass, block, "mlp.up.output", a.up);
  inputs_[plan_.Index(block, kDown)] =
      MakeRounded(pass, plan_.Index(block, kDown), PieceRows(a.activated), a.activated,
                  [&](std::size_t first, std::size_t rows, bool bf16) {
                    return Activate(a, first, rows, bf16);
                  });
  Inspect(pass, block, "mlp.activation.output", a.activated);
  RunLinear(pass, plan_.Index(block, kDown), Write::kAccumulate, out);
  Inspect(pass, block, "mlp.down.output", out);
}

// Rope and attention, one sequence at a time, so that attention finds Rope's results in the cache.
void Model::ForwardAttention(const BlockActivations& a) const {
  ForEachSequence([&](std::size_t row, const AttentionShape& shape) {
    const auto rows = [&](const View& x) { return x.Block(row, 0, shape.Rows(), x.cols); };
    const View qkv = rows(a.qkv);
    Rope(rope_, QueriesAndKeys(qkv));
    Attention(shape, Slice(qkv, 0), Slice(qkv, 1), Slice(qkv, 2), rows(a.attention),
              StatisticsOf(a, row, shape));
  });
}

float Model::Activate(const BlockActivations& a, std::size_t first, std::size_t rows,
                      bool bf16) const {
  const std::size_t f = a.activated.cols;
  const View out = a.activated.Block(first, 0, rows, f);
  const View up = a.up.Block(first, 0, rows, a.up.cols);
  switch (config_.activation) {
    case Activation::kSquaredRelu:
      if (bf16) return SquaredReluToBf16(up, out);
      SquaredRelu(up, out);
      return 0.0f;
    case Activation::kGelu:
      if (bf16) return GeluToBf16(up, out);
      Gelu(up, out);
      return 0.0f;
    case Activation::kSwiglu:
      Swiglu(up.Block(0, 0, rows, f), up.Block(0, f, rows, f), out);
      return bf16 ? RoundBf16(out, out) : 0.0f;
  }
  return 0.0f;
}

void Model::Forward(const Pass& pass, std::span<const std::uint16_t> tokens) {
  const IeeeArithmetic ieee;
  SetRows(tokens.size());
  const ParameterSlice& e = layout_.embedding;
  const View first = blocks_.front().x;
  Embedding({parameters_.data() + e.offset, e.rows, e.cols}, tokens, first);
  Inspect(pass, -1, "embedding.output", first);
  for (int b = 0; b < config_.layers; ++b) {
    const bool at_end = b + 1 == config_.layers;
    ForwardBlock(pass, b, at_end ? last_ : blocks_[static_cast<std::size_t>(b) + 1].x);
  }
  MakeNorm(pass, plan_.Head(), last_, Gain(layout_.final_gain), final_norm_, final_inverse_rms_,
           nullptr);
  Inspect(pass, -1, "final_norm.output", final_norm_);
  RunLinear(pass, plan_.Head(), Write::kOverwrite, logits_);
  Inspect(pass, -1, "head.output", logits_);
}

}  // namespace fp4lab
