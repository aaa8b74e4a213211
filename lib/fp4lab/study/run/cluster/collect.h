// The runs of a study from the folders of the processes that trained them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/study/run/study.h"

namespace fp4lab::study {

// Copies the results of from/runs/KEY into out_dir/runs/KEY, and a checkpoint where out_dir has
// neither of that run; then study.json and registered.json, if out_dir has none. Returns the number
// of results copied. Throws Error if a result is damaged, if the same run has other numbers in
// out_dir, or if `from` is the folder of another study.
int JoinRuns(const std::filesystem::path& from, const std::filesystem::path& out_dir);

// What a folder has of its study.
struct Collected {
  Study study;  // of the seeds of which every arm is complete
  Corpus corpus;
  Outcome outcome;
  std::vector<std::string> missing;  // "nvfp4, seed 3": runs that are not complete, of all seeds
  std::vector<std::string> notes;    // runs of an arm that two builds with other numerics trained
  std::size_t runs = 0;              // of the whole study
};

// Reads out_dir/study.json and the results below out_dir/runs; trains nothing, and measures nothing
// on the device: each arm has the fingerprint of most of its complete runs. Throws Error for a
// folder without study.json, and where no seed is complete in every arm; the message lists what is
// missing.
Collected Collect(const std::filesystem::path& out_dir);

// "3 of 8 runs are missing: bf16, seed 2; ...", at most ten by name.
std::string MissingText(const std::vector<std::string>& missing, std::size_t runs);

}  // namespace fp4lab::study
