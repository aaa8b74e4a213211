#include "fp4lab/study/several/surface.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/several/effects.h"
#include "fp4lab/study/several/evaluation.h"
#include "fp4lab/study/several/sizes.h"

namespace fp4lab::study {
namespace {

constexpr std::size_t kCorners = 8;

double Mean(const std::vector<double>& values) { return Summarize(values).mean; }

// A number of the document that the bootstrap gives an interval, too.
struct Drawn {
  Json::json_pointer place;
  std::vector<double> values;  // one a draw; NaN: a crossing lies beyond the budgets
};

class Surface {
 public:
  Surface(const JoinedStudy& study, const SurfaceQuestion& question)
      : study_(study),
        question_(question),
        reference_(study.Arm(question.reference)),
        better_(study.Arm(question.formats[0])),
        worse_(study.Arm(question.formats[1])) {
    if (!question.corners.empty() &&
        std::all_of(question.corners.begin(), question.corners.end(),
                    [&](const std::string& arm) { return study.Has(arm); })) {
      for (const std::string& arm : question.corners) corners_.push_back(study.Arm(arm));
    }
  }

  Json Document(int draws) {
    json_ = {
        {"name", study_.Name()},
        {"block_parameters", study_.results.block_parameters},
        {"text", study_.text},
        {"sequence", study_.results.study.value("model", Json::object()).value("sequence", Json())},
        {"budgets", study_.results.budgets},
        {"seeds", study_.results.seeds},
        {"commit", study_.files[0].at("fp4lab_commit")},
        {"sha256_of_results", study_.files[0].at("sha256")},
        {"joined", JoinedSources(study_)}};
    if (!study_.null_gaps.empty()) json_["null_gap"] = NullGap();
    json_["persistence"] = Persistence();
    json_["ratios"] = Ratios();
    json_["growth"] = Growth();
    json_["ratios_to_reference"] = {{question_.formats[0], RatiosTo(better_, reference_)},
                                    {question_.formats[1], RatiosTo(worse_, reference_)}};
    json_["gaps"] = Json::array();
    json_["corners"] = Json::array();
    json_["shares"] = Json::array();
    for (std::size_t at = 0; at < study_.cube.Budgets(); ++at) {
      json_["gaps"].push_back(Gaps(at));
      if (!corners_.empty()) AddCorners(at);
    }
    Bootstrap(draws);
    if (study_.bytes_per_token == 1) {
      json_["evaluation"] = EvaluationOf(study_, reference_, {better_, worse_}, draws);
    }
    return std::move(json_);
  }

 private:
  Json Place(std::size_t at) const {
    return {{"tokens", study_.results.budgets[at]}, {"bytes_per_parameter", study_.BytesEach(at)}};
  }

  Json NullGap() const {
    Json json = NumberJson(study_.null_gaps);
    const Summary summary = Summarize(study_.null_gaps);
    const double error = summary.StandardError();
    json["standard_errors"] = error > 0 ? Json(std::abs(summary.mean) / error) : Json();
    return json;
  }

  // Of each seed's difference of the formats over the budgets behind the last at which seeds are
  // apart: the standard deviation of its mean over budgets, and its value if deviations at one
  // budget said nothing of those at another.
  Json Persistence() const {
    std::size_t first = 0;
    for (std::size_t at = 0; at < study_.cube.Budgets(); ++at) {
      if (study_.Apart(better_, at) || study_.Apart(worse_, at)) first = at + 1;
    }
    const std::size_t budgets = study_.cube.Budgets() - first, seeds = study_.cube.seeds;
    if (budgets < 4 || seeds < 2) return nullptr;
    std::vector<double> of_seed(seeds);
    std::vector<std::vector<double>> rest;  // [budget][seed], less the mean over seeds
    for (std::size_t at = first; at < study_.cube.Budgets(); ++at) {
      std::vector<double> gaps = study_.GapsAt(worse_, better_, at);
      const double mean = Mean(gaps);
      for (std::size_t s = 0; s < seeds; ++s) {
        of_seed[s] += gaps[s] / static_cast<double>(budgets);
        gaps[s] -= mean;
      }
      rest.push_back(std::move(gaps));
    }
    double squares = 0;
    for (std::size_t s = 0; s < seeds; ++s) {
      double mean = 0;
      for (const auto& gaps : rest) mean += gaps[s] / static_cast<double>(budgets);
      for (const auto& gaps : rest) squares += (gaps[s] - mean) * (gaps[s] - mean);
    }
    const auto freedom = static_cast<double>((seeds - 1) * (budgets - 1));
    return {{"budgets", budgets},
            {"seed_deviation", Summarize(of_seed).deviation},
            {"if_independent", std::sqrt(squares / freedom / static_cast<double>(budgets))}};
  }

  // What the reports of the study and of those that join it say of a ratio.
  bool EstimatorsAgree(std::size_t arm, std::size_t base, std::size_t at, Form form) const {
    const std::vector<std::string>& arms = study_.results.arms;
    for (const Json& file : study_.files) {
      for (const Json& r : file.at("analysis").at("token_ratios")) {
        if (r.is_object() && r.value("format", "") == arms[arm] &&
            r.value("reference", "") == arms[base] &&
            r.value("estimator", "") == EstimatorName(Estimator::kCrossing) &&
            r.value("precision", "") == PrecisionName(Precision::kTraining) &&
            r.value("tokens", Json()) == study_.results.budgets[at] &&
            r.value("form", "") == FormName(form) && !r.value("disagreement", Json()).is_null()) {
          return false;
        }
      }
    }
    return true;
  }

  // A record of each budget and form at which the ratio of `arm` to `base` stands.
  Json RatiosTo(std::size_t arm, std::size_t base) const {
    Json found = Json::array();
    for (std::size_t at = 0; at < study_.cube.Budgets(); ++at) {
      for (const Form form : kForms) {
        const std::vector<double> ratios = StandingRatios(study_, study_.cube, arm, base, at, form);
        if (ratios.empty()) continue;
        Json record = Place(at);
        record["form"] = FormName(form);
        record["log_ratio"] = NumberJson(ratios);
        record["estimators_agree"] = EstimatorsAgree(arm, base, at, form);
        found.push_back(std::move(record));
      }
    }
    return found;
  }

  // Those of the formats, by the bytes of the one at the lower loss.
  Json Ratios() const {
    std::vector<Json> records;
    for (Json& record : RatiosTo(worse_, better_)) {
      const Json& log = record["log_ratio"];
      const double each = record["bytes_per_parameter"];
      Json bytes = Json::array();  // where the losses are equal: the mean, the interval's ends
      std::vector<Json> ends = {log["mean"]};
      if (!log["interval_t"].is_null()) {
        ends.insert(ends.end(), {log["interval_t"][0], log["interval_t"][1]});
      }
      for (const Json& end : ends) {
        bytes.push_back(record["form"] == "extend" ? each : each / std::exp(end.get<double>()));
      }
      record["bytes_at_equal_loss"] = std::move(bytes);
      const auto seeds = log["seeds"].get<std::vector<double>>();
      record["seeds_that_suffice"] =
          seeds.size() < 2
              ? Json()
              : Json(CountThatSuffices(Summarize(seeds).deviation, question_.wanted, kConfidence));
      records.push_back(std::move(record));
    }
    std::stable_sort(records.begin(), records.end(), [](const Json& a, const Json& b) {
      return a["bytes_at_equal_loss"][0] < b["bytes_at_equal_loss"][0];
    });
    return records;
  }

  // ln of the last ratio over the first one, paired over seeds, in shrink form, which reaches
  // further, and where estimators agree; null of fewer than two such ratios.
  Json Growth() const {
    const Json *first = nullptr, *last = nullptr;
    for (const Json& r : json_["ratios"]) {
      if (r["form"] != "shrink" || r["estimators_agree"] == false) continue;
      if (first == nullptr || r["tokens"] < (*first)["tokens"]) first = &r;
      if (last == nullptr || r["tokens"] > (*last)["tokens"]) last = &r;
    }
    if (first == last) return nullptr;
    const auto of = [](const Json& r) {
      return r["log_ratio"]["seeds"].get<std::vector<double>>();
    };
    std::vector<double> grown = of(*last);
    for (std::size_t s = 0; s < grown.size(); ++s) grown[s] -= of(*first)[s];
    return {{"form", "shrink"},
            {"from_bytes_per_parameter", (*first)["bytes_per_parameter"]},
            {"to_bytes_per_parameter", (*last)["bytes_per_parameter"]},
            {"log_ratio", NumberJson(grown)}};
  }

  Json Gaps(std::size_t at) const {
    Json json = Place(at);
    double apart = 0;
    for (const std::size_t arm : {reference_, better_, worse_}) {
      const std::vector<double> losses = study_.LossesAt(arm, at);
      const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
      apart = std::max(apart, *high - *low);
    }
    const std::vector<double> small = study_.GapsAt(better_, reference_, at);
    const std::vector<double> large = study_.GapsAt(worse_, reference_, at);
    json["apart"] = apart;
    json[question_.reference] = NumberJson(study_.LossesAt(reference_, at));
    json[question_.formats[0]] = NumberJson(small);
    json[question_.formats[1]] = NumberJson(large);
    json["ratio_of_gaps"] = Mean(large) / Mean(small);
    return json;
  }

  void AddCorners(std::size_t at) {
    std::array<std::vector<double>, kCorners> values;  // [corner][seed]
    bool all = true;
    for (std::size_t c = 0; c < kCorners; ++c) {
      values[c] = StandingRatios(study_, study_.cube, corners_[c], corners_[0], at, Form::kExtend);
      all &= !values[c].empty();
      if (values[c].empty()) continue;
      Json corner = Place(at);
      corner["arm"] = question_.corners[c];
      corner["log_ratio"] = NumberJson(values[c]);
      json_["corners"].push_back(std::move(corner));
    }
    if (!all) return;
    std::array<std::vector<double>, 3> shares;  // [factor][seed]
    for (std::size_t s = 0; s < study_.cube.seeds; ++s) {
      std::array<double, kCorners> of_seed;
      for (std::size_t c = 0; c < kCorners; ++c) of_seed[c] = values[c][s];
      const std::array<double, 3> own = ShapleyShares(of_seed);
      for (std::size_t f = 0; f < 3; ++f) shares[f].push_back(own[f]);
    }
    Json record = Place(at);
    record["total"] = NumberJson(values[kCorners - 1]);
    for (std::size_t f = 0; f < 3; ++f) {
      record["shares"][question_.factors[f]] = NumberJson(shares[f]);
    }
    json_["shares"].push_back(std::move(record));
  }

  std::size_t BudgetOf(const Json& record) const {
    const auto& budgets = study_.results.budgets;
    return static_cast<std::size_t>(
        std::find(budgets.begin(), budgets.end(), record["tokens"].get<std::int64_t>()) -
        budgets.begin());
  }

  // The mean of ln r over the seeds of a resample; NaN where it does not stand.
  double DrawnRatio(const LossCube& cube, std::size_t arm, std::size_t base, std::size_t at,
                    Form form) const {
    const std::vector<double> ratios = StandingRatios(study_, cube, arm, base, at, form);
    return ratios.empty() ? NAN : Mean(ratios);
  }

  // Adds "interval_bootstrap" to the ratios of the formats and to the shares.
  void Bootstrap(int draws) {
    std::vector<Drawn> drawn;
    struct Key {
      std::size_t at;
      Form form;
    };
    std::vector<Key> ratios;
    for (std::size_t i = 0; i < json_["ratios"].size(); ++i) {
      const Json& record = json_["ratios"][i];
      ratios.push_back(
          {BudgetOf(record), record["form"] == "extend" ? Form::kExtend : Form::kShrink});
      drawn.push_back({Json::json_pointer() / "ratios" / i / "log_ratio", {}});
    }
    std::vector<std::size_t> shares;  // budgets
    for (std::size_t i = 0; i < json_["shares"].size(); ++i) {
      shares.push_back(BudgetOf(json_["shares"][i]));
      const Json::json_pointer place = Json::json_pointer() / "shares" / i;
      drawn.push_back({place / "total", {}});
      for (const std::string& factor : question_.factors) {
        drawn.push_back({place / "shares" / factor, {}});
      }
    }
    const auto count = static_cast<std::size_t>(draws);
    for (Drawn& d : drawn) d.values.resize(count);
    ParallelFor(count, [&](std::size_t d) {
      const LossCube cube =
          Resample(study_.cube, study_.chunks,
                   DrawBootstrap(study_.cube.seeds, study_.chunks.chunks, study_.chunks.block,
                                 static_cast<std::uint32_t>(d)));
      std::size_t i = 0;
      for (const Key& key : ratios) {
        drawn[i++].values[d] = DrawnRatio(cube, worse_, better_, key.at, key.form);
      }
      for (const std::size_t at : shares) {
        std::array<double, kCorners> values;
        for (std::size_t c = 0; c < kCorners; ++c) {
          values[c] = DrawnRatio(cube, corners_[c], corners_[0], at, Form::kExtend);
        }
        drawn[i++].values[d] = values[kCorners - 1];
        for (const double share : ShapleyShares(values)) drawn[i++].values[d] = share;
      }
    });
    for (Drawn& d : drawn) {
      std::erase_if(d.values, [](double x) { return !std::isfinite(x); });
      Json& record = json_[d.place];
      if (!d.values.empty()) {
        const Interval interval = PercentileInterval(d.values, kConfidence);
        record["interval_bootstrap"] = {interval.low, interval.high};
      }
      if (d.values.size() < count) record["draws_without_crossing"] = count - d.values.size();
    }
  }

  const JoinedStudy& study_;
  const SurfaceQuestion& question_;
  std::size_t reference_, better_, worse_;
  std::vector<std::size_t> corners_;  // empty: the study has not all of them
  Json json_;
};

void ReadCorners(const Json& json, const std::string& where, SurfaceQuestion* question) {
  JsonObject o(json, where);
  o.Require("factors", &question->factors);
  o.Require("arms", &question->corners);
  o.Finish();
  if (question->factors.size() != 3) throw Error(o.Where("factors"), "must be three names");
  if (question->corners.size() != kCorners) throw Error(o.Where("arms"), "must be eight arms");
}

}  // namespace

SurfaceFile ReadSurfaceFile(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  const Json json = ReadJsonFile(path);
  JsonObject o(json, path.string());
  SurfaceFile file;
  SurfaceQuestion& question = file.question;
  std::vector<std::string> formats;
  file.studies = ReadStudyList(o, "studies", path.parent_path());
  o.Require("reference", &question.reference);
  o.Require("formats", &formats);
  o.Read("null", &question.null);
  o.Read("sizes", &question.sizes);
  o.Read("wanted_half_width", &question.wanted);
  if (const Json* corners = o.Member("corners")) {
    ReadCorners(*corners, o.Where("corners"), &question);
  }
  o.Finish();
  if (formats.size() != 2 || formats[0] == formats[1]) {
    throw Error(o.Where("formats"), "must be two arms, the one at the lower loss first");
  }
  question.formats = {formats[0], formats[1]};
  if (!(question.wanted > 0.001)) throw Error(o.Where("wanted_half_width"), "must be above 0.001");
  return file;
}

Json SurfaceOf(const JoinedStudy& study, const SurfaceQuestion& question, int draws) {
  const IeeeArithmetic ieee;
  return Surface(study, question).Document(draws);
}

Json SurfaceDocument(const SurfaceFile& file, int draws) {
  const IeeeArithmetic ieee;
  const SurfaceQuestion& question = file.question;
  std::vector<JoinedStudy> studies;
  for (const StudyFiles& files : file.studies) {
    studies.push_back(ReadJoinedStudy(files, question.reference, question.null));
  }
  std::stable_sort(studies.begin(), studies.end(), [](const JoinedStudy& a, const JoinedStudy& b) {
    return a.results.block_parameters < b.results.block_parameters;
  });
  std::vector<std::string> names;
  for (const JoinedStudy& study : studies) {
    if (std::count(names.begin(), names.end(), study.Name()) > 0) {
      throw Error(study.Name(), "stands twice among the studies; name each once");
    }
    names.push_back(study.Name());
  }
  for (const std::string& name : question.sizes) {
    if (std::count(names.begin(), names.end(), name) == 0) {
      throw Error("sizes", "there is no study \"" + name + "\"; " + DidYouMean(name, names));
    }
  }
  Json document = {{"reference", question.reference},
                   {"formats", question.formats},
                   {"draws", draws},
                   {"studies", Json::array()},
                   {"references", Json::array()}};
  // A study of `sizes` may have the reference alone.
  const auto is_reference = [&](const JoinedStudy& study) {
    const auto has = [&](const std::string& arm) { return study.Has(arm); };
    return std::count(question.sizes.begin(), question.sizes.end(), study.Name()) > 0 &&
           std::none_of(question.formats.begin(), question.formats.end(), has);
  };
  for (const JoinedStudy& study : studies) {
    if (is_reference(study)) {
      document["references"].push_back({{"name", study.Name()},
                                        {"sha256_of_results", study.files[0].at("sha256")},
                                        {"joined", JoinedSources(study)}});
    } else {
      document["studies"].push_back(SurfaceOf(study, question, draws));
    }
  }
  std::vector<SizedStudy> sizes;
  for (const std::string& name : question.sizes) {
    const Json* part = nullptr;
    for (const Json& made : document["studies"]) {
      if (made["name"] == name) part = &made;
    }
    sizes.push_back({&studies[IndexOf(names, name)], part});
  }
  if (sizes.size() > 1) document["sizes"] = CompareSizes(sizes, question, draws);
  return document;
}

}  // namespace fp4lab::study
