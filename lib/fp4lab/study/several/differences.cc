#include "fp4lab/study/several/differences.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/study/several/evaluation.h"

namespace fp4lab::study {
namespace {

constexpr int kTextDraws = 2000;

AskedDifference ReadDifference(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  AskedDifference asked;
  o.Require("study", &asked.study);
  o.Require("arm", &asked.arm);
  o.Require("base", &asked.base);
  o.Read("of", &asked.whole);
  o.Read("against", &asked.against);
  o.Read("tokens", &asked.tokens);
  o.Read("margin", &asked.margin);
  o.Finish();
  if (o.Has("of") && asked.whole.size() != 2) {
    throw Error(o.Where("of"),
                "must be two arms: the whole difference is the first less the second");
  }
  if (o.Has("against") && asked.against.size() != 2) {
    throw Error(o.Where("against"), "must be two arms, whose difference is taken off");
  }
  if (o.Has("against") && o.Has("of")) {
    throw Error(o.Where("against"), "is for a difference that is no share; leave out \"of\"");
  }
  if (o.Has("tokens") && asked.tokens < 1) {
    throw Error(o.Where("tokens"), "must be a budget of the study, in tokens");
  }
  if (o.Has("margin") && !(asked.margin > 0)) {
    throw Error(o.Where("margin"), "must be a positive number of nats");
  }
  return asked;
}

// arm - base, less the difference of the arms of "against".
LossTerms TermsOf(const AskedDifference& asked, const JoinedStudy& study) {
  LossTerms terms = {{study.Arm(asked.arm), 1.0}, {study.Arm(asked.base), -1.0}};
  if (!asked.against.empty()) {
    terms.push_back({study.Arm(asked.against[0]), -1.0});
    terms.push_back({study.Arm(asked.against[1]), 1.0});
  }
  return terms;
}

const Json& WholeInterval(const Json& number) {
  return number[number["interval_with_text"].is_null() ? "interval_t" : "interval_with_text"];
}

// The smallest margin in which the interval lies in kPower of the cases where nothing differs; null
// without an interval. As for parity's "smallest_margin", the two sides share what may go wrong.
Json ShownMargin(const Json& number) {
  const Json& interval = WholeInterval(number);
  if (interval.is_null()) return {};
  const double low = interval[0], high = interval[1];
  const double half = (high - low) / 2;
  const auto degrees = static_cast<double>(number["seeds"].size() - 1);
  return half * (1 + StudentQuantile(0.5 + kPower / 2, degrees) /
                         StudentQuantile(0.5 + kConfidence / 2, degrees));
}

std::string_view VerdictOf(const Json& number, double margin) {
  const Json& interval = WholeInterval(number);
  if (interval.is_null()) return "not decided";
  const double low = interval[0], high = interval[1];
  if (low >= -margin && high <= margin) return "within the margin";
  return low > margin || high < -margin ? "beyond the margin" : "not decided";
}

std::size_t BudgetOf(const AskedDifference& asked, const JoinedStudy& study) {
  if (asked.tokens == 0) return study.cube.Budgets() - 1;
  const std::vector<std::int64_t>& budgets = study.results.budgets;
  const auto found = std::find(budgets.begin(), budgets.end(), asked.tokens);
  if (found != budgets.end()) return static_cast<std::size_t>(found - budgets.begin());
  std::string known;
  for (const std::int64_t tokens : budgets) known += " " + std::to_string(tokens);
  throw Error("differences", "the study \"" + study.Name() + "\" has no budget of " +
                                 std::to_string(asked.tokens) + " tokens, but" + known);
}

Json DifferenceJson(const AskedDifference& asked, const JoinedStudy& study) {
  const std::size_t budget = BudgetOf(asked, study);
  const LossTerms terms = TermsOf(asked, study);
  const std::vector<double> part = study.SumsAt(terms, budget);
  Json json = NumberJson(part);
  json["interval_with_text"] =
      IntervalWithText(json, TextErrorOf(study, terms, budget, kTextDraws));
  json["study"] = asked.study;
  json["arm"] = asked.arm;
  json["base"] = asked.base;
  if (!asked.against.empty()) json["against"] = asked.against;
  if (asked.tokens != 0) json["tokens"] = asked.tokens;
  if (asked.margin > 0) {
    json["margin"] = asked.margin;
    json["verdict"] = VerdictOf(json, asked.margin);
    json["shown_margin"] = ShownMargin(json);
  }
  if (asked.whole.empty()) return json;
  const std::vector<double> whole =
      study.GapsAt(study.Arm(asked.whole[0]), study.Arm(asked.whole[1]), budget);
  const std::optional<Interval> interval = FiellerInterval(part, whole, kConfidence);
  const double mean = Summarize(whole).mean;
  json["of"] = asked.whole;
  json["share"] = {{"ratio", mean == 0 ? Json() : Json(Summarize(part).mean / mean)},
                   {"interval", interval ? Json{interval->low, interval->high} : Json()}};
  return json;
}

}  // namespace

DifferencesFile ReadDifferencesFile(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  const Json json = ReadJsonFile(path);
  JsonObject o(json, path.string());
  DifferencesFile file;
  file.studies = ReadStudyList(o, "studies", path.parent_path());
  const Json* list = o.Member("differences");
  if (list == nullptr || !list->is_array() || list->empty()) {
    throw Error(o.Where("differences"), "must be an array, of one difference at least");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    file.differences.push_back(
        ReadDifference((*list)[i], o.Where("differences") + "/" + std::to_string(i)));
  }
  o.Finish();
  return file;
}

Json DifferencesDocument(const DifferencesFile& file) {
  const IeeeArithmetic ieee;
  std::vector<JoinedStudy> studies;
  std::vector<std::string> names;
  Json document = {{"sources", Json::array()}, {"differences", Json::array()}};
  for (const StudyFiles& files : file.studies) {
    studies.push_back(ReadJoinedStudy(files, LoadResults(files.results).question.reference, "",
                                      Models::kSeveral));
    names.push_back(studies.back().Name());
    document["sources"].push_back(SourceOf(studies.back().files[0]));
    for (Json& joined : JoinedSources(studies.back())) {
      document["sources"].push_back(std::move(joined));
    }
  }
  for (const AskedDifference& asked : file.differences) {
    const auto found = std::find(names.begin(), names.end(), asked.study);
    if (found == names.end()) {
      throw Error("differences",
                  "there is no study \"" + asked.study + "\"; " + DidYouMean(asked.study, names));
    }
    document["differences"].push_back(
        DifferenceJson(asked, studies[static_cast<std::size_t>(found - names.begin())]));
  }
  return document;
}

}  // namespace fp4lab::study
