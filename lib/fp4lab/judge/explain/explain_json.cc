// The JSON of an explanation.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/noise/added_noise.h"
#include "fp4lab/judge/explain/explain.h"

namespace fp4lab {
namespace {

Json FloatJson(float x) {
  char bits[16];
  std::snprintf(bits, sizeof bits, "0x%08x", std::bit_cast<std::uint32_t>(x));
  Json json = {{"bits", bits}, {"value", nullptr}};
  if (std::isfinite(x)) json["value"] = x;
  return json;
}

Json CauseJson(const Cause& cause) {
  Json deviations = Json::array();
  for (const Deviation* d : cause.deviations) deviations.push_back(d->name);
  Json json = {{"name", Name(cause)},
               {"deviations", deviations},
               {"dialect", nullptr},
               {"text", Sentence(cause)}};
  for (const Deviation* d : cause.deviations) {
    if (d->kind != ValueKind::kNone) json["value"] = Text(d->kind, cause.value.value_or(d->value));
  }
  if (cause.dialect != nullptr) json["dialect"] = cause.dialect->name;
  return json;
}

Json TraceJson(const Trace& t) {
  return {{"row", t.row},
          {"col", t.col},
          {"x", FloatJson(t.x)},
          {"amax", FloatJson(t.amax)},
          {"encode", FloatJson(t.encode)},
          {"decode", FloatJson(t.decode)},
          {"block_amax", FloatJson(t.block_amax)},
          {"scale_before", FloatJson(t.scale_before)},
          {"scale_byte", t.scale_byte},
          {"scale", FloatJson(t.scale)},
          {"factor", FloatJson(t.factor)},
          {"divides", t.divides},
          {"scaled", FloatJson(t.scaled)},
          {"code", t.code},
          {"scale_tie_ulps", t.scale_tie_ulps},
          {"code_tie_ulps", t.code_tie_ulps}};
}

Json TheirsJson(const TheirElement& t) {
  Json json = Json::object();
  if (t.has_code) {
    json["code"] = t.code;
    json["scaled_range"] = {FloatJson(t.scaled_low), FloatJson(t.scaled_high)};
  }
  if (t.has_scale) {
    json[t.scale_type == ScaleType::kByte ? "scale_byte" : "scale_bits"] = t.scale_code;
    json["scale"] = FloatJson(t.scale);
    json["scale_before_range"] = {FloatJson(t.scale_low), FloatJson(t.scale_high)};
    json["code_from_their_scale"] = t.code_from_their_scale;
  }
  return json;
}

}  // namespace

Json ToJson(const Kernel& kernel, const Explanation& e) {
  const IeeeArithmetic ieee;
  const MatchCounts& c = e.counts;
  Json json = {{"equal", e.equal},
               {"dialect", kernel.dialect.name},
               {"codes", {{"compared", c.codes}, {"different", c.codes_differ}}},
               {"scales", {{"compared", c.scales}, {"different", c.scales_differ}}},
               {"tensor_scale_differs", c.tensor_scale_differs}};
  if (e.equal) return json;
  json["tensor_scale"] = e.tensor_scale ? ToJson(*e.tensor_scale) : Json(nullptr);
  json["same_values"] = e.same_values;
  json["rows_different"] = e.extent.rows_with_codes;
  json["codes_different_by_column"] = e.extent.by_column;
  json["first"] = nullptr;
  if (!e.OnlyTensorScale()) {
    json["first"] = {{"ours", TraceJson(e.ours)}, {"theirs", TheirsJson(e.theirs)}};
  }
  json["hypotheses_tried"] = e.causes.tried;
  json["where"] = ToJson(e.extent);
  json["verdict"] = Name(e.causes.certainty);
  if (e.causes.exact.empty() && !e.causes.sets.empty()) {
    json["verdict"] = Name(Certainty::kTooFew);  // a set allows the bytes, it does not imply them
  }
  json["stochastic"] = nullptr;
  if (e.causes.stochastic) {
    const StochasticCause& s = *e.causes.stochastic;
    if (e.causes.IsStochastic()) json["verdict"] = Name(Certainty::kTooFew);
    json["stochastic"] = {{"dialect", s.dialect != nullptr ? s.dialect->name : ""},
                          {"noise", s.noise != nullptr ? s.noise->text : ""},
                          {"accepted", s.Accepted()},
                          {"free_elements", s.verdict.free_elements},
                          {"reason", s.verdict.reason}};
  }
  json["evidence"] = e.causes.evidence;
  json["rivals"] = Json::array();
  for (const Cause& cause : e.causes.rivals) json["rivals"].push_back(Name(cause));
  json["near"] = nullptr;
  if (e.causes.near) {
    json["near"] = {{"name", Name(e.causes.near->cause)},
                    {"blocks_left", e.causes.near->blocks_left}};
  }
  json["deciding_case"] = nullptr;
  if (e.deciding) json["deciding_case"] = e.deciding->name;
  json["causes"] = Json::array();
  for (const Cause& cause : e.causes.exact) json["causes"].push_back(CauseJson(cause));
  json["sets"] = Json::array();
  for (const Dialect* d : e.causes.sets) json["sets"].push_back(d->name);
  json["nearest"] = nullptr;
  if (e.causes.best) {
    json["nearest"] = CauseJson(e.causes.best->cause);
    const MatchCounts& left = e.causes.best->counts;
    json["nearest"]["codes_left"] = left.codes_differ + left.codes_beyond;
    json["nearest"]["scales_left"] = left.scales_differ + left.scales_beyond;
  }
  return json;
}

}  // namespace fp4lab
