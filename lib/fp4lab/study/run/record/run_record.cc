#include "fp4lab/study/run/record/run_record.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {
namespace {

Json ToJson(const Evaluation& evaluation) {
  return {{"loss", evaluation.loss},
          {"chunk_losses", evaluation.chunk_losses},
          {"tokens", evaluation.tokens}};
}

// `where`: the place of `json`.
std::int64_t Whole(const Json& json, const std::string& where, const char* key) {
  return WholeNumber<std::int64_t>(json.at(key), where + "/" + key);
}

Evaluation ReadEvaluation(const Json& json, const std::string& where) {
  return {.loss = json.at("loss").get<double>(),
          .chunk_losses = json.at("chunk_losses").get<std::vector<double>>(),
          .tokens = Whole(json, where, "tokens")};
}

Json ToJson(const std::vector<TextLoss>& texts) {
  Json json = Json::array();
  for (const TextLoss& text : texts) {
    Json one = {{"name", text.name}, {"loss", text.loss}, {"tokens", text.tokens}};
    if (text.loss_high) one["loss_high"] = *text.loss_high;
    json.push_back(std::move(one));
  }
  return json;
}

Json ToJson(const BranchPoint& point) {
  Json json = {{"tokens", point.branch.tokens},
               {"branch_step", point.branch.branch_step},
               {"total_steps", point.branch.total_steps},
               {"training", ToJson(point.training)},
               {"high", ToJson(point.high)}};
  if (!point.texts.empty()) json["texts"] = ToJson(point.texts);
  return json;
}

std::vector<TextLoss> ReadTextLosses(const Json& json, const std::string& where) {
  std::vector<TextLoss> texts;
  for (const Json& one : json) {
    const std::string place = where + "/" + std::to_string(texts.size());
    TextLoss& text = texts.emplace_back();
    text.name = one.at("name").get<std::string>();
    text.loss = one.at("loss").get<double>();
    text.tokens = Whole(one, place, "tokens");
    if (one.contains("loss_high")) text.loss_high = one.at("loss_high").get<double>();
  }
  return texts;
}

BranchPoint ReadBranchPoint(const Json& json, const std::string& where) {
  return {{Whole(json, where, "tokens"), Whole(json, where, "branch_step"),
           Whole(json, where, "total_steps")},
          ReadEvaluation(json.at("training"), where + "/training"),
          ReadEvaluation(json.at("high"), where + "/high"),
          json.contains("texts") ? ReadTextLosses(json.at("texts"), where + "/texts")
                                 : std::vector<TextLoss>()};
}

Json ToJson(const TrunkPoint& point) {
  Json tensors = Json::array();
  for (const TensorStatistics& t : point.tensors) tensors.push_back(fp4lab::ToJson(t));
  return {{"steps", point.steps},
          {"validation_loss", point.validation_loss},
          {"tensors", std::move(tensors)}};
}

TrunkPoint ReadTrunkPoint(const Json& json, const std::string& where) {
  TrunkPoint point{Whole(json, where, "steps"), json.at("validation_loss").get<double>(), {}};
  for (const Json& t : json.at("tensors")) point.tensors.push_back(ReadTensorStatistics(t, where));
  return point;
}

RunRecord ReadMembers(const Json& json, const std::string& where) {
  RunRecord record;
  const auto place = [&](const char* list, std::size_t i) {
    return where + "#/" + list + "/" + std::to_string(i);
  };
  for (const Json& p : json.at("points")) {
    record.points.push_back(ReadBranchPoint(p, place("points", record.points.size())));
  }
  for (const Json& p : json.at("trunk_points")) {
    record.trunk_points.push_back(
        ReadTrunkPoint(p, place("trunk_points", record.trunk_points.size())));
  }
  if (json.contains("observations")) {
    for (const Json& o : json.at("observations")) {
      record.observations.push_back(ReadObservation(o, where));
    }
  }
  record.losses = json.at("losses").get<std::vector<double>>();
  if (const Json& d = json.at("diverged"); !d.is_null()) {
    record.diverged = {Whole(d, where + "#/diverged", "step"), d.at("tensor").get<std::string>(),
                       Whole(d, where + "#/diverged", "budget")};
  }
  record.seconds = json.at("seconds").get<double>();
  record.steps_made = Whole(json, where + "#", "steps_made");
  if (json.contains("processors")) {
    record.processors = json.at("processors").get<std::vector<std::string>>();
  }
  return record;
}

}  // namespace

const BranchPoint* RunRecord::PointOf(const Branch& branch) const {
  const auto found = std::find_if(points.begin(), points.end(),
                                  [&](const BranchPoint& p) { return p.branch == branch; });
  return found == points.end() ? nullptr : &*found;
}

const TrunkPoint* RunRecord::TrunkPointOf(std::int64_t steps) const {
  const auto found = std::find_if(trunk_points.begin(), trunk_points.end(),
                                  [&](const TrunkPoint& p) { return p.steps == steps; });
  return found == trunk_points.end() ? nullptr : &*found;
}

const Observation* RunRecord::ObservationOf(std::int64_t step, std::int64_t budget) const {
  const auto found =
      std::find_if(observations.begin(), observations.end(),
                   [&](const Observation& o) { return o.step == step && o.budget == budget; });
  return found == observations.end() ? nullptr : &*found;
}

bool RunRecord::HasAllOf(const RunPlan& plan) const {
  return std::all_of(plan.branches.begin(), plan.branches.end(), [&](const Branch& b) {
    return PointOf(b) != nullptr && TrunkPointOf(b.branch_step) != nullptr;
  });
}

bool RunRecord::DivergedIn(const RunPlan& plan) const {
  if (!diverged || HasAllOf(plan)) return false;
  if (diverged->budget == 0) return diverged->step <= plan.TrunkSteps();
  return std::any_of(plan.branches.begin(), plan.branches.end(),
                     [&](const Branch& b) { return b.tokens == diverged->budget; });
}

Json ToJson(const RunRecord& record) {
  const IeeeArithmetic ieee;
  Json points = Json::array(), trunk_points = Json::array(), diverged;
  for (const BranchPoint& p : record.points) points.push_back(ToJson(p));
  for (const TrunkPoint& p : record.trunk_points) trunk_points.push_back(ToJson(p));
  if (record.diverged) {
    diverged = {{"step", record.diverged->step},
                {"tensor", record.diverged->tensor},
                {"budget", record.diverged->budget}};
  }
  Json json = {{"points", std::move(points)}, {"trunk_points", std::move(trunk_points)},
               {"losses", record.losses},     {"diverged", std::move(diverged)},
               {"seconds", record.seconds},   {"steps_made", record.steps_made}};
  if (!record.processors.empty()) json["processors"] = record.processors;
  for (const Observation& o : record.observations) {
    json["observations"].push_back(fp4lab::ToJson(o));
  }
  return json;
}

RunRecord ReadRunRecord(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  try {
    return ReadMembers(json, where);
  } catch (const Json::exception& e) {
    throw Error(where, "is not a run record: " + ProblemOf(e));
  }
}

}  // namespace fp4lab::study
