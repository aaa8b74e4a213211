// A results.json with its analysis, as reports take it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// The results of one model of a study, or one view of them (AllViews), and their analysis.
struct ModelReport {
  Results results;
  Analysis analysis;
};

// A results.json with its analysis.
struct StudyReport {
  std::filesystem::path file;
  Json json;        // the whole document
  Results results;  // of all models
  std::vector<ModelReport> models;
};
// Analyzes the content of `file`, a results.json, with `draws` draws of the bootstrap. Throws Error
// as ReadResults does, and for a study that is not as fp4lab writes it.
StudyReport AnalyzeStudy(const std::filesystem::path& file, Json json, int draws = kBootstrapDraws);
// Reads and analyzes results.json; `file_or_folder` is the file or the folder it lies in. Throws
// Error as AnalyzeStudy does.
StudyReport LoadStudyReport(const std::filesystem::path& file_or_folder);
// For a file without a hash, a line that says that edits of it cannot be detected.
std::vector<std::string> NotesOn(const StudyReport& study);
// Whether any run has a training curve, over which an overlay can be laid.
bool HasCurves(const Results& results);
// The error of a study that is not as fp4lab writes it. A malformed member "study" passes
// ReadResults and is found where it is shown.
Error MalformedStudy(const std::filesystem::path& file, const Json::exception& problem);

}  // namespace fp4lab::study
