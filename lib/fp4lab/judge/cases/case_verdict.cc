// Verdicts on a whole set of answers.
#include <algorithm>
#include <istream>
#include <map>
#include <string>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/stored_grid.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/cases/case_stream.h"

namespace fp4lab {
namespace {

std::string Describe(const std::vector<Case>& cases, std::size_t index) {
  return "case " + std::to_string(index) + " (" + cases[index].name + ")";
}

CaseVerdict Judge(const Dialect& dialect, const Case& c, const CaseAnswer& answer,
                  const std::string& where, const SetOptions& options, KeptCases* kept) {
  CaseVerdict result{.index = answer.index, .answered = true, .declined = answer.Declined()};
  if (result.declined) return result;
  const StoredMatrix stored =
      StoredAnswer(ShapeOf(dialect, c.x.rows, c.x.cols, options.layout), answer);
  CheckCodesGrid(stored, answer.codes_shape, stored.codes.size(), where + ", codes");
  CheckScalesGrid(stored, answer.scales_shape, stored.scales.size(), where + ", scales");
  VerifyOptions verify = options.verify;
  if (verify.quantize.random.empty()) verify.quantize.random = c.random;
  result.verdict = Verify(dialect, c.x.View(), stored, where, verify);
  if (!result.verdict.Accepted()) kept->Keep(c, answer);
  return result;
}

SetVerdict Empty(const std::vector<Case>& cases, const SetOptions& options) {
  SetVerdict verdict{.cases = std::vector<CaseVerdict>(cases.size()),
                     .allow_declined = options.allow_declined};
  for (std::size_t i = 0; i < cases.size(); ++i) verdict.cases[i].index = i;
  return verdict;
}

bool IsFine(const CaseVerdict& v, bool allow_declined) {
  return v.declined ? allow_declined : v.verdict.Accepted();
}

void RefuseAllDeclined(const SetVerdict& set, const std::string& where) {
  const bool any_answer = std::any_of(set.cases.begin(), set.cases.end(), [](const CaseVerdict& v) {
    return v.answered && !v.declined;
  });
  if (any_answer || set.cases.empty()) return;
  throw Error(where, "declines all " + std::to_string(set.cases.size()) +
                         " cases: nothing is compared; the kernel must answer one at least");
}

}  // namespace

bool SetVerdict::Accepted() const {
  return std::all_of(cases.begin(), cases.end(),
                     [&](const CaseVerdict& v) { return IsFine(v, allow_declined); });
}

SetVerdict VerifyStream(const Dialect& dialect, const std::vector<Case>& cases, std::istream& in,
                        std::string where, const SetOptions& options) {
  const IeeeArithmetic ieee;
  SetVerdict result = Empty(cases, options);
  AnswerStream answers(in, where);
  KeptCases kept(options.keep, dialect, options.layout, options.verify.quantize.amax);
  constexpr const char* kSameOptions =
      ": verify needs the options that cases was given (dialect, level, seed, dtype, families)";
  while (std::optional<CaseAnswer> answer = answers.Next()) {
    const std::size_t index = answer->index;
    if (index >= cases.size()) {
      throw Error(where, "answers case " + std::to_string(index) + " of " +
                             std::to_string(cases.size()) + kSameOptions);
    }
    const std::string place = where + ", " + Describe(cases, index);
    if (answer->check != CaseCheck(cases[index])) {
      throw Error(place, std::string("its check number is another case's") + kSameOptions);
    }
    if (result.cases[index].answered) throw Error(place, "is answered twice");
    result.cases[index] = Judge(dialect, cases[index], *answer, place, options, &kept);
  }
  for (const CaseVerdict& v : result.cases) {
    if (!v.answered) throw Error(where, "holds no answer to " + Describe(cases, v.index));
  }
  RefuseAllDeclined(result, where);
  return result;
}

SetVerdict VerifyFolder(const Dialect& dialect, const std::vector<Case>& cases,
                        const std::filesystem::path& folder, const SetOptions& options) {
  const IeeeArithmetic ieee;
  SetVerdict result = Empty(cases, options);
  KeptCases kept(options.keep, dialect, options.layout, options.verify.quantize.amax);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::optional<CaseAnswer> answer = ReadCaseAnswer(folder, i);
    const std::string place = folder.string() + ", " + Describe(cases, i);
    if (!answer) throw Error(place, "has no answer: NNNN.safetensors or NNNN.codes.npy ...");
    result.cases[i] = Judge(dialect, cases[i], *answer, place, options, &kept);
  }
  RefuseAllDeclined(result, folder.string());
  return result;
}

std::string SetVerdictText(const Dialect& dialect, const std::vector<Case>& cases,
                           const SetVerdict& verdict) {
  const IeeeArithmetic ieee;
  struct Count {
    std::size_t cases = 0, right = 0, different = 0, declined = 0;
  };
  std::map<std::string_view, Count> families;
  Count all;
  std::string details;
  for (const CaseVerdict& v : verdict.cases) {
    const Case& c = cases[v.index];
    const bool right = !v.declined && v.verdict.Accepted();
    for (Count* count : {&all, &families[c.family]}) {
      ++count->cases;
      count->right += right ? 1 : 0;
      count->different += right || v.declined ? 0 : 1;
      count->declined += v.declined ? 1 : 0;
    }
    if (right || v.declined || all.different > 3) continue;
    details += "case " + std::to_string(v.index) + ", " + c.name + ", " + std::to_string(c.x.rows) +
               "x" + std::to_string(c.x.cols) + ":\n" + VerdictText(dialect, v.verdict);
  }
  std::string text = std::string(dialect.name) + ": " + std::to_string(all.right) + " of " +
                     std::to_string(all.cases) + " cases as the dialect has them";
  if (all.declined != 0) {
    text += "; " + std::to_string(all.declined) + " declined";
    if (!verdict.allow_declined) text += " (--allow-declined accepts that)";
  }
  text += "\n";
  for (const CaseFamily& family : CaseFamilies()) {
    const auto at = families.find(family.name);
    if (at == families.end()) continue;
    const Count& count = at->second;
    if (count.different + count.declined == 0) continue;
    text += "  " + std::string(family.name) + ": ";
    if (count.different > 0) text += std::to_string(count.different) + " of ";
    if (count.different > 0) text += std::to_string(count.cases) + " differ";
    if (count.different > 0 && count.declined > 0) text += ", ";
    if (count.declined > 0) text += std::to_string(count.declined) + " declined";
    text += "; it tests " + std::string(family.cause) + "\n";
  }
  return text + details;
}

Json SetVerdictJson(const Dialect& dialect, const std::vector<Case>& cases,
                    const SetVerdict& verdict) {
  const IeeeArithmetic ieee;
  Json list = Json::array();
  std::size_t different = 0, declined = 0, equal = 0;
  for (const CaseVerdict& v : verdict.cases) {
    const bool fine = IsFine(v, verdict.allow_declined), same = !v.declined && v.verdict.Equal();
    const bool right = !v.declined && v.verdict.Accepted();
    different += right || v.declined ? 0 : 1;
    declined += v.declined ? 1 : 0;
    equal += same ? 1 : 0;
    Json entry = {
        {"index", v.index}, {"name", cases[v.index].name}, {"equal", same}, {"accepted", fine}};
    if (v.declined) entry["declined"] = true;
    if (!fine && !v.declined) entry["verdict"] = VerdictJson(dialect, v.verdict);
    list.push_back(std::move(entry));
  }
  return {{"dialect", dialect.name},        {"equal", equal == verdict.cases.size()},
          {"accepted", verdict.Accepted()}, {"cases", std::move(list)},
          {"different", different},         {"declined", declined}};
}

}  // namespace fp4lab
