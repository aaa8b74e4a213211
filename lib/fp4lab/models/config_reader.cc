// config.json of transformers as a model of fp4lab.
#include <algorithm>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/models/family.h"
#include "fp4lab/models/published.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {
namespace {

// Keys with one value that fp4lab's model states; an absent key has it.
struct FixedKey {
  const char* key;
  const char* value;  // JSON
  const char* reason;
};
constexpr FixedKey kFixed[] = {
    {"attention_bias", "false", "linears have no biases"},
    {"mlp_bias", "false", "linears have no biases"},
    {"partial_rotary_factor", "1.0", "all dimensions of a head rotate"},
    {"attention_dropout", "0.0", "nothing is dropped out"},
    {"router_jitter_noise", "0.0", "the router has no noise"},
    {"decoder_sparse_step", "1", "every block has experts"},
    {"quantization_config", "null", "weights are numbers, not codes: dequantize them first"},
    {"rope_scaling", "null", "rotary positions are not scaled"},
};

constexpr int kMostTokens = 1 << 16;

struct NamedActivation {
  Activation activation;
  bool gated;
  std::string_view name;  // "hidden_act"; the first of an activation is what is written
};
constexpr NamedActivation kNames[] = {{Activation::kSwiglu, true, "silu"},
                                      {Activation::kSwiglu, true, "swish"},
                                      {Activation::kSquaredRelu, false, "relu2"},
                                      {Activation::kGelu, false, "gelu_pytorch_tanh"},
                                      {Activation::kGelu, false, "gelu_new"}};

[[noreturn]] void Refuse(const std::string& place, const Json& value, const std::string& reason) {
  throw Error(place, value.dump() + " is not what fp4lab's model states: " + reason);
}

// {"type" or "rope_type": "default"}, which scales nothing.
bool IsPlainRope(const Json& rope) {
  if (!rope.is_object()) return false;
  const Json kind = rope.contains("rope_type") ? rope["rope_type"] : rope.value("type", Json());
  return kind == "default";
}

void CheckFixed(const Json& config, const JsonObject& o) {
  for (const FixedKey& fixed : kFixed) {
    const Json value = config.value(fixed.key, Json());
    if (value.is_null() || value == Json::parse(fixed.value)) continue;
    const bool rope = std::string_view(fixed.key) == "rope_scaling";
    if (rope && IsPlainRope(value)) continue;
    Refuse(o.Where(fixed.key), value, fixed.reason);
  }
}

// 0: no block is marked. N: the blocks N - 1, 2 N - 1, ... are, and no others. -1: neither.
int PeriodOf(const std::vector<bool>& marked) {
  const auto first = std::find(marked.begin(), marked.end(), true);
  if (first == marked.end()) return 0;
  const auto period = static_cast<std::size_t>(first - marked.begin()) + 1;
  for (std::size_t i = 0; i < marked.size(); ++i) {
    if (marked[i] != ((i + 1) % period == 0)) return -1;
  }
  return static_cast<int>(period);
}

class Reader {
 public:
  Reader(const Family& family, const Json& config, const std::string& where)
      : family_(family), given_(config), config_(WithoutNulls(config)), o_(config_, where) {}

  ModelConfig Read(int sequence) {
    CheckFixed(config_, o_);
    ReadSizes(sequence);
    ReadRope();
    ReadActivation();
    o_.Require("rms_norm_eps", &model_.norm_epsilon);
    model_.tied_head = family_.absent_tie;
    o_.Read("tie_word_embeddings", &model_.tied_head);
    model_.qk_norm = family_.qk_norm;
    ReadWindow();
    if (family_.no_rope) ReadNoRope();
    if (!family_.experts.module.empty()) ReadExperts();
    return model_;
  }

 private:
  static Json WithoutNulls(const Json& config) {
    Json kept = Json::object();
    for (const auto& [key, value] : config.items()) {
      if (!value.is_null()) kept[key] = value;
    }
    return kept;
  }

  void ReadSizes(int sequence) {
    o_.Require("num_hidden_layers", &model_.layers);
    o_.Require("hidden_size", &model_.d_model);
    o_.Require("num_attention_heads", &model_.heads);
    o_.Require("intermediate_size", &model_.ffn);
    o_.Require("vocab_size", &model_.vocabulary);
    if (model_.vocabulary > kMostTokens) {
      Refuse(o_.Where("vocab_size"), model_.vocabulary, "tokens have 16 bits, 65536 at most");
    }
    model_.kv_heads = model_.heads;
    o_.Read("num_key_value_heads", &model_.kv_heads);
    model_.head_dim = family_.absent_head_dim;
    o_.Read("head_dim", &model_.head_dim);
    if (static_cast<std::int64_t>(model_.head_dim) * model_.heads == model_.d_model) {
      model_.head_dim = 0;
    }
    int positions = kImportedSequence;
    o_.Read("max_position_embeddings", &positions);
    model_.sequence = sequence > 0 ? sequence : std::min(positions, kImportedSequence);
  }

  void ReadRope() {
    model_.rope_theta = family_.absent_theta;
    o_.Read("rope_theta", &model_.rope_theta);
    const Json* const member = o_.Member("rope_parameters");
    if (member == nullptr) return;
    JsonObject rope(*member, o_.Where("rope_parameters"));
    if (!IsPlainRope(*member)) {
      Refuse(rope.Where("rope_type"), *member, "rotary positions are not scaled");
    }
    rope.Read("rope_theta", &model_.rope_theta);
    const Json part = member->value("partial_rotary_factor", Json(1.0));
    if (part != 1.0) {
      Refuse(rope.Where("partial_rotary_factor"), part, "all dimensions of a head rotate");
    }
  }

  void ReadActivation() {
    std::string name = family_.gated ? "silu" : "relu2";
    o_.Read("hidden_act", &name);
    for (const NamedActivation& row : kNames) {
      if (row.gated != family_.gated || row.name != name) continue;
      model_.activation = row.activation;
      return;
    }
    Refuse(
        o_.Where("hidden_act"), name,
        family_.gated ? "a gated MLP has silu" : "an MLP without gate has relu2 or GELU by tanh");
  }

  void ReadWindow() {
    int window = 0;
    o_.Read("sliding_window", &window);
    bool used = family_.window == WindowKeys::kAlways;
    if (family_.window == WindowKeys::kAlways && !given_.contains("sliding_window")) {
      window = family_.absent_window;
    }
    if (family_.window == WindowKeys::kUsed || family_.window == WindowKeys::kLayers) {
      o_.Read("use_sliding_window", &used);
    }
    std::vector<bool> full(static_cast<std::size_t>(model_.layers), !used || window == 0);
    if (family_.window == WindowKeys::kLayers) full = FullBlocks(full, used && window > 0);
    if (std::count(full.begin(), full.end(), true) == model_.layers) return;
    if (window == 0) {
      throw Error(o_.Where("layer_types"), "has sliding_attention, and no \"sliding_window\"");
    }
    model_.window = window;
    model_.full_attention_every = PeriodOf(full);
    if (model_.full_attention_every < 0) {
      Refuse(o_.Where("layer_types"), config_.value("layer_types", Json()),
             "every N-th block sees all keys, and the others a window");
    }
  }

  // The blocks that see all keys, by "layer_types" or, without it, "max_window_layers".
  std::vector<bool> FullBlocks(std::vector<bool> full, bool windows) {
    std::vector<std::string> types;
    o_.Read("layer_types", &types);
    int last_full = 0;
    o_.Read("max_window_layers", &last_full);
    for (std::size_t i = 0; types.empty() && windows && i < full.size(); ++i) {
      full[i] = static_cast<int>(i) < last_full;
    }
    if (types.empty()) return full;
    if (types.size() != full.size()) {
      throw Error(o_.Where("layer_types"),
                  "must have a name for each of the " + std::to_string(full.size()) + " layers");
    }
    for (std::size_t i = 0; i < full.size(); ++i) {
      full[i] = types[i] == "full_attention";
      if (full[i] || types[i] == "sliding_attention") continue;
      Refuse(o_.Where("layer_types") + "/" + std::to_string(i), types[i],
             "blocks have full_attention or sliding_attention");
    }
    return full;
  }

  // 1: the block has rotary positions.
  void ReadNoRope() {
    std::vector<std::int64_t> rotates;
    o_.Read("no_rope_layers", &rotates);
    int every = 4;
    o_.Read("no_rope_layer_interval", &every);
    if (!rotates.empty()) {
      std::vector<bool> without;
      for (const std::int64_t r : rotates) without.push_back(r == 0);
      every = static_cast<int>(without.size()) == model_.layers ? PeriodOf(without) : -1;
    }
    if (every < 0) {
      Refuse(o_.Where("no_rope_layers"), rotates,
             "every N-th block has no rotary positions, and the others have them");
    }
    model_.no_rope_every = every > model_.layers ? 0 : every;
  }

  void ReadExperts() {
    model_.parts = {"attention", "moe"};
    model_.moe.experts = 0;
    o_.Read("num_experts", &model_.moe.experts);
    o_.Read("num_local_experts", &model_.moe.experts);
    if (model_.moe.experts == 0) o_.Require("num_local_experts", &model_.moe.experts);
    o_.Require("num_experts_per_tok", &model_.moe.top_k);
    if (!family_.normalize_key) return;
    o_.Require("moe_intermediate_size", &model_.moe.ffn);
    model_.moe.normalize = false;
    o_.Read("norm_topk_prob", &model_.moe.normalize);
    ReadDenseBlocks();
  }

  // "mlp_only_layers": blocks with an MLP in place of experts.
  void ReadDenseBlocks() {
    std::vector<std::int64_t> dense;
    o_.Read("mlp_only_layers", &dense);
    for (std::size_t i = 0; i < dense.size(); ++i) {
      if (dense[i] == static_cast<std::int64_t>(i)) continue;
      Refuse(o_.Where("mlp_only_layers"), dense, "blocks without experts are the first ones");
    }
    model_.moe.first_k_dense_replace = static_cast<int>(dense.size());
  }

  const Family& family_;
  const Json& given_;
  Json config_;
  JsonObject o_;
  ModelConfig model_;
};

}  // namespace

ModelConfig ReadPublishedConfig(const Family& family, const Json& config, const std::string& where,
                                int sequence) {
  const IeeeArithmetic ieee;
  JsonObject(config, where);
  const ModelConfig model = Reader(family, config, where).Read(sequence);
  return ReadModelConfig(ToJson(model), where + ", as a model of fp4lab");
}

ModelConfig Comparable(ModelConfig model) {
  const ModelConfig plain;
  model.sequence = plain.sequence;
  model.z_loss = plain.z_loss;
  model.kv_heads = static_cast<int>(KvHeads(model));
  model.head_dim = static_cast<int>(HeadDim(model));
  if (std::find(model.parts.begin(), model.parts.end(), "moe") == model.parts.end()) {
    model.moe = {};
    return model;
  }
  if (model.moe.ffn == 0) model.moe.ffn = model.ffn;
  if (model.moe.first_k_dense_replace == 0) model.ffn = plain.ffn;
  model.moe.balance_loss = plain.moe.balance_loss;
  model.moe.pad_tokens = plain.moe.pad_tokens;
  return model;
}

}  // namespace fp4lab
