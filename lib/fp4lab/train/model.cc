#include "fp4lab/train/model.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/embedding.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"

namespace fp4lab {
namespace {

std::size_t UpWidth(const ModelConfig& c) { return BlockLinears(c)[kUp].out; }

// Pieces of memory_ start on a cache line.
std::size_t RoundedUp(std::size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

Model::Model(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
             std::size_t max_sequences)
    : config_(config),
      recipe_(recipe),
      layout_(MakeLayout(config)),
      parameters_(parameters),
      rope_(MakeRopeTable(static_cast<std::size_t>(config.sequence), HeadDim(config),
                          config.rope_theta)) {
  Expects(parameters.size() == layout_.total, "Model: parameters of MakeLayout(config).total");
  const auto weight = [&](const ParameterSlice& s) {
    LinearWeight w;
    w.w = {parameters_.data() + s.offset, s.rows, s.cols};
    weights_.push_back(std::move(w));
  };
  for (const ParameterSlice& slice : layout_.block_linears) weight(slice);
  weight(layout_.head);
  for (std::size_t l = 0; l < HeadIndex(); ++l) {
    recipes_.push_back(
        &RecipeOf(recipe_, LinearName(l), static_cast<int>(l / kLinearsPerBlock), config_.layers));
  }
  recipes_.push_back(&recipe_.rest);
  inputs_.resize(weights_.size());
  SetRows(max_sequences * static_cast<std::size_t>(config.sequence));
}

std::uint32_t Model::TensorsPerPass() const {
  return static_cast<std::uint32_t>(weights_.size()) * kLinearOperands;
}

void Model::ParametersChanged() {
  for (LinearWeight& w : weights_) w.Changed();
}

Model::View Model::Take(std::size_t rows, std::size_t cols, std::size_t* used) {
  const View view(memory_.data() + *used, rows, cols);
  *used += RoundedUp(rows * cols);
  return view;
}

// Lays the views out for `rows` rows. The first call, with the most rows, takes the memory: laid
// out twice, first to learn the size.
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
    logits_ = matrix(static_cast<std::size_t>(config_.vocabulary));
    final_inverse_rms_ = column(rows);
    d_residual_ = matrix(d);
    d_narrow_ = matrix(d);
    d_wide_ = matrix(f);
    d_up_ = config_.activation == Activation::kSwiglu ? matrix(up) : d_wide_;
    d_qkv_ = matrix(qkv);
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

std::span<const float> Model::Gain(const ParameterSlice& slice) const {
  return parameters_.subspan(slice.offset, slice.size());
}

std::size_t Model::Index(int block, BlockLinear linear) const {
  return static_cast<std::size_t>(block) * kLinearsPerBlock + linear;
}

std::string Model::LinearName(std::size_t linear) const {
  const std::string& weight =
      linear == HeadIndex() ? layout_.head.name : layout_.block_linears[linear].name;
  if (linear == HeadIndex()) return "head";
  return weight.substr(0, weight.rfind('.'));
}

const LinearRecipe& Model::RecipeFor(const Pass& pass, std::size_t linear) const {
  return pass.high_precision ? recipe_.rest : *recipes_[linear];
}

void Model::Inspect(const Pass& pass, int block, const char* name,
                    MatrixView<const float> x) const {
  if (pass.inspector == nullptr) return;
  const std::string prefix = block < 0 ? "" : "blocks." + std::to_string(block) + ".";
  (*pass.inspector)(prefix + name, x);
}

void Model::OwnInput(const Pass& pass, std::size_t linear, View x) {
  inputs_[linear] = {x};
  if (!RecipeFor(pass, linear).bf16) return;
  inputs_[linear].amax = RoundBf16(x, x);
  inputs_[linear].rounded = true;
}

void Model::RunLinear(const Pass& pass, std::size_t linear, Write write, View y) {
  LinearCall call{.random = pass.random};
  call.random.tensor += static_cast<std::uint32_t>(linear) * kLinearOperands;
  OperandObserver observer;
  if (pass.observer != nullptr) {
    observer = [&](LinearOperand operand, auto before, auto values, const auto& options) {
      (*pass.observer)(LinearName(linear), operand, before, values, options);
    };
    call.observer = &observer;
  }
  LinearForward(RecipeFor(pass, linear), call, inputs_[linear], &weights_[linear], &scratch_, write,
                y);
}

void Model::ForwardBlock(const Pass& pass, int block, View out) {
  BlockActivations& a = blocks_[static_cast<std::size_t>(block)];
  const auto b = static_cast<std::size_t>(block);
  RmsNorm(a.x, Gain(layout_.attention_gains[b]), config_.norm_epsilon, a.attention_norm,
          a.attention_inverse_rms);
  Inspect(pass, block, "attention_norm.output", a.attention_norm);
  OwnInput(pass, Index(block, kQkv), a.attention_norm);
  RunLinear(pass, Index(block, kQkv), Write::kOverwrite, a.qkv);
  Inspect(pass, block, "attention.qkv.output", a.qkv);
  Rope(rope_, Slice(a.qkv, 0));
  Rope(rope_, Slice(a.qkv, 1));
  Attention(attention_shape_, Slice(a.qkv, 0), Slice(a.qkv, 1), Slice(a.qkv, 2), a.attention,
            a.attention_statistics);
  Inspect(pass, block, "attention.output", a.attention);
  std::copy_n(a.x.data, a.x.size(), a.mid.data);
  inputs_[Index(block, kOut)] = {a.attention};  // attention's backward pass reads it too
  RunLinear(pass, Index(block, kOut), Write::kAccumulate, a.mid);
  Inspect(pass, block, "attention.out.output", a.mid);

  RmsNorm(a.mid, Gain(layout_.mlp_gains[b]), config_.norm_epsilon, a.mlp_norm, a.mlp_inverse_rms);
  Inspect(pass, block, "mlp_norm.output", a.mlp_norm);
  OwnInput(pass, Index(block, kUp), a.mlp_norm);
  RunLinear(pass, Index(block, kUp), Write::kOverwrite, a.up);
  Inspect(pass, block, "mlp.up.output", a.up);
  Activate(a);
  Inspect(pass, block, "mlp.activation.output", a.activated);
  std::copy_n(a.mid.data, a.mid.size(), out.data);
  OwnInput(pass, Index(block, kDown), a.activated);
  RunLinear(pass, Index(block, kDown), Write::kAccumulate, out);
  Inspect(pass, block, "mlp.down.output", out);
}

void Model::Activate(const BlockActivations& a) const {
  const std::size_t f = a.activated.cols;
  switch (config_.activation) {
    case Activation::kSquaredRelu:
      return SquaredRelu(a.up, a.activated);
    case Activation::kGelu:
      return Gelu(a.up, a.activated);
    case Activation::kSwiglu:
      return Swiglu(a.up.Block(0, 0, rows_, f), a.up.Block(0, f, rows_, f), a.activated);
  }
}

void Model::Forward(const Pass& pass, std::span<const std::uint16_t> tokens) {
  SetRows(tokens.size());
  const ParameterSlice& e = layout_.embedding;
  const View first = blocks_.front().x;
  Embedding({parameters_.data() + e.offset, e.rows, e.cols}, tokens, first);
  Inspect(pass, -1, "embedding.output", first);
  for (int b = 0; b < config_.layers; ++b) {
    const bool at_end = b + 1 == config_.layers;
    ForwardBlock(pass, b, at_end ? last_ : blocks_[static_cast<std::size_t>(b) + 1].x);
  }
  RmsNorm(last_, Gain(layout_.final_gain), config_.norm_epsilon, final_norm_, final_inverse_rms_);
  Inspect(pass, -1, "final_norm.output", final_norm_);
  OwnInput(pass, HeadIndex(), final_norm_);
  RunLinear(pass, HeadIndex(), Write::kOverwrite, logits_);
  Inspect(pass, -1, "head.output", logits_);
}

}  // namespace fp4lab
