// What somebody meant who gave a name that is not there: every refusal of an unknown name says it
// through DidYouMean.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// At most three of `known`, the nearest first, equally near ones by the alphabet: those that `name`
// becomes by few edits (a letter changed, added, left out, or two neighbours exchanged; at most one
// for every three letters, and one more than the nearest needs), the first part of "nvfp4.torchao"
// left out or not; where there are none, those that hold the whole of it. Capitals and the
// separators
// "-", "_" and "." do not count. Empty where nothing is near.
std::vector<std::string> NearNames(std::string_view name, std::span<const std::string> known);

// The remedy in an error: `did you mean "te_nvfp4" or "te_mxfp8"?`; where nothing is near,
// `otherwise`, or without one all that are known: `one of: fp32 bf16`.
std::string DidYouMean(std::string_view name, std::span<const std::string> known,
                       std::string_view otherwise = "");

// The names of a table's rows.
template <class Table>
std::vector<std::string> NamesOf(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

}  // namespace fp4lab
