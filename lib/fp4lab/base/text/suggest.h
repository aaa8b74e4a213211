// Suggestions for an unknown name: every error about an unknown name contains DidYouMean's text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// At most three names of `known` that are near `name`, the nearest first, ties in alphabetical
// order; empty if no name is near. An edit changes, adds or removes a letter, or exchanges two
// neighbours. A known name is near if at most one edit per three letters turns `name` into it, or
// into it without its first part ("torchao" for "nvfp4.torchao"), and if it needs at most one edit
// more than the nearest. If there is no such name, the known names that contain `name` (3 letters
// or more) are near. Case is ignored, and "-", "_", "." and " " are equal.
std::vector<std::string> NearNames(std::string_view name, std::span<const std::string> known);

// The remedy in an error: `did you mean "te_nvfp4" or "te_mxfp8"?`. If no name is near, the remedy
// is `otherwise`, or, if that is empty, the list of all known names: `one of: fp32 bf16`.
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
