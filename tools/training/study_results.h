// The last step of a study's commands: results.json, and the report beside it.
#pragma once

#include <filesystem>
#include <string>

#include "fp4lab/data/corpus.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/study/run/study.h"

namespace fp4lab::tools {

// Writes results.json and the report into out_dir and prints the summary.
void WriteResults(const study::Study& study, const Corpus& corpus, const study::Outcome& outcome,
                  const std::filesystem::path& out_dir);

// Makes results.json and the report from the complete runs of a folder, and prints what is missing.
// Returns whether the study is complete. Throws Error as study::Collect does.
bool CollectResults(const std::filesystem::path& out_dir);

// Whether a folder has runs of a study, but no results.json.
bool IsPartialStudy(const std::filesystem::path& folder);

}  // namespace fp4lab::tools
