#include "fp4lab/judge/tally.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "fp4lab/judge/case_stream.h"
#include "fp4lab/judge/explain.h"

namespace fp4lab {

CauseTally TallyCauses(const Kernel& kernel, const std::filesystem::path& folder) {
  CauseTally tally;
  std::map<std::string, CauseCount> counts;
  const auto count = [&](const std::string& name, bool is_set) {
    CauseCount& c = counts.try_emplace(name, CauseCount{name, is_set}).first->second;
    ++c.explains;
  };
  for (const std::size_t index : AnsweredCases(folder)) {
    const AnsweredCase c = ReadAnsweredCase(folder, index);
    const StoredMatrix stored =
        StoredAnswer(ShapeOf(kernel.dialect, c.x.rows, c.x.cols, kernel.layout), c.answer);
    ExplainOptions options;
    options.dialect.random = c.random;
    options.search.pairs = false;
    const Explanation e = Explain(kernel, c.x.View(), stored, options);
    if (e.equal) continue;
    ++tally.cases;
    for (const Cause& cause : e.causes.exact) count(Name(cause), false);
    for (const Dialect* d : e.causes.sets) count(std::string(d->name), true);
  }
  for (auto& [name, c] : counts) tally.causes.push_back(std::move(c));
  std::stable_sort(
      tally.causes.begin(), tally.causes.end(),
      [](const CauseCount& a, const CauseCount& b) { return a.explains > b.explains; });
  return tally;
}

std::string Text(const Kernel& kernel, const CauseTally& tally) {
  const std::string name(kernel.dialect.name);
  if (tally.cases == 0) return "Equal: all cases are those of " + name + "\n";
  constexpr std::size_t kShown = 12;
  std::string text = std::to_string(tally.cases) + " cases differ from " + name +
                     ". Single causes, and how many of these cases each explains:\n";
  for (std::size_t i = 0; i < std::min(kShown, tally.causes.size()); ++i) {
    const CauseCount& c = tally.causes[i];
    char line[32];
    std::snprintf(line, sizeof line, "  %4zu  ", c.explains);
    text += line + c.name + (c.is_set ? "  (a set of answers)" : "") + "\n";
  }
  if (tally.causes.empty()) return text + "  none\n";
  if (tally.causes.front().explains == tally.cases) {
    return text + "Cause: " + tally.causes.front().name + ": it explains all of them.\n";
  }
  return text +
         "None explains all: look at the cases that the first leaves (explain --input ...).\n";
}

Json ToJson(const Kernel& kernel, const CauseTally& tally) {
  Json causes = Json::array();
  for (const CauseCount& c : tally.causes) {
    causes.push_back({{"name", c.name}, {"set", c.is_set}, {"explains", c.explains}});
  }
  return {{"dialect", kernel.dialect.name},
          {"equal", tally.cases == 0},
          {"cases", tally.cases},
          {"causes", std::move(causes)}};
}

}  // namespace fp4lab
