// The configuration of an optimizer in JSON.
#include <cmath>
#include <string>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/config_members.h"

namespace fp4lab {
namespace {

constexpr NamedValue<LossScalingKind> kLossScalings[] = {{LossScalingKind::kNone, "none"},
                                                         {LossScalingKind::kStatic, "static"},
                                                         {LossScalingKind::kDynamic, "dynamic"}};
constexpr NamedValue<MuonScale> kMuonScales[] = {{MuonScale::kMoonlight, "moonlight"},
                                                 {MuonScale::kKellerJordan, "keller_jordan"}};
// Of Newton-Schulz: whether it is BF16.
constexpr NamedValue<bool> kPrecisions[] = {{false, "fp32"}, {true, "bf16"}};

constexpr int kMostNewtonSchulzSteps = 64;

MuonConfig ReadMuonConfig(const Json& json, const std::string& where) {
  MuonConfig c;
  JsonObject o(json, where);
  o.Read("momentum", &c.momentum);
  o.Read("nesterov", &c.nesterov);
  o.Read("steps", &c.steps);
  ReadNamed(&o, "precision", kPrecisions, &c.bf16);
  ReadNamed(&o, "scale", kMuonScales, &c.scale);
  o.Read("split_fused", &c.split_fused);
  o.Finish();
  CheckFraction(o, "momentum", c.momentum);
  CheckSize(o, "steps", c.steps, 1, kMostNewtonSchulzSteps);
  return c;
}

Json ToJson(const MuonConfig& c) {
  return {{"momentum", Shortest(c.momentum)},
          {"nesterov", c.nesterov},
          {"steps", c.steps},
          {"precision", NameIn(kPrecisions, c.bf16)},
          {"scale", NameIn(kMuonScales, c.scale)},
          {"split_fused", c.split_fused}};
}

LossScalingConfig ReadLossScaling(const Json& json, const std::string& where) {
  LossScalingConfig c;
  JsonObject o(json, where);
  std::string kind;
  o.Require("kind", &kind);
  c.kind = ValueIn(kLossScalings, kind, o.Where("kind"));
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

}  // namespace fp4lab
