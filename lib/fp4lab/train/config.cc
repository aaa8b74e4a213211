#include "fp4lab/train/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/router.h"
#include "fp4lab/train/start/named_model.h"

namespace fp4lab {
namespace {

struct NamedActivation {
  Activation activation;
  std::string_view name;
};
constexpr NamedActivation kActivations[] = {{Activation::kSquaredRelu, "squared_relu"},
                                            {Activation::kSwiglu, "swiglu"},
                                            {Activation::kGelu, "gelu"}};

struct NamedDevice {
  Device device;
  std::string_view name;
};
struct NamedScore {
  RouterScore value;
  std::string_view name;
};
constexpr NamedScore kScores[] = {{RouterScore::kSoftmax, "softmax"},
                                  {RouterScore::kSigmoid, "sigmoid"}};

struct NamedLossScaling {
  LossScalingKind value;
  std::string_view name;
};
constexpr NamedLossScaling kLossScalings[] = {{LossScalingKind::kNone, "none"},
                                              {LossScalingKind::kStatic, "static"},
                                              {LossScalingKind::kDynamic, "dynamic"}};

struct NamedMuonScale {
  MuonScale value;
  std::string_view name;
};
constexpr NamedMuonScale kMuonScales[] = {{MuonScale::kMoonlight, "moonlight"},
                                          {MuonScale::kKellerJordan, "keller_jordan"}};

constexpr NamedDevice kDevices[] = {{Device::kCpu, "cpu"}, {Device::kCuda, "cuda"}};

Activation ReadActivation(JsonObject* o, Activation value) {
  std::string name = std::string(ActivationName(value));
  o->Read("activation", &name);
  for (const NamedActivation& a : kActivations) {
    if (a.name == name) return a.activation;
  }
  throw Error(o->Where("activation"), "must be squared_relu, swiglu or gelu, not \"" + name + "\"");
}

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

// The double that prints like the float: 0.95, not 0.949999988079071.
double Shortest(float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double result = 0.0;
  std::from_chars(text, end, result);
  return result;
}

template <class T>
void CheckAtLeast(const JsonObject& o, std::string_view key, T value, T least) {
  if (value >= least) return;
  throw Error(o.Where(key), "must be at least " + Json(least).dump());
}

void CheckFraction(const JsonObject& o, std::string_view key, float value) {
  if (value >= 0.0f && value < 1.0f) return;
  throw Error(o.Where(key), "must be in [0, 1)");
}

// Refuses sizes beyond those of any model, so that products of sizes stay within 64 bits.
void CheckSize(const JsonObject& o, std::string_view key, int value, int least, int most) {
  CheckAtLeast(o, key, value, least);
  if (value > most) throw Error(o.Where(key), "must be at most " + std::to_string(most));
}

template <class Config>
void ReadMember(JsonObject* o, std::string_view key,
                Config (*read)(const Json&, const std::string&), Config* config) {
  if (const Json* json = o->Member(key)) *config = read(*json, o->Where(key));
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

// "fp32" or "bf16", the precision of Newton-Schulz.
std::string_view PrecisionName(bool bf16) { return bf16 ? "bf16" : "fp32"; }

// The name of a value in its table.
template <class Row, std::size_t kRows, class Value>
std::string_view NameIn(const Row (&table)[kRows], Value value) {
  for (const Row& row : table) {
    if (row.value == value) return row.name;
  }
  return "";
}

// The value that `key` names, `value` if it is left out. Both tables have two rows.
template <class Row, class Value>
Value ReadNamed(JsonObject* o, std::string_view key, const Row (&table)[2], Value value) {
  std::string name(NameIn(table, value));
  o->Read(key, &name);
  for (const Row& row : table) {
    if (row.name == name) return row.value;
  }
  throw Error(o->Where(key), "must be " + std::string(table[0].name) + " or " +
                                 std::string(table[1].name) + ", not \"" + name + "\"");
}

MoeConfig ReadMoeConfig(const Json& json, const std::string& where) {
  MoeConfig c;
  JsonObject o(json, where);
  o.Read("experts", &c.experts);
  o.Read("top_k", &c.top_k);
  o.Read("ffn", &c.ffn);
  o.Read("shared_experts", &c.shared_experts);
  c.score = ReadNamed(&o, "score", kScores, c.score);
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

constexpr int kMostNewtonSchulzSteps = 64;

MuonConfig ReadMuonConfig(const Json& json, const std::string& where) {
  MuonConfig c;
  JsonObject o(json, where);
  o.Read("momentum", &c.momentum);
  o.Read("nesterov", &c.nesterov);
  o.Read("steps", &c.steps);
  std::string precision(PrecisionName(c.bf16));
  o.Read("precision", &precision);
  c.scale = ReadNamed(&o, "scale", kMuonScales, c.scale);
  o.Read("split_fused", &c.split_fused);
  o.Finish();
  CheckFraction(o, "momentum", c.momentum);
  CheckSize(o, "steps", c.steps, 1, kMostNewtonSchulzSteps);
  c.bf16 = precision == PrecisionName(true);
  if (precision != PrecisionName(c.bf16)) {
    throw Error(o.Where("precision"), "must be fp32 or bf16, not \"" + precision + "\"");
  }
  return c;
}

Json ToJson(const MuonConfig& c) {
  return {{"momentum", Shortest(c.momentum)},
          {"nesterov", c.nesterov},
          {"steps", c.steps},
          {"precision", PrecisionName(c.bf16)},
          {"scale", NameIn(kMuonScales, c.scale)},
          {"split_fused", c.split_fused}};
}

// Throws Error unless the value is a power of two from `least` to `most`.
void CheckPowerOfTwo(const JsonObject& o, std::string_view key, float value, float least,
                     float most) {
  int exponent = 0;
  if (std::frexp(value, &exponent) == 0.5f && value >= least && value <= most) return;
  throw Error(o.Where(key), "must be a power of two from " + Json(Shortest(least)).dump() + " to " +
                                Json(Shortest(most)).dump());
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

LossScalingConfig ReadLossScaling(const Json& json, const std::string& where) {
  LossScalingConfig c;
  JsonObject o(json, where);
  std::string kind;
  o.Require("kind", &kind);
  const auto row = std::find_if(std::begin(kLossScalings), std::end(kLossScalings),
                                [&](const NamedLossScaling& s) { return s.name == kind; });
  if (row == std::end(kLossScalings)) {
    throw Error(o.Where("kind"), "must be none, static or dynamic, not \"" + kind + "\"");
  }
  c.kind = row->value;
  o.Read("scale", &c.scale);
  o.Read("growth_interval", &c.growth_interval);
  o.Finish();
  CheckPowerOfTwo(o, "scale", c.scale, 1.0f, kMostLossScale);
  CheckSize(o, "growth_interval", c.growth_interval, 1, 1 << 24);
  if (c.kind == LossScalingKind::kNone) return {};
  if (c.kind == LossScalingKind::kDynamic) return c;
  c.growth_interval = LossScalingConfig().growth_interval;
  return c;
}

Json ToJson(const LossScalingConfig& c) {
  Json json{{"kind", NameIn(kLossScalings, c.kind)}, {"scale", Shortest(c.scale)}};
  if (c.kind == LossScalingKind::kDynamic) json["growth_interval"] = c.growth_interval;
  return json;
}

GroupRates ReadGroupRates(const Json& json, const std::string& where) {
  GroupRates rates;
  JsonObject o(json, where);
  for (const auto& [key, rate] : {std::pair{"embeddings", &rates.embeddings},
                                  {"matrices", &rates.matrices},
                                  {"gains", &rates.gains}}) {
    o.Read(key, rate);
    if (!(*rate >= 0 && std::isfinite(*rate))) {
      throw Error(o.Where(key), "must be a multiple of the schedule's rate, at least 0");
    }
  }
  o.Finish();
  return rates;
}

Json ToJson(const GroupRates& rates) {
  return {{"embeddings", Shortest(rates.embeddings)},
          {"matrices", Shortest(rates.matrices)},
          {"gains", Shortest(rates.gains)}};
}

}  // namespace

std::string_view ActivationName(Activation activation) {
  for (const NamedActivation& a : kActivations) {
    if (a.activation == activation) return a.name;
  }
  return "";
}

std::string_view DeviceName(Device device) {
  for (const NamedDevice& d : kDevices) {
    if (d.device == device) return d.name;
  }
  return "";
}

Device ReadDevice(std::string_view name, const std::string& where) {
  for (const NamedDevice& d : kDevices) {
    if (d.name == name) return d.device;
  }
  throw Error(where, "must be \"cpu\" or \"cuda\", not \"" + std::string(name) + "\"");
}

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
  c.activation = ReadActivation(&o, c.activation);
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

OptimizerConfig ReadOptimizerConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  OptimizerConfig c;
  JsonObject o(json, where);
  o.Read("name", &c.name);
  o.Read("beta1", &c.beta1);
  o.Read("beta2", &c.beta2);
  o.Read("epsilon", &c.epsilon);
  o.Read("weight_decay", &c.weight_decay);
  o.Read("clip", &c.clip);
  ReadMember(&o, "rates", &ReadGroupRates, &c.rates);
  ReadMember(&o, "loss_scaling", &ReadLossScaling, &c.loss_scaling);
  if (const Json* muon = o.Member("muon")) {
    if (c.name != kMuonName) {
      throw Error(o.Where("muon"), "the optimizer \"" + c.name +
                                       "\" does not read it; \"name\": \"" +
                                       std::string(kMuonName) + "\" does");
    }
    c.muon = ReadMuonConfig(*muon, o.Where("muon"));
  }
  o.Finish();
  CheckFraction(o, "beta1", c.beta1);
  CheckFraction(o, "beta2", c.beta2);
  if (!(c.epsilon > 0)) throw Error(o.Where("epsilon"), "must be positive");
  CheckAtLeast(o, "weight_decay", c.weight_decay, 0.0f);
  CheckAtLeast(o, "clip", c.clip, 0.0f);
  return c;
}

Json ToJson(const OptimizerConfig& c) {
  const IeeeArithmetic ieee;
  Json json = {{"beta1", Shortest(c.beta1)},
               {"beta2", Shortest(c.beta2)},
               {"epsilon", Shortest(c.epsilon)},
               {"weight_decay", Shortest(c.weight_decay)},
               {"clip", Shortest(c.clip)}};
  if (c.name != OptimizerConfig().name) json["name"] = c.name;
  if (c.rates != GroupRates()) json["rates"] = ToJson(c.rates);
  if (c.name == kMuonName) json["muon"] = ToJson(c.muon);
  if (c.loss_scaling != LossScalingConfig()) json["loss_scaling"] = ToJson(c.loss_scaling);
  return json;
}

TeacherConfig ReadTeacherConfig(const Json& json, const std::string& where,
                                const std::string& start) {
  const IeeeArithmetic ieee;
  TeacherConfig c;
  JsonObject o(json, where);
  c.from = start;
  o.Read("from", &c.from);
  o.Read("temperature", &c.temperature);
  o.Read("share", &c.share);
  o.Finish();
  if (!(c.temperature > 0 && std::isfinite(c.temperature))) {
    throw Error(o.Where("temperature"), "must be positive");
  }
  if (!(c.share >= 0 && c.share <= 1)) {
    throw Error(o.Where("share"), "must be from 0, no teacher, to 1, the teacher alone");
  }
  if (c.share == 0) return {};
  if (c.from.empty()) {
    throw Error(o.Where("from"), "must be the checkpoint of a teacher, as there is no \"start\"");
  }
  return c;
}

Json ToJson(const TeacherConfig& c) {
  const IeeeArithmetic ieee;
  return {{"from", c.from}, {"temperature", Shortest(c.temperature)}, {"share", Shortest(c.share)}};
}

EvaluationConfig ReadEvaluationConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  EvaluationConfig c;
  JsonObject o(json, where);
  o.Read("every", &c.every);
  o.Read("tokens", &c.tokens);
  o.Read("chunk_tokens", &c.chunk_tokens);
  o.Read("high_precision", &c.high_precision);
  o.Read("diagnostics_every", &c.diagnostics_every);
  if (const Json* texts = o.Member("texts")) {
    c.texts = ReadValidationTexts(*texts, o.Where("texts"));
  }
  o.Finish();
  CheckAtLeast<std::int64_t>(o, "every", c.every, 0);
  CheckAtLeast<std::int64_t>(o, "tokens", c.tokens, 0);
  CheckAtLeast<std::int64_t>(o, "chunk_tokens", c.chunk_tokens, 1);
  CheckAtLeast(o, "diagnostics_every", c.diagnostics_every, 0);
  return c;
}

Json ToJson(const EvaluationConfig& c) {
  const IeeeArithmetic ieee;
  Json json = {{"every", c.every},
               {"tokens", c.tokens},
               {"chunk_tokens", c.chunk_tokens},
               {"high_precision", c.high_precision},
               {"diagnostics_every", c.diagnostics_every}};
  if (!c.texts.empty()) json["texts"] = ToJson(std::span(c.texts));
  return json;
}

TrainConfig ReadTrainConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  TrainConfig c;
  c.recipe = ReadRecipe(Json("bf16"), where);
  JsonObject o(json, where);
  std::string device(DeviceName(c.device));
  o.Read("device", &device);
  c.device = ReadDevice(device, o.Where("device"));
  c.start = ReadStartKey(&o);
  c.model = ReadModelConfig(ModelWithStart(&o, c.start), o.Where("model"));
  if (const Json* teacher = o.Member("teacher")) {
    c.teacher = ReadTeacherConfig(*teacher, o.Where("teacher"), c.start);
  }
  ReadMember(&o, "optimizer", &ReadOptimizerConfig, &c.optimizer);
  ReadMember(&o, "schedule", &ReadScheduleConfig, &c.schedule);
  ReadMember(&o, "recipe", &ReadRecipe, &c.recipe);
  ReadMember(&o, "data", &ReadDataConfig, &c.data);
  ReadMember(&o, "evaluation", &ReadEvaluationConfig, &c.evaluation);
  ReadMember(&o, "diagnostics", &ReadDiagnosticsConfig, &c.diagnostics);
  o.Read("seed", &c.seed);
  o.Read("nudge_ulps", &c.nudge_ulps);
  o.Read("tokens", &c.tokens);
  o.Read("batch", &c.batch);
  o.Read("micro_batches", &c.micro_batches);
  o.Read("log_every", &c.log_every);
  o.Read("checkpoint_every", &c.checkpoint_every);
  o.Read("checkpoint_minutes", &c.checkpoint_minutes);
  o.Finish();
  CheckSize(o, "nudge_ulps", c.nudge_ulps, 0, kMostNudge);
  CheckAtLeast(o, "batch", c.batch, 1);
  CheckAtLeast(o, "micro_batches", c.micro_batches, 1);
  CheckAtLeast<std::int64_t>(o, "log_every", c.log_every, 1);
  CheckAtLeast<std::int64_t>(o, "checkpoint_every", c.checkpoint_every, 0);
  CheckAtLeast(o, "checkpoint_minutes", c.checkpoint_minutes, 0.0);
  CheckShapes(c, where);
  return c;
}

Json ToJson(const TrainConfig& c) {
  const IeeeArithmetic ieee;
  Json json = {{"device", DeviceName(c.device)},
               {"model", ToJson(c.model)},
               {"optimizer", ToJson(c.optimizer)},
               {"schedule", ToJson(c.schedule)},
               {"recipe", ToJson(c.recipe)},
               {"data", ToJson(c.data)},
               {"evaluation", ToJson(c.evaluation)},
               {"seed", c.seed},
               {"nudge_ulps", c.nudge_ulps},
               {"tokens", c.tokens},
               {"batch", c.batch},
               {"micro_batches", c.micro_batches},
               {"log_every", c.log_every},
               {"checkpoint_every", c.checkpoint_every},
               {"checkpoint_minutes", c.checkpoint_minutes}};
  if (c.diagnostics.Asked()) json["diagnostics"] = ToJson(c.diagnostics);
  if (!c.start.empty()) json["start"] = c.start;
  if (c.teacher.Asked()) json["teacher"] = ToJson(c.teacher);
  return json;
}

std::int64_t TokensPerStep(const TrainConfig& c) {
  return static_cast<std::int64_t>(c.batch) * c.model.sequence;
}

std::int64_t TotalSteps(const TrainConfig& c) { return c.tokens / TokensPerStep(c); }

}  // namespace fp4lab
