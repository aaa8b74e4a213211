#include "fp4lab/study/several/joined_study.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"

namespace fp4lab::study {
namespace {

struct File {
  Results results;
  Json facts;  // JoinedStudy::files
};

File LoadFile(const std::filesystem::path& given, Models models) {
  const std::filesystem::path path = ResultsPath(given);
  const Json json = ReadJsonFile(path);
  File file{ReadResults(json, path.string()), {}};
  const bool one_model = file.results.sizes.empty() || models == Models::kSeveral;
  if (!file.results.rates.empty() || !one_model) {
    throw Error(path.string(), "has several models or learning rates; name a study of one of each");
  }
  const Json all = json.value("analysis", Json());  // a list of one each where there are models
  const Json analysis = all.is_array() && !all.empty() ? all[0] : all;
  if (!analysis.is_object() || !analysis.value("token_ratios", Json()).is_array()) {
    throw Error(path.string() + "#/analysis",
                "must be an object with \"token_ratios\", as `fp4lab study run` writes it");
  }
  for (const char* key : {"name", "sha256", "fp4lab_commit", "analysis"}) {
    file.facts[key] = json.value(key, Json());
  }
  return file;
}

// The bytes of text in a token of the training text.
double BytesPerToken(const StudyFiles& files, const std::string& corpus) {
  if (files.tokens.empty()) {
    if (!corpus.ends_with(".bin")) return 1.0;
    throw Error(files.results.string(), "its text " + corpus +
                                            " holds tokens; name the .json that "
                                            "data/make_tokens.py wrote beside it as \"tokens\"");
  }
  const std::string where = files.tokens.string();
  const Json json = ReadJsonFile(files.tokens);
  const Json* parts = json.contains("parts") ? &json.at("parts") : nullptr;
  double bytes[2] = {};
  for (int i = 0; i < 2; ++i) {
    const char* part = i == 0 ? "train" : "validation";
    if (parts == nullptr || !parts->contains(part)) {
      throw Error(where + "#/parts", "needs the key \"" + std::string(part) + "\"");
    }
    JsonObject o(parts->at(part), where + "#/parts/" + part);
    o.Require("bytes_per_token", &bytes[i]);
    if (!(bytes[i] > 0 && std::isfinite(bytes[i]))) {
      throw Error(o.Where("bytes_per_token"), "must be a positive number");
    }
  }
  return bytes[0];
}

double ValidationBytesPerToken(const StudyFiles& files) {
  if (files.tokens.empty()) return 1.0;
  return ReadJsonFile(files.tokens)
      .at("parts")
      .at("validation")
      .at("bytes_per_token")
      .get<double>();
}

void CheckSame(const Results& first, const Results& more) {
  for (const char* key : {"model", "optimizer", "schedule", "data", "batch", "evaluation"}) {
    if (first.study.value(key, Json()) != more.study.value(key, Json())) {
      throw Error(more.name, "its \"" + std::string(key) + "\" is not that of " + first.name +
                                 ", which it joins; name it as a study of its own");
    }
  }
  if (first.corpus != more.corpus || first.train_sha256 != more.train_sha256 ||
      first.validation_sha256 != more.validation_sha256) {
    throw Error(more.name, "has another text than " + first.name +
                               ", which it joins; name it as a study of its own");
  }
  for (const std::string& arm : more.arms) {
    if (first.numerics.value(arm, Json()) != more.numerics.value(arm, Json())) {
      throw Error(more.name, "its arm \"" + arm + "\" has another fingerprint than in " +
                                 first.name + ", which it joins; name it as a study of its own");
    }
  }
}

// The arms of which every seed has a loss at every budget.
std::vector<std::string> CompleteArms(const Results& results) {
  const LossCube cube = LossesOf(results, Precision::kTraining);
  std::vector<std::string> complete;
  for (std::size_t a = 0; a < results.arms.size(); ++a) {
    bool all = true;
    for (std::size_t s = 0; s < cube.seeds; ++s) {
      for (std::size_t k = 0; k < cube.Budgets(); ++k) all &= std::isfinite(cube.At(s, a, k));
    }
    if (all) complete.push_back(results.arms[a]);
  }
  return complete;
}

void KeepArms(const std::vector<std::string>& arms, Results* results) {
  const auto absent = [&](const std::string& arm) {
    return std::find(arms.begin(), arms.end(), arm) == arms.end();
  };
  std::erase_if(results->arms, absent);
  std::erase_if(results->runs, [&](const RunResult& run) { return absent(run.arm); });
}

void AddSeeds(const Results& more, Results* results) {
  if (more.budgets != results->budgets) {
    throw Error(more.name, "has other budgets than " + results->name +
                               ", whose seeds it adds to; name it under \"budgets\" or as a study");
  }
  for (const std::uint64_t seed : more.seeds) {
    if (std::find(results->seeds.begin(), results->seeds.end(), seed) != results->seeds.end()) {
      throw Error(more.name, "has the seed " + std::to_string(seed) + ", as " + results->name +
                                 " has; give each seed in one study");
    }
    results->seeds.push_back(seed);
  }
  results->runs.insert(results->runs.end(), more.runs.begin(), more.runs.end());
}

const AnnealedPoint* PointAt(const RunResult& run, std::int64_t tokens) {
  const auto found = std::find_if(run.points.begin(), run.points.end(),
                                  [&](const AnnealedPoint& p) { return p.tokens == tokens; });
  return found == run.points.end() ? nullptr : &*found;
}

void AddBudgets(const Results& more, Results* results) {
  if (more.seeds != results->seeds) {
    throw Error(more.name, "has other seeds than " + results->name +
                               ", whose budgets it adds to; name it under \"seeds\" or as a study");
  }
  for (RunResult& run : results->runs) {
    const RunResult* longer = more.Find(run.arm, run.seed);
    for (const std::int64_t tokens : more.budgets) {
      const AnnealedPoint *here = PointAt(run, tokens), *there = PointAt(*longer, tokens);
      if (here == nullptr) {
        run.points.push_back(*there);
      } else if (here->loss != there->loss || here->chunks != there->chunks) {
        throw Error(more.name, "has another loss of " + run.arm + " than " + results->name +
                                   " after " + std::to_string(tokens) +
                                   " tokens, as another kind of GPU makes; name it as a study of "
                                   "its own to keep the two apart");
      }
    }
  }
  for (const std::int64_t tokens : more.budgets) {
    if (std::find(results->budgets.begin(), results->budgets.end(), tokens) ==
        results->budgets.end()) {
      results->budgets.push_back(tokens);
    }
  }
  std::sort(results->budgets.begin(), results->budgets.end());
}

std::vector<bool> ApartIn(const LossCube& cube) {
  std::vector<bool> apart;
  for (std::size_t a = 0; a < cube.arms; ++a) {
    for (std::size_t k = 0; k < cube.Budgets(); ++k) {
      double low = INFINITY, high = -INFINITY;
      for (std::size_t s = 0; s < cube.seeds; ++s) {
        low = std::min(low, cube.At(s, a, k));
        high = std::max(high, cube.At(s, a, k));
      }
      apart.push_back(high - low > kApart);
    }
  }
  return apart;
}

std::vector<double> NullGaps(const Results& results, const std::string& reference,
                             const std::string& null, double bytes) {
  const auto has = [&](const std::string& arm) {
    return std::find(results.arms.begin(), results.arms.end(), arm) != results.arms.end();
  };
  std::vector<double> gaps;
  if (!has(reference) || !has(null)) return gaps;
  const LossCube cube = LossesOf(results, Precision::kTraining);
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    gaps.push_back((cube.At(s, IndexOf(results.arms, null), cube.Budgets() - 1) -
                    cube.At(s, IndexOf(results.arms, reference), cube.Budgets() - 1)) /
                   bytes);
  }
  return gaps;
}

}  // namespace

StudyFiles ReadStudyFiles(const Json& json, const std::string& where,
                          const std::filesystem::path& folder) {
  if (json.is_string()) return {.results = folder / json.get<std::string>()};
  JsonObject o(json, where);
  StudyFiles files;
  std::string results, tokens;
  std::vector<std::string> seeds, budgets;
  o.Require("results", &results);
  o.Read("seeds", &seeds);
  o.Read("budgets", &budgets);
  o.Read("tokens", &tokens);
  o.Read("text", &files.text);
  o.Finish();
  files.results = folder / results;
  for (const std::string& path : seeds) files.seeds.push_back(folder / path);
  for (const std::string& path : budgets) files.budgets.push_back(folder / path);
  if (!tokens.empty()) files.tokens = folder / tokens;
  return files;
}

std::vector<StudyFiles> ReadStudyList(JsonObject& o, const std::string& key,
                                      const std::filesystem::path& folder) {
  const Json* list = o.Member(key);
  if (list == nullptr || !list->is_array() || list->empty()) {
    throw Error(o.Where(key), "must be an array of folders with a results.json, one at least");
  }
  std::vector<StudyFiles> files;
  for (std::size_t i = 0; i < list->size(); ++i) {
    files.push_back(ReadStudyFiles((*list)[i], o.Where(key) + "/" + std::to_string(i), folder));
  }
  return files;
}

double JoinedStudy::BytesEach(std::size_t budget) const {
  const IeeeArithmetic ieee;
  return static_cast<double>(results.budgets[budget]) * bytes_per_token /
         static_cast<double>(results.block_parameters);
}

bool JoinedStudy::Has(const std::string& arm) const {
  return std::find(results.arms.begin(), results.arms.end(), arm) != results.arms.end();
}

std::size_t JoinedStudy::Arm(const std::string& arm) const {
  if (!Has(arm)) {
    throw Error(Name(), "has no arm \"" + arm + "\" of which every run ended; " +
                            DidYouMean(arm, results.arms));
  }
  return IndexOf(results.arms, arm);
}

std::vector<double> JoinedStudy::LossesAt(std::size_t arm, std::size_t budget) const {
  std::vector<double> losses;
  for (std::size_t s = 0; s < cube.seeds; ++s) losses.push_back(cube.At(s, arm, budget));
  return losses;
}

std::vector<double> JoinedStudy::SumsAt(const LossTerms& terms, std::size_t budget) const {
  const IeeeArithmetic ieee;
  std::vector<double> sums(cube.seeds);
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    for (const auto& [arm, factor] : terms) sums[s] += factor * cube.At(s, arm, budget);
  }
  return sums;
}

JoinedStudy ReadJoinedStudy(const StudyFiles& files, const std::string& reference,
                            const std::string& null, Models models) {
  const IeeeArithmetic ieee;
  File first = LoadFile(files.results, models);
  JoinedStudy study;
  study.bytes_per_token = BytesPerToken(files, first.results.corpus);
  const double bytes = ValidationBytesPerToken(files);
  study.text = files.text.empty() ? first.results.corpus : files.text;
  study.null_gaps = NullGaps(first.results, reference, null, bytes);
  study.files.push_back(std::move(first.facts));
  study.results = std::move(first.results);
  KeepArms(CompleteArms(study.results), &study.results);
  for (const bool is_seeds : {true, false}) {
    for (const std::filesystem::path& path : is_seeds ? files.seeds : files.budgets) {
      File more = LoadFile(path, models);
      CheckSame(study.results, more.results);
      std::vector<std::string> both;
      for (const std::string& arm : CompleteArms(more.results)) {
        if (study.Has(arm)) both.push_back(arm);
      }
      KeepArms(both, &study.results);
      KeepArms(both, &more.results);
      is_seeds ? AddSeeds(more.results, &study.results) : AddBudgets(more.results, &study.results);
      study.files.push_back(std::move(more.facts));
    }
  }
  if (!study.Has(reference)) study.Arm(reference);  // throws
  study.results.question.reference = reference;
  study.cube = LossesOf(study.results, Precision::kTraining);
  study.high = LossesOf(study.results, Precision::kHigh);
  study.chunks = ChunksOf(study.results, Precision::kTraining);
  for (LossCube* cube : {&study.cube, &study.high}) {
    for (double& loss : cube->losses) loss /= bytes;
  }
  for (std::vector<double>& series : study.chunks.series) {
    for (double& loss : series) loss /= bytes;
  }
  study.apart = ApartIn(study.cube);
  return study;
}

std::optional<double> StandingCrossing(const LossCurve& curve, const std::vector<bool>& apart,
                                       double loss) {
  const IeeeArithmetic ieee;
  if (!curve.Usable()) return std::nullopt;
  const SmoothCurve smooth(curve);
  const std::optional<double> at = smooth.Inverse(loss);
  if (!at || smooth.Extrapolates(*at)) return std::nullopt;
  const auto after = static_cast<std::size_t>(
      std::lower_bound(curve.log_tokens.begin(), curve.log_tokens.end(), *at) -
      curve.log_tokens.begin());
  if (apart[after] || apart[after == 0 ? 0 : after - 1]) return std::nullopt;
  return at;
}

std::optional<double> StandingRatio(const JoinedStudy& study, const LossCube& cube,
                                    std::size_t seed, std::size_t arm, std::size_t base,
                                    std::size_t budget, Form form) {
  const IeeeArithmetic ieee;
  if (study.Apart(arm, budget) || study.Apart(base, budget)) return std::nullopt;
  const LogRatio ratio = CrossingRatio(cube.Curve(seed, arm), cube.Curve(seed, base), budget, form);
  if (ratio.status != LogRatio::Status::kIdentified || ratio.extrapolated) return std::nullopt;
  const double at = cube.log_tokens[budget] + (form == Form::kExtend ? ratio.value : -ratio.value);
  const std::size_t curve = form == Form::kExtend ? arm : base;
  // A crossing at a budget may come out a rounding beyond it.
  const auto after = std::min<std::size_t>(
      static_cast<std::size_t>(
          std::lower_bound(cube.log_tokens.begin(), cube.log_tokens.end(), at - 1e-12) -
          cube.log_tokens.begin()),
      cube.Budgets() - 1);
  if (study.Apart(curve, after) || study.Apart(curve, after == 0 ? 0 : after - 1)) {
    return std::nullopt;
  }
  return ratio.value;
}

std::vector<double> StandingRatios(const JoinedStudy& study, const LossCube& cube, std::size_t arm,
                                   std::size_t base, std::size_t budget, Form form) {
  std::vector<double> ratios;
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    const std::optional<double> ratio = StandingRatio(study, cube, s, arm, base, budget, form);
    if (!ratio) return {};
    ratios.push_back(*ratio);
  }
  return ratios;
}

Json SourceOf(const Json& file) {
  return {{"name", file.at("name")},
          {"sha256_of_results", file.at("sha256")},
          {"commit", file.at("fp4lab_commit")}};
}

Json JoinedSources(const JoinedStudy& study) {
  Json joined = Json::array();
  for (std::size_t i = 1; i < study.files.size(); ++i) joined.push_back(SourceOf(study.files[i]));
  return joined;
}

Json NumberJson(const std::vector<double>& values) {
  const IeeeArithmetic ieee;
  const Summary summary = Summarize(values);
  const std::optional<Interval> interval = StudentInterval(summary, kConfidence);
  return {{"mean", summary.mean},
          {"interval_t", interval ? Json{interval->low, interval->high} : Json()},
          {"seeds", values}};
}

}  // namespace fp4lab::study
