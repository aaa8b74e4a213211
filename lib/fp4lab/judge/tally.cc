#include "fp4lab/judge/tally.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/io/npy.h"
#include "fp4lab/judge/case_stream.h"
#include "fp4lab/judge/explain.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInputSuffix = ".x.npy";

// The numbers of the cases in the folder, ascending.
std::vector<std::size_t> IndicesIn(const fs::path& folder) {
  std::vector<std::size_t> indices;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::size_t index = 0;
    int read = 0;
    if (std::sscanf(name.c_str(), "%4zu%n", &index, &read) != 1) continue;
    if (name.substr(static_cast<std::size_t>(read)) == kInputSuffix) indices.push_back(index);
  }
  if (error) throw Error(folder.string(), "cannot be read: " + error.message());
  if (indices.empty()) {
    throw Error(folder.string(), "holds no NNNN.x.npy; `fp4lab verify --keep` writes them");
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

Matrix<float> ReadInput(const fs::path& path) {
  const NpyArray array = ReadNpy(path);
  if (array.shape.size() != 2) throw Error(path.string(), "must be a matrix");
  Matrix<float> x(array.shape[0], array.shape[1]);
  const auto values = array.As<float>();
  std::copy(values.begin(), values.end(), x.values.begin());
  return x;
}

StoredMatrix AsStored(const Kernel& kernel, const Matrix<float>& x, CaseAnswer answer) {
  return {.rows = x.rows,
          .cols = x.cols,
          .element = kernel.dialect.element,
          .scale = kernel.dialect.scale,
          .block_rows = kernel.dialect.block_rows,
          .block_cols = kernel.dialect.block_cols,
          .layout = kernel.layout,
          .codes = std::move(answer.codes),
          .scales = std::move(answer.scales),
          .level_two = std::move(answer.level_two)};
}

std::string Numbered(std::size_t index, std::string_view suffix) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%04zu", index);
  return digits + std::string(suffix);
}

// The random bits beside a case; empty where there are none.
std::vector<std::uint16_t> ReadRandom(const fs::path& path) {
  if (!fs::exists(path)) return {};
  const NpyArray array = ReadNpy(path);
  const auto bits = array.As<std::uint16_t>();
  return {bits.begin(), bits.end()};
}

}  // namespace

CauseTally TallyCauses(const Kernel& kernel, const fs::path& folder) {
  CauseTally tally;
  std::map<std::string, CauseCount> counts;
  const auto count = [&](const std::string& name, bool is_set) {
    CauseCount& c = counts.try_emplace(name, CauseCount{name, is_set}).first->second;
    ++c.explains;
  };
  for (const std::size_t index : IndicesIn(folder)) {
    const Matrix<float> x = ReadInput(folder / Numbered(index, kInputSuffix));
    const std::vector<std::uint16_t> random = ReadRandom(folder / Numbered(index, ".random.npy"));
    std::optional<CaseAnswer> answer = ReadCaseAnswer(folder, index);
    if (!answer)
      throw Error((folder / Numbered(index, kInputSuffix)).string(), "has no answer beside it");
    const StoredMatrix stored = AsStored(kernel, x, std::move(*answer));
    ExplainOptions options;
    options.dialect.random = random;
    options.search.pairs = false;
    const Explanation e = Explain(kernel, x.View(), stored, options);
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
