// One case is one witness: the causes of many cases, counted.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/causes.h"

namespace fp4lab {

struct CauseCount {
  std::string name;          // of the cause: "ties-away", "nvfp4.cutlass"
  bool is_set = false;       // an approximate dialect whose set of answers holds the bytes
  Cause cause = {};          // unless it is a set
  std::size_t explains = 0;  // cases whose bytes it explains
  std::size_t evidence = 0;  // independent differences of these, up to kEnoughDifferences a case
};

struct CauseTally {
  std::size_t cases = 0;                // that differ
  std::vector<CauseCount> causes = {};  // those that explain most first
  // What the bytes force of those that explain all cases: the first, or several that are not told
  // apart, or one that too few differences speak for.
  Certainty certainty = Certainty::kNone;
};

// Explains every case of a folder as `fp4lab verify --keep` writes it (NNNN.x.npy, NNNN.codes.npy,
// ...) by single causes. Error where the folder holds none, or where a file is unsound.
CauseTally TallyCauses(const Kernel& kernel, const std::filesystem::path& folder);

std::string Text(const Kernel& kernel, const CauseTally& tally);
Json ToJson(const Kernel& kernel, const CauseTally& tally);

}  // namespace fp4lab
