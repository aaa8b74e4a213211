#include "fp4lab/study/run/study.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/analysis/criteria.h"
#include "fp4lab/study/results/arm_name.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/start/named_model.h"
#include "fp4lab/train/start/start.h"
#include "fp4lab/train/start/teacher.h"

namespace fp4lab::study {
namespace {

void CheckName(const std::string& name, const std::string& where) {
  if (IsPlainName(name)) return;
  throw Error(where,
              "\"" + name + "\" is not a name: 1 to 64 letters, digits and - _ . + (not . first)");
}

// `base` with the members of `overrides` in place of its own, and so for objects within both. Both
// must be objects.
Json Merged(Json base, const Json& overrides) {
  base.update(overrides, true);
  return base;
}

// Throws Error unless both models read the same chunks of the same tokens.
void CheckSharesText(const ModelConfig& model, const ModelConfig& base, const std::string& where) {
  if (model.sequence != base.sequence) {
    throw Error(where + "/sequence", "must be the study's, " + std::to_string(base.sequence) +
                                         ": all arms read the same sequences");
  }
  if (model.vocabulary != base.vocabulary) {
    throw Error(where + "/vocabulary", "must be the study's, " + std::to_string(base.vocabulary) +
                                           ": all arms read the same tokens");
  }
}

// The model that a preset or a checkpoint names, which reads the study's text.
Json NamedModelOfArm(Json model, const ModelConfig& base, const std::string& where) {
  if (!model.contains("sequence")) model["sequence"] = base.sequence;
  if (!model.contains("vocabulary")) model["vocabulary"] = base.vocabulary;
  return WithNamedModel(model, where);
}

Arm ReadArm(const std::string& name, const Json& json, const TrainConfig& base,
            const std::string& where) {
  CheckName(name, where);
  Arm arm{name, base.model, base.recipe, base.optimizer, base.schedule, 0};
  JsonObject o(json, where);
  arm.start = o.Member("start") != nullptr ? ReadStartKey(&o) : base.start;
  if (const Json* model = o.Member("model")) {
    JsonObject(*model, o.Where("model"));
    Json merged = IsNamedModel(*model) ? NamedModelOfArm(*model, base.model, o.Where("model"))
                                       : Merged(ToJson(base.model), *model);
    LeaveOtherPartsAside(*model, &merged);
    arm.model = ReadModelConfig(merged, o.Where("model"));
    CheckSharesText(arm.model, base.model, o.Where("model"));
  }
  arm.teacher = base.teacher;
  if (const Json* teacher = o.Member("teacher")) {
    JsonObject(*teacher, o.Where("teacher"));
    const Json shared = base.teacher.Asked() ? ToJson(base.teacher) : Json::object();
    arm.teacher = ReadTeacherConfig(Merged(shared, *teacher), o.Where("teacher"), arm.start);
  }
  const Json* recipe = o.Member("recipe");
  if (recipe == nullptr) throw Error(where, "needs the key \"recipe\"");
  arm.recipe = ReadRecipe(*recipe, o.Where("recipe"));
  if (const Json* optimizer = o.Member("optimizer")) {
    JsonObject(*optimizer, o.Where("optimizer"));
    Json merged = Merged(ToJson(base.optimizer), *optimizer);
    // An arm with another optimizer than Muon leaves the study's numbers of Muon aside.
    if (merged.value("name", Json()) != kMuonName && !optimizer->contains("muon")) {
      merged.erase("muon");
    }
    arm.optimizer = ReadOptimizerConfig(merged, o.Where("optimizer"));
    OptimizerNamed(arm.optimizer.name, o.Where("optimizer") + "/name");
  }
  if (const Json* schedule = o.Member("schedule")) {
    JsonObject(*schedule, o.Where("schedule"));
    arm.schedule =
        ReadScheduleConfig(Merged(ToJson(base.schedule), *schedule), o.Where("schedule"));
  }
  o.Read("nudge_ulps", &arm.nudge_ulps);
  o.Finish();
  if (arm.nudge_ulps < 0 || arm.nudge_ulps > kMostNudge) {
    throw Error(o.Where("nudge_ulps"), "must lie between 0 and " + std::to_string(kMostNudge));
  }
  return arm;
}

// The names of "arms" in the order of the text, which Json does not keep.
std::vector<std::string> TextOrder(std::string_view text) {
  std::vector<std::string> names;
  const auto json = nlohmann::ordered_json::parse(text);
  for (const auto& [name, arm] : json.at("arms").items()) names.push_back(name);
  return names;
}

std::vector<Arm> ReadArms(JsonObject& o, std::string_view text, const TrainConfig& base) {
  const Json* arms = o.Member("arms");
  if (arms == nullptr) throw Error(o.Where("arms"), "needs at least one arm");
  JsonObject(*arms, o.Where("arms"));
  if (arms->empty()) throw Error(o.Where("arms"), "needs at least one arm");
  std::vector<std::string> order;
  o.Read("arm_order", &order);
  if (order.empty()) order = TextOrder(text);
  if (std::set<std::string>(order.begin(), order.end()).size() != arms->size() ||
      order.size() != arms->size()) {
    throw Error(o.Where("arm_order"), "must list every arm once");
  }
  std::vector<Arm> result;
  JsonObject names(*arms, o.Where("arms"));
  for (const std::string& name : order) {
    const Json* arm = names.Member(name);
    if (arm == nullptr) throw Error(o.Where("arm_order"), "there is no arm \"" + name + "\"");
    result.push_back(ReadArm(name, *arm, base, names.Where(name)));
  }
  return result;
}

// "sweep": {"learning_rate": [...]}.
std::vector<double> ReadSweep(JsonObject& o) {
  std::vector<double> rates;
  const Json* member = o.Member("sweep");
  if (member == nullptr) return rates;
  JsonObject sweep(*member, o.Where("sweep"));
  sweep.Require("learning_rate", &rates);
  sweep.Finish();
  if (rates.size() < 2) throw Error(sweep.Where("learning_rate"), "needs two rates or more");
  for (std::size_t i = 0; i < rates.size(); ++i) {
    if (!(rates[i] > 0.0) || (i > 0 && rates[i] <= rates[i - 1])) {
      throw Error(sweep.Where("learning_rate") + "/" + std::to_string(i),
                  "must be above 0 and above the rate before it");
    }
  }
  return rates;
}

// Throws Error for an arm with a learning rate of its own, which a sweep would replace.
void CheckRatesAreFree(const Json& arms, const std::string& where) {
  for (const auto& [name, arm] : arms.items()) {
    if (!arm.contains("schedule") || !arm["schedule"].contains("learning_rate")) continue;
    throw Error(where + "/" + name + "/schedule/learning_rate",
                "is what \"sweep\" varies; leave it out");
  }
}

// Each arm at each rate of the sweep in place of the arms of the file.
void Sweep(Study* study) {
  std::vector<Arm> swept;
  for (const Arm& arm : study->arms) {
    for (const double rate : study->rates) {
      swept.push_back(arm);
      swept.back().name = ArmAtRate(arm.name, rate);
      swept.back().swept = arm.name;
      swept.back().schedule.learning_rate = rate;
    }
  }
  if (!swept.empty()) study->arms = std::move(swept);
}

EvaluationConfig ReadValidation(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  for (const char* key : {"every", "diagnostics_every"}) {
    if (o.Has(key)) {
      throw Error(o.Where(key),
                  "is not a key of a study, which validates at branch points and ends");
    }
  }
  return ReadEvaluationConfig(json, where);
}

// The settings that arms share. The recipe, bf16, is never used: every arm must have its own.
TrainConfig ReadBase(JsonObject& o) {
  TrainConfig base;
  base.recipe = ReadRecipe("bf16", o.Where("recipe"));
  std::string device(DeviceName(base.device));
  o.Read("device", &device);
  base.device = ReadDevice(device, o.Where("device"));
  base.start = ReadStartKey(&o);
  base.model = ReadModelConfig(ModelWithStart(&o, base.start), o.Where("model"));
  if (const Json* m = o.Member("teacher")) {
    base.teacher = ReadTeacherConfig(*m, o.Where("teacher"), base.start);
  }
  if (const Json* m = o.Member("optimizer")) {
    base.optimizer = ReadOptimizerConfig(*m, o.Where("optimizer"));
  }
  if (const Json* m = o.Member("schedule")) {
    base.schedule = ReadScheduleConfig(*m, o.Where("schedule"));
  }
  if (const Json* m = o.Member("data")) base.data = ReadDataConfig(*m, o.Where("data"));
  if (const Json* m = o.Member("evaluation")) {
    base.evaluation = ReadValidation(*m, o.Where("evaluation"));
  }
  if (const Json* m = o.Member("diagnostics")) {
    base.diagnostics = ReadDiagnosticsConfig(*m, o.Where("diagnostics"));
  }
  o.Read("batch", &base.batch);
  o.Read("micro_batches", &base.micro_batches);
  for (const auto& [key, value] :
       {std::pair{"batch", base.batch}, {"micro_batches", base.micro_batches}}) {
    if (value < 1) throw Error(o.Where(key), "must be at least 1");
  }
  return base;
}

void CheckSeeds(const std::vector<std::uint64_t>& seeds, const std::string& where) {
  if (seeds.empty()) throw Error(where, "needs at least one seed");
  std::set<std::uint64_t> seen;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (!seen.insert(seeds[i]).second) {
      throw Error(where + "/" + std::to_string(i),
                  "seed " + std::to_string(seeds[i]) + " is there twice");
    }
  }
}

const Arm* FindArm(const Study& study, const std::string& name) {
  const auto found = std::find_if(study.arms.begin(), study.arms.end(),
                                  [&](const Arm& arm) { return arm.name == name; });
  return found == study.arms.end() ? nullptr : &*found;
}

void CheckArmName(const Study& study, const std::string& name, const std::string& where) {
  if (FindArm(study, name) != nullptr) return;
  throw Error(where, "there is no arm \"" + name + "\"; " + DidYouMean(name, NamesOf(study.arms)));
}

const ModelConfig& ModelOf(const Study& study, const std::string& arm) {
  return FindArm(study, arm)->model;
}

// The arm among `names` that has the model, or nullptr.
const std::string* OfModel(const Study& study, const std::vector<std::string>& names,
                           const ModelConfig& model) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return ModelOf(study, name) == model;
  });
  return found == names.end() ? nullptr : &*found;
}

// "reference": an arm, or a list of arms with one for each model at most. Models without one get
// their first arm.
std::vector<std::string> ReadReferences(JsonObject& o, const Study& study) {
  std::vector<std::string> given, all;
  const Json* member = o.Member("reference");
  if (member != nullptr && member->is_array()) {
    o.Read("reference", &given);
  } else if (member != nullptr) {
    o.Read("reference", &given.emplace_back());
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string place =
        member->is_array() ? o.Where("reference") + "/" + std::to_string(i) : o.Where("reference");
    CheckArmName(study, given[i], place);
    const std::string* first = OfModel(study, given, ModelOf(study, given[i]));
    if (*first != given[i]) {
      throw Error(place, "\"" + given[i] + "\" has the model of \"" + *first +
                             "\"; a model has one reference");
    }
  }
  std::vector<ModelConfig> seen;
  for (const Arm& arm : study.arms) {
    if (std::find(seen.begin(), seen.end(), arm.model) != seen.end()) continue;
    seen.push_back(arm.model);
    const std::string* reference = OfModel(study, given, arm.model);
    all.push_back(reference != nullptr ? *reference : arm.name);
  }
  return all;
}

// "contrast": {f, R}, or a list of such pairs with one for each model at most.
std::vector<std::vector<std::string>> ReadContrasts(JsonObject& o, const Study& study) {
  std::vector<std::vector<std::string>> pairs;
  const Json* member = o.Member("contrast");
  if (member == nullptr || *member == Json::array()) return pairs;
  const bool several = member->is_array() && member->front().is_array();
  if (several) {
    o.Read("contrast", &pairs);
  } else {
    o.Read("contrast", &pairs.emplace_back());
  }
  std::vector<std::string> formats;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::string place =
        several ? o.Where("contrast") + "/" + std::to_string(i) : o.Where("contrast");
    const std::vector<std::string>& pair = pairs[i];
    if (pair.size() != 2) {
      throw Error(place, "must be two arms: the one in question, then its reference");
    }
    for (std::size_t k = 0; k < 2; ++k) {
      CheckArmName(study, pair[k], place + "/" + std::to_string(k));
    }
    if (pair[0] == pair[1]) {
      throw Error(place + "/1", "\"" + pair[1] +
                                    "\" is the arm in question itself, whose ratio to itself is "
                                    "1; name its reference");
    }
    if (ModelOf(study, pair[0]) != ModelOf(study, pair[1])) {
      throw Error(place, "\"" + pair[0] + "\" and \"" + pair[1] +
                             "\" have different models; compare arms of one");
    }
    if (const std::string* other = OfModel(study, formats, ModelOf(study, pair[0]))) {
      throw Error(place,
                  "has the model of the contrast of \"" + *other + "\"; a model has one contrast");
    }
    formats.push_back(pair[0]);
  }
  return pairs;
}

// Throws Error if a criterion compares arms of different models.
void CheckModelsOfCriteria(const Study& study, const Json& criteria, const std::string& where) {
  for (std::size_t i = 0; i < criteria.size(); ++i) {
    const auto arms = criteria[i].at("arms").get<std::vector<std::string>>();
    for (const std::string& arm : arms) {
      if (ModelOf(study, arm) == ModelOf(study, arms[0])) continue;
      throw Error(
          where + "/" + std::to_string(i) + "/arms",
          "\"" + arms[0] + "\" and \"" + arm + "\" have different models; a criterion is of one");
    }
  }
}

// Adds the arms that are a reference but for their nudge to the null arms.
void AddNullArms(const Study& study, AnalysisConfig* analysis) {
  for (const Arm& arm : study.arms) {
    for (const std::string& reference : analysis->references) {
      Arm twin = *FindArm(study, reference);
      if (arm.nudge_ulps == twin.nudge_ulps) continue;
      twin.name = arm.name;
      twin.nudge_ulps = arm.nudge_ulps;
      std::vector<std::string>& null_arms = analysis->null_arms;
      const bool named = std::find(null_arms.begin(), null_arms.end(), arm.name) != null_arms.end();
      if (twin == arm && !named) null_arms.push_back(arm.name);
    }
  }
}

std::vector<Prediction> ReadPredictions(JsonObject& o) {
  const Json* list = o.Member("predictions");
  if (list == nullptr) return {};
  const std::string where = o.Where("predictions");
  if (!list->is_array()) throw Error(where, "must be an array of {\"file\", \"sha256\"}");
  std::vector<Prediction> predictions;
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonObject of((*list)[i], where + "/" + std::to_string(i));
    Prediction prediction;
    of.Require("file", &prediction.file);
    of.Require("sha256", &prediction.sha256);
    of.Finish();
    const std::string& hash = prediction.sha256;
    if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != hash.npos) {
      throw Error(of.Where("sha256"),
                  "must be 64 lower-case hexadecimal digits, as sha256sum prints them");
    }
    predictions.push_back(std::move(prediction));
  }
  return predictions;
}

AnalysisConfig ReadAnalysis(const Json& json, const std::string& where, const Study& study) {
  AnalysisConfig analysis = study.analysis;
  JsonObject o(json, where);
  analysis.references = ReadReferences(o, study);
  analysis.contrasts = ReadContrasts(o, study);
  o.Read("primary_tokens", &analysis.primary_tokens);
  o.Read("confidence", &analysis.confidence);
  o.Read("null_arms", &analysis.null_arms);
  if (const Json* criteria = o.Member("criteria")) analysis.criteria = *criteria;
  analysis.predictions = ReadPredictions(o);
  o.Finish();
  if (std::find(study.budgets.begin(), study.budgets.end(), analysis.primary_tokens) ==
      study.budgets.end()) {
    throw Error(o.Where("primary_tokens"), "must be one of the budgets");
  }
  if (!(analysis.confidence > 0.0 && analysis.confidence < 1.0)) {
    throw Error(o.Where("confidence"), "must lie between 0 and 1");
  }
  for (std::size_t i = 0; i < analysis.null_arms.size(); ++i) {
    const std::string place = o.Where("null_arms") + "/" + std::to_string(i);
    CheckArmName(study, analysis.null_arms[i], place);
    const std::vector<std::string>& references = analysis.references;
    if (std::find(references.begin(), references.end(), analysis.null_arms[i]) !=
        references.end()) {
      throw Error(place, "is the reference itself; a null arm is a twin of it");
    }
  }
  AddNullArms(study, &analysis);
  CheckCriteria(analysis.criteria, NamesOf(study.arms), o.Where("criteria"));
  CheckModelsOfCriteria(study, analysis.criteria, o.Where("criteria"));
  return analysis;
}

// Throws Error unless the budgets of every arm can share one trunk: a "wsd" schedule, whose rate on
// the trunk does not depend on the budget, with the warm-up before the first decay, and no change
// of recipe ("then") before the decay.
void CheckSchedules(const Study& study, const std::string& where) {
  for (const Arm& arm : study.arms) {
    const std::string place = arm.schedule == study.base.schedule
                                  ? where + "/schedule"
                                  : where + "/arms/" + arm.name + "/schedule";
    if (arm.schedule.kind != "wsd") {
      throw Error(place + "/kind", "a study needs \"wsd\": its budgets share one trunk");
    }
    const RunPlan plan = PlanOf(study, arm);
    if (plan.branches[0].branch_step < 1) {
      throw Error(place + "/decay_fraction",
                  "the decay to the first budget would take all of its " +
                      std::to_string(plan.branches[0].total_steps) +
                      " steps; a study needs a smaller share or a larger budget");
    }
    for (const Branch& branch : plan.branches) {
      if (arm.recipe.then.empty() || plan.branches.size() == 1) break;
      if (FirstChange(arm.recipe, branch.total_steps) >= branch.branch_step) continue;
      const char* member = arm.recipe.rules.empty() ? "/recipe/then/at" : "/recipe/rules";
      const std::string change =
          arm.recipe.rules.empty() ? "" : "a change of \"steps\" or \"then\" ";
      throw Error(
          where + "/arms/" + arm.name + member,
          change +
              "lies before the decay, which runs of several lengths have in common; at least " +
              Json(1.0 - arm.schedule.decay_fraction).dump());
    }
    if (plan.branches[0].branch_step < arm.schedule.warmup_steps) {
      throw Error(place + "/warmup_steps",
                  "the decay to the first budget begins at step " +
                      std::to_string(plan.branches[0].branch_step) + ", inside a warm-up of " +
                      std::to_string(arm.schedule.warmup_steps) + " steps");
    }
  }
}

Json ToJson(const AnalysisConfig& analysis) {
  const auto& [references, contrasts] = std::tie(analysis.references, analysis.contrasts);
  Json contrast = contrasts.size() == 1 ? Json(contrasts[0]) : Json(contrasts);
  Json json = {{"reference", references.size() == 1 ? Json(references[0]) : Json(references)},
               {"contrast", std::move(contrast)},
               {"primary_tokens", analysis.primary_tokens},
               {"confidence", analysis.confidence},
               {"null_arms", analysis.null_arms},
               {"criteria", analysis.criteria}};
  for (const Prediction& p : analysis.predictions) {
    json["predictions"].push_back({{"file", p.file}, {"sha256", p.sha256}});
  }
  return json;
}

}  // namespace

Study ParseStudy(std::string_view text, const std::string& where) {
  const IeeeArithmetic ieee;
  const Json json = ParseJson(text, where);
  JsonObject o(json, where);
  Study study;
  o.Require("name", &study.name);
  CheckName(study.name, o.Where("name"));
  study.title = study.name;
  o.Read("title", &study.title);
  o.Read("description", &study.description);
  study.base = ReadBase(o);
  study.arms = ReadArms(o, text, study.base);
  study.rates = ReadSweep(o);
  if (!study.rates.empty()) CheckRatesAreFree(json.at("arms"), o.Where("arms"));
  o.Require("seeds", &study.seeds);
  CheckSeeds(study.seeds, o.Where("seeds"));
  o.Require("budgets", &study.budgets);
  CheckBudgets(study.budgets, TokensPerStep(study.base), o.Where("budgets"));
  CheckObservedSteps(study.base.diagnostics, study.budgets.back() / TokensPerStep(study.base),
                     o.Where("diagnostics"));
  CheckSchedules(study, where + "#");
  study.analysis.primary_tokens = study.budgets.back();
  const Json* analysis = o.Member("analysis");
  study.analysis = ReadAnalysis(analysis ? *analysis : Json::object(), o.Where("analysis"), study);
  o.Finish();
  for (const Arm& arm : study.arms) {
    const std::string place = where + "#/arms/" + arm.name;
    CheckShapes(ConfigOf(study, arm, study.seeds[0]), arm.model == study.base.model ? where : place,
                place + "/recipe");
  }
  Sweep(&study);
  return study;
}

void CheckDevice(const Study& study, const std::string& where) {
  const IeeeArithmetic ieee;
  for (const Arm& arm : study.arms) {
    const std::string place = where + "#/arms/" + arm.name;
    const auto of = [&](bool own) { return own ? place : where; };
    CheckDevice(ConfigOf(study, arm, study.seeds[0]), of(arm.model != study.base.model),
                of(!(arm.optimizer == study.base.optimizer)));
  }
}

void CheckPredictions(const Study& study, const std::string& where) {
  const IeeeArithmetic ieee;
  for (std::size_t i = 0; i < study.analysis.predictions.size(); ++i) {
    const auto& [file, registered] = study.analysis.predictions[i];
    const std::string hash = Sha256OfFile(file);
    if (hash == registered) continue;
    throw Error(where + "#/analysis/predictions/" + std::to_string(i),
                Printable(file) + " has the SHA-256 " + hash +
                    ", so it is not the prediction that the study registered; bring that file "
                    "back, or state a new prediction before any run");
  }
}

void CheckStarts(const Study& study, const std::string& where) {
  const IeeeArithmetic ieee;
  for (const Arm& arm : study.arms) {
    const bool shared = arm.start == study.base.start && arm.model == study.base.model;
    const TrainConfig config = ConfigOf(study, arm, study.seeds[0]);
    const std::string place = where + "#/arms/" + arm.name;
    CheckStart(config, shared ? where : place);
    CheckTeacher(config, arm.teacher == study.base.teacher ? where : place);
  }
}

Study ReadStudy(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  return ParseStudy(ReadFile(path), path.string());
}

namespace {

// The members that an arm must state because its study's base has them, while its own are left out
// as defaults: `own` with their defaults. The reader erases "muon", "moe", "mla" and "gla" by
// itself.
Json Stated(Json own, const Json& base, const Json& defaults) {
  for (const auto& [key, value] : defaults.items()) {
    if (base.contains(key) && !own.contains(key)) own[key] = value;
  }
  return own;
}

Json StatedOptimizer(const OptimizerConfig& own, const OptimizerConfig& base) {
  const GroupRates rates;
  return Stated(
      ToJson(own), ToJson(base),
      {{"name", OptimizerConfig().name},
       {"rates",
        {{"embeddings", rates.embeddings}, {"matrices", rates.matrices}, {"gains", rates.gains}}},
       {"loss_scaling", {{"kind", "none"}}}});
}

Json StatedModel(const ModelConfig& own, const ModelConfig& base) {
  const ModelConfig d;
  return Stated(ToJson(own), ToJson(base),
                {{"parts", d.parts},
                 {"head_dim", d.head_dim},
                 {"qk_norm", d.qk_norm},
                 {"window", d.window},
                 {"full_attention_every", d.full_attention_every},
                 {"no_rope_every", d.no_rope_every},
                 {"logit_soft_cap", d.logit_soft_cap},
                 {"z_loss", d.z_loss},
                 {"mup", {{"base_d_model", 0}}},
                 {"outliers", {{"gain", 1}}}});
}

}  // namespace

Json ToJson(const Study& study) {
  const IeeeArithmetic ieee;
  Json arms = Json::object(), order = Json::array();
  for (const Arm& arm : study.arms) {
    const std::string& name = arm.swept.empty() ? arm.name : arm.swept;
    if (arms.contains(name)) continue;
    order.push_back(name);
    arms[name] = {{"recipe", ToJson(arm.recipe)},
                  {"optimizer", StatedOptimizer(arm.optimizer, study.base.optimizer)},
                  {"schedule", ToJson(arm.schedule)}};
    if (!study.rates.empty()) arms[name]["schedule"].erase("learning_rate");
    if (arm.nudge_ulps != 0) arms[name]["nudge_ulps"] = arm.nudge_ulps;
    if (arm.start != study.base.start) arms[name]["start"] = arm.start;
    if (arm.teacher != study.base.teacher) {
      arms[name]["teacher"] = arm.teacher.Asked() ? ToJson(arm.teacher) : Json{{"share", 0}};
    }
    if (arm.model != study.base.model) {
      arms[name]["model"] = StatedModel(arm.model, study.base.model);
    }
  }
  Json evaluation = ToJson(study.base.evaluation);
  evaluation.erase("every");
  evaluation.erase("diagnostics_every");
  Json json = {{"name", study.name},
               {"title", study.title},
               {"description", study.description},
               {"device", DeviceName(study.base.device)},
               {"model", ToJson(study.base.model)},
               {"optimizer", ToJson(study.base.optimizer)},
               {"schedule", ToJson(study.base.schedule)},
               {"data", ToJson(study.base.data)},
               {"evaluation", evaluation},
               {"batch", study.base.batch},
               {"micro_batches", study.base.micro_batches},
               {"arms", arms},
               {"arm_order", order},
               {"seeds", study.seeds},
               {"budgets", study.budgets},
               {"analysis", ToJson(study.analysis)}};
  if (study.base.diagnostics.Asked()) json["diagnostics"] = ToJson(study.base.diagnostics);
  if (!study.base.start.empty()) json["start"] = study.base.start;
  if (study.base.teacher.Asked()) json["teacher"] = ToJson(study.base.teacher);
  if (!study.rates.empty()) json["sweep"] = {{"learning_rate", study.rates}};
  return json;
}

TrainConfig ConfigOf(const Study& study, const Arm& arm, std::uint64_t seed) {
  const IeeeArithmetic ieee;
  TrainConfig config = study.base;
  config.model = arm.model;
  config.recipe = arm.recipe;
  config.optimizer = arm.optimizer;
  config.schedule = arm.schedule;
  config.nudge_ulps = arm.nudge_ulps;
  config.start = arm.start;
  config.teacher = arm.teacher;
  config.seed = seed;
  config.tokens = study.budgets.back();
  return config;
}

RunPlan PlanOf(const Study& study, const Arm& arm) {
  const IeeeArithmetic ieee;
  RunPlan plan;
  plan.tokens_per_step = TokensPerStep(study.base);
  for (const std::int64_t tokens : study.budgets) {
    const std::int64_t steps = tokens / plan.tokens_per_step;
    plan.branches.push_back({tokens, steps - DecaySteps(arm.schedule, steps), steps});
  }
  return plan;
}

std::int64_t TotalSteps(const Study& study) {
  const IeeeArithmetic ieee;
  std::int64_t steps = 0;
  for (const Arm& arm : study.arms) steps += PlanOf(study, arm).TotalSteps();
  return steps * static_cast<std::int64_t>(study.seeds.size());
}

}  // namespace fp4lab::study
