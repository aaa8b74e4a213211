// The configuration of a model in JSON.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/router.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/config_members.h"
#include "fp4lab/train/start/named_model.h"

namespace fp4lab {
namespace {

constexpr NamedValue<Activation> kActivations[] = {{Activation::kSquaredRelu, "squared_relu"},
                                                   {Activation::kSwiglu, "swiglu"},
                                                   {Activation::kGelu, "gelu"}};
constexpr NamedValue<RouterScore> kScores[] = {{RouterScore::kSoftmax, "softmax"},
                                               {RouterScore::kSigmoid, "sigmoid"}};

bool HasPart(const std::vector<std::string>& parts, std::string_view name) {
  return std::find(parts.begin(), parts.end(), name) != parts.end();
}

// Names of parts; CheckShapes says which there are.
std::vector<std::string> ReadNames(const Json& json, const std::string& where) {
  if (!json.is_array()) throw Error(where, "must be a list of names");
  std::vector<std::string> names;
  for (const Json& name : json) {
    if (!name.is_string()) {
      throw Error(where + "/" + std::to_string(names.size()), "must be a name");
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

// A list of names, or a list of such lists, which blocks take in turn.
void ReadParts(JsonObject* o, ModelConfig* c) {
  const Json* const json = o->Member("parts");
  if (json == nullptr) return;
  const std::string where = o->Where("parts");
  c->pattern.clear();
  if (!json->is_array() || json->empty() || !json->front().is_array()) {
    c->parts = ReadNames(*json, where);
    return;
  }
  c->parts.clear();
  for (const Json& names : *json) {
    c->pattern.push_back(ReadNames(names, where + "/" + std::to_string(c->pattern.size())));
    for (const std::string& name : c->pattern.back()) {
      if (!HasPart(c->parts, name)) c->parts.push_back(name);
    }
  }
  const bool differ = std::any_of(c->pattern.begin(), c->pattern.end(),
                                  [&](const auto& names) { return names != c->pattern.front(); });
  if (differ) return;
  c->parts = c->pattern.front();
  c->pattern.clear();
}

// The member with the name of the part that reads it. `example`: parts of a block that has it.
template <class Config>
void ReadMemberOfPart(JsonObject* o, std::string_view part,
                      Config (*read)(const Json&, const std::string&),
                      const std::vector<std::string>& parts,
                      const std::vector<std::string>& example, Config* config) {
  if (o->Has(part) && !HasPart(parts, part)) {
    throw Error(o->Where(part), "no part reads it; \"parts\": [\"" + example[0] + "\", \"" +
                                    example[1] + "\"] does");
  }
  ReadMember(o, part, read, config);
}

MoeConfig ReadMoeConfig(const Json& json, const std::string& where) {
  MoeConfig c;
  JsonObject o(json, where);
  o.Read("experts", &c.experts);
  o.Read("top_k", &c.top_k);
  o.Read("ffn", &c.ffn);
  o.Read("shared_experts", &c.shared_experts);
  ReadNamed(&o, "score", kScores, &c.score);
  o.Read("normalize", &c.normalize);
  o.Read("scale", &c.scale);
  o.Read("balance_loss", &c.balance_loss);
  o.Read("bias_rate", &c.bias_rate);
  o.Read("pad_tokens", &c.pad_tokens);
  o.Read("first_k_dense_replace", &c.first_k_dense_replace);
  o.Finish();
  CheckSize(o, "experts", c.experts, 1, 1 << 12);
  CheckSize(o, "top_k", c.top_k, 1, 1 << 12);
  CheckSize(o, "ffn", c.ffn, 0, 1 << 22);
  CheckSize(o, "shared_experts", c.shared_experts, 0, 1 << 8);
  CheckSize(o, "pad_tokens", c.pad_tokens, 1, 1 << 12);
  CheckAtLeast(o, "first_k_dense_replace", c.first_k_dense_replace, 0);
  if (!(c.scale > 0)) throw Error(o.Where("scale"), "must be positive");
  CheckAtLeast(o, "balance_loss", c.balance_loss, 0.0f);
  CheckAtLeast(o, "bias_rate", c.bias_rate, 0.0f);
  return c;
}

Json ToJson(const MoeConfig& c) {
  Json json = {{"experts", c.experts},
               {"top_k", c.top_k},
               {"ffn", c.ffn},
               {"shared_experts", c.shared_experts},
               {"score", NameIn(kScores, c.score)},
               {"normalize", c.normalize},
               {"scale", Shortest(c.scale)},
               {"balance_loss", Shortest(c.balance_loss)},
               {"bias_rate", Shortest(c.bias_rate)},
               {"pad_tokens", c.pad_tokens}};
  if (c.first_k_dense_replace > 0) json["first_k_dense_replace"] = c.first_k_dense_replace;
  return json;
}

MlaConfig ReadMlaConfig(const Json& json, const std::string& where) {
  MlaConfig c;
  JsonObject o(json, where);
  const std::pair<const char*, int*> widths[] = {{"q_lora_rank", &c.q_lora_rank},
                                                 {"kv_lora_rank", &c.kv_lora_rank},
                                                 {"qk_nope_head_dim", &c.qk_nope_head_dim},
                                                 {"qk_rope_head_dim", &c.qk_rope_head_dim},
                                                 {"v_head_dim", &c.v_head_dim}};
  for (const auto& [key, width] : widths) o.Read(key, width);
  o.Finish();
  for (const auto& [key, width] : widths) {
    CheckSize(o, key, *width, width == &c.q_lora_rank ? 0 : 1, 1 << 16);
  }
  if (c.qk_rope_head_dim % 2 != 0) {
    throw Error(o.Where("qk_rope_head_dim"), std::to_string(c.qk_rope_head_dim) +
                                                 " is odd; rotary positions need an even number");
  }
  return c;
}

Json ToJson(const MlaConfig& c) {
  return {{"q_lora_rank", c.q_lora_rank},
          {"kv_lora_rank", c.kv_lora_rank},
          {"qk_nope_head_dim", c.qk_nope_head_dim},
          {"qk_rope_head_dim", c.qk_rope_head_dim},
          {"v_head_dim", c.v_head_dim}};
}

GlaConfig ReadGlaConfig(const Json& json, const std::string& where) {
  GlaConfig c;
  JsonObject o(json, where);
  o.Read("key_head_dim", &c.key_head_dim);
  o.Read("value_head_dim", &c.value_head_dim);
  o.Read("gate_rank", &c.gate_rank);
  o.Finish();
  CheckSize(o, "key_head_dim", c.key_head_dim, 0, 1 << 14);
  CheckSize(o, "value_head_dim", c.value_head_dim, 0, 1 << 14);
  CheckSize(o, "gate_rank", c.gate_rank, 1, 1 << 16);
  return c;
}

Json ToJson(const GlaConfig& c) {
  return {{"key_head_dim", c.key_head_dim},
          {"value_head_dim", c.value_head_dim},
          {"gate_rank", c.gate_rank}};
}

MupConfig ReadMupConfig(const Json& json, const std::string& where) {
  MupConfig c;
  JsonObject o(json, where);
  o.Require("base_d_model", &c.base_d_model);
  o.Read("base_head_dim", &c.base_head_dim);
  o.Finish();
  CheckSize(o, "base_d_model", c.base_d_model, 0, 1 << 20);
  if (!(c.base_head_dim > 0 && std::isfinite(c.base_head_dim))) {
    throw Error(o.Where("base_head_dim"), "must be positive");
  }
  return c.base_d_model == 0 ? MupConfig() : c;
}

Json ToJson(const MupConfig& c) {
  return {{"base_d_model", c.base_d_model}, {"base_head_dim", Shortest(c.base_head_dim)}};
}

constexpr float kMostOutlierGain = 1048576.0f;

OutlierConfig ReadOutlierConfig(const Json& json, const std::string& where) {
  OutlierConfig c;
  JsonObject o(json, where);
  o.Require("gain", &c.gain);
  o.Read("channels", &c.channels);
  o.Read("places", &c.places);
  o.Read("step", &c.step);
  o.Finish();
  CheckPowerOfTwo(o, "gain", c.gain, 1.0f, kMostOutlierGain);
  CheckSize(o, "channels", c.channels, 1, 1 << 20);
  CheckAtLeast<std::int64_t>(o, "step", c.step, 0);
  if (c.places.empty()) throw Error(o.Where("places"), "needs a place");
  return c.gain == 1.0f ? OutlierConfig() : c;
}

Json ToJson(const OutlierConfig& c) {
  return {
      {"gain", Shortest(c.gain)}, {"channels", c.channels}, {"places", c.places}, {"step", c.step}};
}

}  // namespace

std::string_view ActivationName(Activation activation) { return NameIn(kActivations, activation); }

ModelConfig ReadModelConfig(const Json& given, const std::string& where) {
  const IeeeArithmetic ieee;
  const Json json = WithNamedModel(given, where);
  ModelConfig c;
  JsonObject o(json, where);
  for (const char* read_before : {"preset", "from"}) o.Member(read_before);  // for a typo's remedy
  o.Read("layers", &c.layers);
  o.Read("d_model", &c.d_model);
  o.Read("heads", &c.heads);
  o.Read("kv_heads", &c.kv_heads);
  o.Read("ffn", &c.ffn);
  o.Read("sequence", &c.sequence);
  o.Read("vocabulary", &c.vocabulary);
  ReadNamed(&o, "activation", kActivations, &c.activation);
  o.Read("tied_head", &c.tied_head);
  o.Read("norm_epsilon", &c.norm_epsilon);
  o.Read("rope_theta", &c.rope_theta);
  ReadParts(&o, &c);
  o.Read("head_dim", &c.head_dim);
  o.Read("qk_norm", &c.qk_norm);
  o.Read("window", &c.window);
  o.Read("full_attention_every", &c.full_attention_every);
  o.Read("no_rope_every", &c.no_rope_every);
  o.Read("logit_soft_cap", &c.logit_soft_cap);
  o.Read("z_loss", &c.z_loss);
  ReadMember(&o, "outliers", &ReadOutlierConfig, &c.outliers);
  ReadMember(&o, "mup", &ReadMupConfig, &c.mup);
  ReadMemberOfPart(&o, "moe", &ReadMoeConfig, c.parts, {"attention", "moe"}, &c.moe);
  ReadMemberOfPart(&o, "mla", &ReadMlaConfig, c.parts, {"mla", "mlp"}, &c.mla);
  ReadMemberOfPart(&o, "gla", &ReadGlaConfig, c.parts, {"gla", "mlp"}, &c.gla);
  o.Finish();
  CheckSize(o, "layers", c.layers, 1, 1 << 14);
  CheckSize(o, "d_model", c.d_model, 1, 1 << 20);
  CheckSize(o, "heads", c.heads, 1, 1 << 20);
  CheckSize(o, "kv_heads", c.kv_heads, 0, 1 << 20);
  CheckSize(o, "ffn", c.ffn, 1, 1 << 22);
  CheckSize(o, "sequence", c.sequence, 1, 1 << 20);
  CheckSize(o, "vocabulary", c.vocabulary, 2, 65536);
  CheckSize(o, "head_dim", c.head_dim, 0, 1 << 14);
  CheckSize(o, "window", c.window, 0, 1 << 20);
  CheckAtLeast(o, "logit_soft_cap", c.logit_soft_cap, 0.0f);
  CheckAtLeast(o, "z_loss", c.z_loss, 0.0f);
  CheckSize(o, "full_attention_every", c.full_attention_every, 0, 1 << 14);
  CheckSize(o, "no_rope_every", c.no_rope_every, 0, 1 << 14);
  if (!(c.norm_epsilon > 0)) throw Error(o.Where("norm_epsilon"), "must be positive");
  if (!(c.rope_theta > 1)) throw Error(o.Where("rope_theta"), "must be above 1");
  return c;
}

Json ToJson(const ModelConfig& c) {
  const IeeeArithmetic ieee;
  Json json = {{"layers", c.layers},
               {"d_model", c.d_model},
               {"heads", c.heads},
               {"kv_heads", c.kv_heads},
               {"ffn", c.ffn},
               {"sequence", c.sequence},
               {"vocabulary", c.vocabulary},
               {"activation", ActivationName(c.activation)},
               {"tied_head", c.tied_head},
               {"norm_epsilon", Shortest(c.norm_epsilon)},
               {"rope_theta", Shortest(c.rope_theta)}};
  const ModelConfig before;
  if (!c.pattern.empty()) {
    json["parts"] = c.pattern;
  } else if (c.parts != before.parts) {
    json["parts"] = c.parts;
  }
  const auto add = [&](const char* key, auto ModelConfig::*member) {
    if (c.*member != before.*member) json[key] = c.*member;
  };
  add("head_dim", &ModelConfig::head_dim);
  add("qk_norm", &ModelConfig::qk_norm);
  add("window", &ModelConfig::window);
  add("full_attention_every", &ModelConfig::full_attention_every);
  add("no_rope_every", &ModelConfig::no_rope_every);
  if (c.logit_soft_cap != 0.0f) json["logit_soft_cap"] = Shortest(c.logit_soft_cap);
  if (c.z_loss != 0.0f) json["z_loss"] = Shortest(c.z_loss);
  if (HasPart(c.parts, "moe")) json["moe"] = ToJson(c.moe);
  if (HasPart(c.parts, "mla")) json["mla"] = ToJson(c.mla);
  if (HasPart(c.parts, "gla")) json["gla"] = ToJson(c.gla);
  if (c.mup != before.mup) json["mup"] = ToJson(c.mup);
  if (c.outliers != before.outliers) json["outliers"] = ToJson(c.outliers);
  return json;
}

}  // namespace fp4lab
