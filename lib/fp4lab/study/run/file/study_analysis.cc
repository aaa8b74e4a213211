#include "fp4lab/study/run/file/study_analysis.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/study/analysis/criteria.h"

namespace fp4lab::study {
namespace {

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

}  // namespace

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

}  // namespace fp4lab::study
