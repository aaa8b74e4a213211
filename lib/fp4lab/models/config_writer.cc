// A model of fp4lab as config.json of transformers.
#include <algorithm>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/models/family.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {
namespace {

const char* HiddenAct(Activation activation) {
  switch (activation) {
    case Activation::kSwiglu:
      return "silu";
    case Activation::kSquaredRelu:
      return "relu2";
    case Activation::kGelu:
      return "gelu_pytorch_tanh";
  }
  return "";
}

bool IsEvery(int n, int block) { return n > 0 && (block + 1) % n == 0; }

void AddWindow(const Family& family, const ModelConfig& m, Json* config) {
  const bool windows = m.window > 0;
  if (family.window == WindowKeys::kNone) return;
  (*config)["sliding_window"] = windows ? Json(m.window) : Json();
  if (family.window == WindowKeys::kAlways) return;
  (*config)["use_sliding_window"] = windows;
  if (family.window != WindowKeys::kLayers) return;
  Json types = Json::array();
  for (int i = 0; i < m.layers; ++i) {
    const bool full = !windows || IsEvery(m.full_attention_every, i);
    types.push_back(full ? "full_attention" : "sliding_attention");
  }
  (*config)["layer_types"] = std::move(types);
}

void AddExperts(const Family& family, const ModelConfig& m, Json* config) {
  if (family.experts.module.empty()) return;
  const int ffn = m.moe.ffn > 0 ? m.moe.ffn : m.ffn;
  (*config)["num_experts_per_tok"] = m.moe.top_k;
  (*config)["num_local_experts"] = m.moe.experts;
  if (!family.normalize_key) {
    (*config)["intermediate_size"] = ffn;
    return;
  }
  (*config)["num_experts"] = m.moe.experts;
  (*config)["moe_intermediate_size"] = ffn;
  (*config)["norm_topk_prob"] = m.moe.normalize;
  (*config)["decoder_sparse_step"] = 1;
  Json& dense = (*config)["mlp_only_layers"] = Json::array();
  for (int i = 0; i < m.moe.first_k_dense_replace; ++i) dense.push_back(i);
}

}  // namespace

Json PublishedConfig(const Family& family, const ModelConfig& m) {
  const IeeeArithmetic ieee;
  const Json ours = ToJson(m);  // numbers in their shortest form
  Json config = {
      {"architectures", Json::array({std::string(family.architecture)})},
      {"model_type", family.model_type},
      {"hidden_act", HiddenAct(m.activation)},
      {"hidden_size", m.d_model},
      {"intermediate_size", m.ffn},
      {"num_hidden_layers", m.layers},
      {"num_attention_heads", m.heads},
      {"num_key_value_heads", KvHeads(m)},
      {"head_dim", HeadDim(m)},
      {"vocab_size", m.vocabulary},
      {"max_position_embeddings", m.sequence},
      {"rms_norm_eps", ours.at("norm_epsilon")},
      {"rope_theta", ours.at("rope_theta")},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", ours.at("rope_theta")}}},
      {"tie_word_embeddings", m.tied_head},
      {"attention_dropout", 0.0}};
  if (family.bias_keys) config["attention_bias"] = config["mlp_bias"] = false;
  AddWindow(family, m, &config);
  AddExperts(family, m, &config);
  if (family.no_rope) {
    Json rotates = Json::array();
    for (int i = 0; i < m.layers; ++i) rotates.push_back(IsEvery(m.no_rope_every, i) ? 0 : 1);
    config["no_rope_layers"] = std::move(rotates);
  }
  return config;
}

}  // namespace fp4lab
