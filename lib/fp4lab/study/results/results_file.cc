#include "fp4lab/study/results/results_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/study/results/arm_name.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kHash = "sha256";

// The member `key` as a number; NaN if the member is absent or null (the JSON of a number that is
// not finite).
double Number(JsonObject& o, std::string_view key) {
  const Json* member = o.Member(key);
  double value = std::numeric_limits<double>::quiet_NaN();
  if (member != nullptr && !member->is_null()) o.Read(key, &value);
  return value;
}

double RequireNumber(JsonObject& o, std::string_view key) {
  if (!o.Has(key)) throw Error(o.Where(key), "is missing");
  return Number(o, key);
}

template <class T>
T Required(JsonObject& o, std::string_view key) {
  T value{};
  o.Require(key, &value);
  return value;
}

template <class T>
T Optional(JsonObject& o, std::string_view key, T value = {}) {
  o.Read(key, &value);
  return value;
}

JsonObject RequireObject(JsonObject& o, std::string_view key) {
  const Json* member = o.Member(key);
  if (member == nullptr) throw Error(o.Where(key), "is missing");
  return {*member, o.Where(key)};
}

// The results of read(element, JSON pointer) over the array `key`; empty if the member is absent.
template <class Read>
auto Each(JsonObject& o, std::string_view key, Read read) {
  std::vector<decltype(read(Json(), std::string()))> values;
  const Json* member = o.Member(key);
  if (member == nullptr) return values;
  if (!member->is_array()) throw Error(o.Where(key), "must be an array");
  for (std::size_t i = 0; i < member->size(); ++i) {
    values.push_back(read((*member)[i], o.Where(key) + "/" + std::to_string(i)));
  }
  return values;
}

std::vector<double> Numbers(JsonObject& o, std::string_view key) {
  return Each(o, key, [](const Json& json, const std::string& where) {
    if (json.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!json.is_number()) throw Error(where, "must be a number or null");
    return json.get<double>();
  });
}

// "texts": {NAME: losses}.
std::map<std::string, TextLosses> ReadTexts(JsonObject& o) {
  std::map<std::string, TextLosses> texts;
  if (!o.Has("texts")) return texts;
  JsonObject all = RequireObject(o, "texts");
  for (const auto& [name, value] : o.Member("texts")->items()) {
    JsonObject text(value, all.Where(name));
    texts[name] = {.loss = RequireNumber(text, "validation_loss"),
                   .loss_high = Number(text, "validation_loss_high")};
  }
  return texts;
}

AnnealedPoint ReadPoint(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  return {.tokens = Required<std::int64_t>(o, "tokens"),
          .steps = Required<std::int64_t>(o, "steps"),
          .loss = RequireNumber(o, "validation_loss"),
          .loss_high = Number(o, "validation_loss_high"),
          .chunks = Numbers(o, "chunk_losses"),
          .chunks_high = Numbers(o, "chunk_losses_high"),
          .texts = ReadTexts(o)};
}

TrunkLoss ReadTrunkPoint(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  return {.tokens = Required<std::int64_t>(o, "tokens"),
          .loss = RequireNumber(o, "validation_loss")};
}

CurvePoint ReadCurvePoint(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  return {.step = Required<std::int64_t>(o, "step"),
          .tokens = Required<std::int64_t>(o, "tokens"),
          .loss = RequireNumber(o, "loss"),
          .learning_rate = RequireNumber(o, "learning_rate")};
}

// A row of "diagnostics": fills in the row of each observation that measured it.
void ReadObservedRow(const Json& json, const std::string& where,
                     std::vector<Observation>* observations) {
  JsonObject o(json, where);
  ObservedRow row;
  row.name = Required<std::string>(o, "name");
  row.format = Optional<std::string>(o, "format");
  std::vector<ObservedRow> rows(observations->size(), row);
  const auto check = [&](std::size_t size, const std::string& place) {
    if (size != observations->size()) throw Error(place, "must have an entry an observation");
  };
  JsonObject numbers = RequireObject(o, "numbers");
  for (const auto& [key, list] : json.at("numbers").items()) {
    const std::vector<double> values = Numbers(numbers, key);
    check(values.size(), numbers.Where(key));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) rows[i].numbers[key] = values[i];
    }
  }
  if (const Json* scales = o.Member("scales")) {
    if (!scales->is_array()) throw Error(o.Where("scales"), "must be an array");
    check(scales->size(), o.Where("scales"));
    for (std::size_t i = 0; i < scales->size(); ++i) {
      if ((*scales)[i].is_null()) continue;
      rows[i].scales =
          ReadScaleHistogram((*scales)[i], o.Where("scales") + "/" + std::to_string(i));
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].numbers.empty()) continue;
    (*observations)[i].rows.push_back(std::move(rows[i]));
  }
}

// "diagnostics": a column of numbers for each row and diagnostic.
std::vector<Observation> ReadObservations(JsonObject o) {
  const auto steps = Required<std::vector<std::int64_t>>(o, "steps");
  const auto budgets = Required<std::vector<std::int64_t>>(o, "budgets");
  const auto tokens = Required<std::vector<std::int64_t>>(o, "tokens");
  if (budgets.size() != steps.size() || tokens.size() != steps.size()) {
    throw Error(o.Where("steps"), "\"steps\", \"budgets\" and \"tokens\" differ in length");
  }
  std::vector<Observation> observations;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    observations.push_back({steps[i], budgets[i], tokens[i], {}});
  }
  Each(o, "rows", [&](const Json& row, const std::string& where) {
    ReadObservedRow(row, where, &observations);
    return 0;
  });
  return observations;
}

RunResult ReadRun(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  RunResult run;
  run.arm = Required<std::string>(o, "arm");
  run.seed = Required<std::uint64_t>(o, "seed");
  run.diverged = Required<std::string>(o, "status") != "ok";
  if (const Json* at = o.Member("diverged_at"); at != nullptr && !at->is_null()) {
    JsonObject place(*at, o.Where("diverged_at"));
    run.diverged_step = Required<std::int64_t>(place, "step");
    run.diverged_tensor = Required<std::string>(place, "tensor");
  }
  if (!o.Has("points")) throw Error(o.Where("points"), "is missing");
  run.points = Each(o, "points", ReadPoint);
  run.trunk_points = Each(o, "trunk_points", ReadTrunkPoint);
  run.curve = Each(o, "curve", ReadCurvePoint);
  run.tensors = Each(o, "tensors", ReadTensorStatistics);
  if (o.Has("diagnostics")) run.observations = ReadObservations(RequireObject(o, "diagnostics"));
  run.processors = Optional<std::vector<std::string>>(o, "processors");
  run.seconds = Number(o, "seconds");
  run.tokens_per_second = Number(o, "tokens_per_second");
  return run;
}

Question ReadQuestion(JsonObject o) {
  Question question;
  question.primary_tokens = Required<std::int64_t>(o, "primary_tokens");
  question.confidence = Optional(o, "confidence", 0.95);
  if (!(question.confidence > 0 && question.confidence < 1)) {
    throw Error(o.Where("confidence"), "must lie between 0 and 1");
  }
  question.null_arms = Optional<std::vector<std::string>>(o, "null_arms");
  if (const Json* criteria = o.Member("criteria")) question.criteria = *criteria;
  return question;
}

// "reference": a name, or a list of names; "contrast": two names, or a list of such pairs.
void ReadComparisons(JsonObject o, Results* results) {
  const Json* reference = o.Member("reference");
  if (reference != nullptr && reference->is_array()) {
    results->references = Required<std::vector<std::string>>(o, "reference");
    if (results->references.empty()) throw Error(o.Where("reference"), "needs an arm");
  } else {
    results->references = {Required<std::string>(o, "reference")};
  }
  const Json* contrast = o.Member("contrast");
  if (contrast == nullptr || !contrast->is_array() || contrast->empty()) return;
  if (contrast->front().is_array()) {
    results->contrasts = Required<std::vector<std::vector<std::string>>>(o, "contrast");
  } else {
    results->contrasts = {Required<std::vector<std::string>>(o, "contrast")};
  }
}

// Asks the question of one model: of its reference, and of its contrast, if there is one.
void SetComparison(const std::string& reference, const std::vector<std::string>& contrast,
                   Question* question) {
  question->reference = reference;
  question->format = contrast.size() == 2 ? contrast[0] : "";
  question->format_reference = contrast.size() == 2 ? contrast[1] : "";
}

// "sweep": {"learning_rate": [...]}. Puts each arm at each rate in place of the arms of the file.
void ReadSweep(JsonObject& o, Results* results) {
  if (!o.Has("sweep")) return;
  JsonObject sweep = RequireObject(o, "sweep");
  results->rates = Required<std::vector<double>>(sweep, "learning_rate");
  if (results->rates.empty()) throw Error(sweep.Where("learning_rate"), "needs a rate");
  JsonObject arms = RequireObject(o, "arms");
  std::vector<std::string> swept;
  for (const std::string& arm : results->arms) {
    const Json* definition = arms.Member(arm);
    if (definition == nullptr) throw Error(arms.Where(arm), "is missing");
    for (const double rate : results->rates) {
      swept.push_back(ArmAtRate(arm, rate));
      results->study["arms"][swept.back()] = *definition;
    }
  }
  results->arms = std::move(swept);
}

void ReadStudyFacts(JsonObject o, Results* results) {
  results->title = Optional(o, "title", results->name);
  results->description = Optional<std::string>(o, "description");
  results->arms = Required<std::vector<std::string>>(o, "arm_order");
  ReadSweep(o, results);
  results->seeds = Required<std::vector<std::uint64_t>>(o, "seeds");
  results->budgets = Required<std::vector<std::int64_t>>(o, "budgets");
  results->question = ReadQuestion(RequireObject(o, "analysis"));
  ReadComparisons(RequireObject(o, "analysis"), results);
  SetComparison(results->references[0],
                results->contrasts.empty() ? std::vector<std::string>() : results->contrasts[0],
                &results->question);
}

void ReadCorpus(JsonObject o, Results* results) {
  results->corpus = Required<std::string>(o, "name");
  results->vocabulary = Optional<std::int64_t>(o, "vocabulary");
  results->train_tokens = Required<std::int64_t>(o, "train_tokens");
  results->validation_tokens = Required<std::int64_t>(o, "validation_tokens");
  results->train_sha256 = Required<std::string>(o, "train_sha256");
  results->validation_sha256 = Required<std::string>(o, "validation_sha256");
}

void CheckArms(const std::vector<std::string>& arms, const std::string& where) {
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const std::string& arm = arms[i];
    const std::string place = where + "#/study/arm_order/" + std::to_string(i);
    if (!IsPlainName(arm)) {
      throw Error(place, "\"" + arm +
                             "\" is not the name of an arm, which has letters, digits and "
                             "- _ . + (not . first)");
    }
    if (std::find(arms.begin(), arms.begin() + static_cast<std::ptrdiff_t>(i), arm) !=
        arms.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw Error(place, "the arm \"" + arm + "\" stands twice");
    }
  }
}

void CheckNames(const Results& results, const std::vector<std::string>& arms_of_file,
                const std::string& where) {
  CheckArms(arms_of_file, where);
  const auto check = [&](const std::string& name, const std::string& member,
                         const std::vector<std::string>& arms) {
    if (std::find(arms.begin(), arms.end(), name) == arms.end()) {
      throw Error(where + "#/" + member,
                  "there is no arm \"" + name + "\"; " + DidYouMean(name, arms));
    }
  };
  const std::string analysis = "study/analysis/";
  for (const std::string& name : results.references)
    check(name, analysis + "reference", arms_of_file);
  for (const std::string& name : results.question.null_arms) {
    check(name, analysis + "null_arms", arms_of_file);
  }
  for (const std::vector<std::string>& pair : results.contrasts) {
    if (pair.size() != 2) throw Error(where + "#/" + analysis + "contrast", "must be two arms");
    check(pair[0], analysis + "contrast/0", arms_of_file);
    check(pair[1], analysis + "contrast/1", arms_of_file);
  }
  for (std::size_t i = 0; i < results.runs.size(); ++i) {
    check(results.runs[i].arm, "runs/" + std::to_string(i) + "/arm", results.arms);
  }
}

std::string HashOf(Json results) {
  results.erase(std::string(kHash));
  return Sha256(results.dump());
}

// Throws Error if "sha256" is not the hash of the content. Files of older versions, which have no
// hash, pass.
void CheckHash(const Json& json, const std::string& where) {
  if (!HasHash(json) || json.at(std::string(kHash)) == HashOf(json)) return;
  throw Error(
      where,
      "was changed after fp4lab wrote it: its \"sha256\" is not that of its content. Take it "
      "from its source again, or run `fp4lab study run`, which writes it from the cached "
      "runs");
}

}  // namespace

bool HasHash(const Json& results) { return results.contains(std::string(kHash)); }

std::string ResultsText(Json results) {
  const IeeeArithmetic ieee;
  results[std::string(kHash)] = HashOf(results);
  return results.dump(1) + "\n";
}

const RunResult* Results::Find(std::string_view arm, std::uint64_t seed) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const RunResult& run) {
    return run.arm == arm && run.seed == seed;
  });
  return found == runs.end() ? nullptr : &*found;
}

const Json& Results::ModelOf(const std::string& arm) const {
  const Json& own = study.at("arms").at(arm);
  return own.contains("model") ? own.at("model") : study.at("model");
}

bool Results::Has(const Diagnostic& diagnostic) const {
  const IeeeArithmetic ieee;
  return std::any_of(runs.begin(), runs.end(), [&](const RunResult& run) {
    return std::any_of(run.tensors.begin(), run.tensors.end(), [&](const TensorStatistics& t) {
      return std::isfinite(t.values[diagnostic.key]);
    });
  });
}

bool Results::HasObservations() const {
  return std::any_of(runs.begin(), runs.end(),
                     [](const RunResult& run) { return !run.observations.empty(); });
}

Results ReadResults(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  constexpr std::string_view kSchema = "fp4lab.study.results/1";
  if (!json.is_object() || json.value("schema", Json()) != Json(kSchema)) {
    throw Error(where,
                "is not a results file: its \"schema\" is not \"" + std::string(kSchema) + "\"");
  }
  JsonObject o(json, where);
  CheckHash(json, where);
  Results results;
  results.name = Required<std::string>(o, "name");
  results.version = Required<std::string>(o, "fp4lab_version");
  if (const Json* numerics = o.Member("numerics")) results.numerics = *numerics;
  if (const Json* study = o.Member("study")) results.study = *study;
  results.exploratory = Optional(o, "exploratory", false);
  ReadStudyFacts(RequireObject(o, "study"), &results);
  ReadCorpus(RequireObject(o, "corpus"), &results);
  JsonObject model = RequireObject(o, "model");
  results.parameters = Required<std::int64_t>(model, "parameters");
  results.block_parameters = Required<std::int64_t>(model, "block_parameters");
  if (model.Has("arms")) {
    JsonObject arms = RequireObject(model, "arms");
    for (const std::string& arm : results.arms) {
      if (!arms.Has(arm)) continue;
      JsonObject size = RequireObject(arms, arm);
      results.sizes[arm] = {Required<std::int64_t>(size, "parameters"),
                            Required<std::int64_t>(size, "block_parameters")};
    }
  }
  if (!o.Has("runs")) throw Error(o.Where("runs"), "is missing");
  results.runs = Each(o, "runs", ReadRun);
  CheckNames(results, results.study.at("arm_order").get<std::vector<std::string>>(), where);
  return results;
}

std::vector<Results> ByModel(const Results& results) {
  if (results.sizes.empty()) return {results};
  // The models as results.json has them: the members of "study" that arms without one share.
  const Json& arms = results.study.at("arms");
  const auto model = [&](const std::string& arm) {
    const Json& own = arms.at(arm);
    return own.contains("model") ? own.at("model") : results.study.at("model");
  };
  std::vector<Results> groups;
  for (const std::string& reference : results.references) {
    const Json here = model(reference);
    const auto is_here = [&](const std::string& arm) { return model(arm) == here; };
    Results group = results;
    std::erase_if(group.arms, [&](const std::string& arm) { return !is_here(arm); });
    std::erase_if(group.runs, [&](const RunResult& run) { return !is_here(run.arm); });
    std::erase_if(group.question.null_arms, [&](const std::string& arm) { return !is_here(arm); });
    std::erase_if(group.contrasts,
                  [&](const std::vector<std::string>& pair) { return !is_here(pair.at(0)); });
    for (const std::vector<std::string>& pair : group.contrasts) {
      if (is_here(pair.at(1))) continue;
      throw Error("results.json#/study/analysis/contrast",
                  pair[0] + " and " + pair[1] + " are arms of different models");
    }
    group.references = {reference};
    SetComparison(reference,
                  group.contrasts.empty() ? std::vector<std::string>() : group.contrasts[0],
                  &group.question);
    group.question.criteria = Json::array();
    for (const Json& criterion : results.question.criteria) {
      if (is_here(criterion.at("arms").at(0))) group.question.criteria.push_back(criterion);
    }
    const std::string run =
        results.rates.empty() ? reference : ArmAtRate(reference, results.rates[0]);
    if (const auto size = results.sizes.find(run); size != results.sizes.end()) {
      group.parameters = size->second.parameters;
      group.block_parameters = size->second.block_parameters;
    }
    group.sizes.clear();
    group.folder = reference;
    groups.push_back(std::move(group));
  }
  return groups;
}

std::filesystem::path ResultsPath(const std::filesystem::path& file_or_folder) {
  return std::filesystem::is_directory(file_or_folder) ? file_or_folder / "results.json"
                                                       : file_or_folder;
}

Results LoadResults(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  const std::filesystem::path file = ResultsPath(path);
  return ReadResults(ReadJsonFile(file), file.string());
}

}  // namespace fp4lab::study
