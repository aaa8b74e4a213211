#include "fp4lab/base/text/suggest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "fp4lab/base/text/text.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostNames = 3;
constexpr std::size_t kLettersAnEdit = 3;  // letters of a name per allowed edit
constexpr std::size_t kLeastPart = 3;      // letters of the shortest part that is searched for

std::string Folded(std::string_view name) {
  std::string folded = LowerCase(name);
  for (char& c : folded) {
    if (c == '-' || c == '.' || c == ' ') c = '_';
  }
  return folded;
}

// Edit distance of two texts: Levenshtein's edits and exchanges of neighbours (optimal string
// alignment).
std::size_t Edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

// "torchao.training" of "nvfp4.torchao.training"; the whole name if it has one part.
std::string_view WithoutFirstPart(std::string_view name) {
  return name.substr(name.find('.') + 1);  // npos + 1 is 0
}

}  // namespace

std::vector<std::string> NearNames(std::string_view name, std::span<const std::string> known) {
  const std::string wanted = Folded(name);
  std::vector<std::pair<std::size_t, std::string>> near, holding;
  for (const std::string& candidate : known) {
    const std::string text = Folded(candidate);
    const std::size_t edits = Edits(wanted, text);
    std::size_t nearest = std::string::npos;
    for (const std::string& whole : {text, Folded(WithoutFirstPart(candidate))}) {
      const std::size_t away = Edits(wanted, whole);
      if (away > std::max(wanted.size(), whole.size()) / kLettersAnEdit) continue;
      nearest = std::min(nearest, away);
    }
    if (nearest != std::string::npos) near.emplace_back(nearest, candidate);
    const bool part = wanted.size() >= kLeastPart && text.find(wanted) != text.npos;
    if (part) holding.emplace_back(edits, candidate);
  }
  auto& found = near.empty() ? holding : near;
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<std::string> names;
  for (const auto& [edits, text] : found) {
    const bool much_farther = !near.empty() && edits > near.front().first + 1;
    if (names.size() < kMostNames && !much_farther) names.push_back(text);
  }
  return names;
}

std::string DidYouMean(std::string_view name, std::span<const std::string> known,
                       std::string_view otherwise) {
  const std::vector<std::string> names = NearNames(name, known);
  if (names.empty() && !otherwise.empty()) return std::string(otherwise);
  std::string text = names.empty() ? "one of:" : "did you mean ";
  if (names.empty()) {
    for (const std::string& n : known) text += " " + n;
    return text;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool last = i + 1 == names.size();
    text += (i == 0 ? "\"" : last ? " or \"" : ", \"") + names[i] + "\"";
  }
  return text + "?";
}

}  // namespace fp4lab
