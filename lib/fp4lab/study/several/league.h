// A league of recipes of one model and text: losses, gaps to references, token ratios, and what is
// left of differences when one allows for how many were looked at.
//
// A recipe's losses are those after one budget. The difference from a reference is the mean over
// the seeds that both have, with the interval of seed_noise.h. A token ratio says how many times
// the tokens of a reference the recipe needs: the budget over the tokens at which the reference's
// SmoothCurve, of the mean of its seeds, has risen or fallen from its loss at the budget by the
// difference; the ends of the interval likewise. Above 1 it is the shrink form, below 1 the
// reference's extend form against the recipe, inverted. It stands only where the curve reaches
// these losses at budgets where the reference's seeds are together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/several/joined_study.h"

namespace fp4lab::study {

struct LeaguePair {
  std::string recipe, against, what;  // what differs, for a table
};

struct LeagueFile {
  std::int64_t budget = 0;          // tokens
  std::vector<StudyFiles> studies;  // of the recipes
  std::vector<StudyFiles> curves;   // of both references, at other budgets, too
  std::string reference, base;      // the gaps are taken to both; `base` is a recipe of its kind
  std::map<std::string, std::string> names;       // of a reference in the studies of `curves`
  std::string leader;                             // empty: the best of this league
  std::vector<LeaguePair> pairs;                  // looked at together, by Holm's method
  std::map<std::string, LeaguePair> comparisons;  // others, each by itself
};

// Reads {"budget", "studies", "curves", "reference", "base", "names": {"te_nvfp4": "nvfp4"},
// "leader", "pairs": [[recipe, against, what], ...], "comparisons": {name: [recipe, against]}}.
// Throws Error at the JSON pointer of anything unknown.
LeagueFile ReadLeagueFile(const std::filesystem::path& path);

// A recipe that ends more than this above the reference in a seed hardly learns: no pool has it.
inline constexpr double kFailed = 1.0;  // nats

// {"budget", "block_parameters", "sources", "plans", "forwards", "noise", "rows": one a recipe, by
// loss, "first", "order", "pairs", "comparisons"}. Throws Error for studies of other texts, models
// or fingerprints, for a recipe that no study has, and where the curves' losses at the budget are
// not the studies'.
Json LeagueDocument(const LeagueFile& file);

}  // namespace fp4lab::study
