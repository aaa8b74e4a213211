// Counts the causes of many cases; each case counts once per cause.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/explain/causes.h"

namespace fp4lab {

struct CauseCount {
  std::string name;          // of the cause: "ties-away", "nvfp4.cutlass"
  bool is_set = false;       // an approximate dialect whose set of answers holds the bytes
  Cause cause = {};          // unless is_set
  std::size_t explains = 0;  // number of cases whose bytes the cause explains
  std::size_t evidence = 0;  // their independent differences, up to kEnoughDifferences per case
};

struct CauseTally {
  std::size_t cases = 0;                // number of cases that differ
  std::vector<CauseCount> causes = {};  // causes that explain the most cases first
  // How far the bytes determine the cause, among causes that explain all cases: causes[0] is
  // certain, several are not told apart, or too few differences support causes[0].
  Certainty certainty = Certainty::kNone;
};

// Explains every case of a folder as `fp4lab verify --keep` writes it (NNNN.x.npy, NNNN.codes.npy,
// ...) by single causes. `amax`: as the kernel was given it; empty: each input's own. Throws Error
// if the folder holds no case or a file is invalid.
CauseTally TallyCauses(const Kernel& kernel, const std::filesystem::path& folder,
                       const std::vector<float>& amax = {});

std::string Text(const Kernel& kernel, const CauseTally& tally);
Json ToJson(const Kernel& kernel, const CauseTally& tally);

}  // namespace fp4lab
